import { ExactNumber, readExactJson } from '../base/exact-json.ts';
import { isJsonObject, type JsonObject } from '../base/json.ts';
import { jsonParser } from './json-calls.ts';
import { ContentParser } from './parse-thinking.ts';
import type { AnswerParser, AnswerPart, Tool } from './tool.ts';

/**
 * Small models often write a call as JSON alone, or in a Markdown fence, instead of in the format of their template:
 *
 *   ```json
 *   {"name": "f", "arguments": {...}}
 *   ```
 *
 * If the whole content is such calls of offered tools, with arguments that fit their schemas, it is calls. So is the end of thoughts
 * without content. All else is left as the parser of the format read it. The content is held back only while it may still be such calls.
 */
export class WholeAnswerCalls implements AnswerParser {
  readonly #format: AnswerParser;
  readonly #tools: readonly Tool[];
  readonly #needsFence: boolean;
  #state: 'unopened' | 'calls' | 'other' = 'unopened';
  #held = '';
  #thoughts = '';
  readonly #json: AnswerParser;
  readonly #calls: AnswerPart[] = [];
  #hasFence: boolean = false;
  /** The text behind the calls. */
  #after = '';

  /** `needsFence`: the format itself is JSON alone. */
  constructor(format: AnswerParser, tools: readonly Tool[], { needsFence }: { readonly needsFence: boolean }) {
    this.#format = format;
    this.#tools = tools;
    this.#needsFence = needsFence;
    this.#json = jsonParser(tools);
  }

  add(text: string, controls?: readonly number[]): AnswerPart[] {
    return this.#read(this.#format.add(text, controls));
  }

  end(isCut = false): AnswerPart[] {
    const parts = this.#read(this.#format.end(isCut));
    if (this.#state === 'other') return parts;
    if (this.#take(this.#json.end(isCut)) && this.#calls.length > 0 && this.#fit()) return [...parts, ...this.#calls];
    const isEmpty = this.#held.trim() === '';
    return [...parts, ...this.#giveBack(), ...(isEmpty && !isCut ? this.#callsAtEnd() : [])];
  }

  #read(parts: readonly AnswerPart[]): AnswerPart[] {
    return parts.flatMap((part) => {
      if (part.kind === 'reasoning') this.#thoughts += part.text;
      if (this.#state === 'other' || part.kind === 'reasoning') return [part];
      return part.kind === 'content' ? this.#add(part.text) : [...this.#giveBack(), part];
    });
  }

  #add(text: string): AnswerPart[] {
    this.#held += text;
    if (this.#state === 'calls') return this.#take(this.#json.add(text)) ? [] : this.#giveBack();
    if (this.#held.length <= openingMax && mayOpen.test(this.#held)) return [];
    const opening = opens.exec(this.#held.slice(0, openingMax));
    if (opening === null || (this.#needsFence && opening[1] === undefined)) return this.#giveBack();
    this.#state = 'calls';
    this.#hasFence = opening[1] !== undefined;
    return this.#take(this.#json.add(this.#held.slice(opening[0].length))) ? [] : this.#giveBack();
  }

  /** Calls with which thoughts end, after the model has left out their closing tag. */
  #callsAtEnd(): AnswerPart[] {
    for (const { index } of [...this.#thoughts.matchAll(lineOfCalls)].slice(-lineMax)) {
      const parser = new WholeAnswerCalls(new ContentParser(), this.#tools, { needsFence: false });
      const parts = [...parser.add(this.#thoughts.slice(index)), ...parser.end()];
      if (parts.some(({ kind }) => kind === 'call')) return parts;
    }
    return [];
  }

  /** Whether the answer may still be calls. Behind them there may be the closing fence. */
  #take(parts: readonly AnswerPart[]): boolean {
    for (const part of parts) {
      if (part.kind === 'content') this.#after += part.text;
      else if (this.#after === '') this.#calls.push(part);
      else return false;
    }
    if (this.#after === '') return true;
    return this.#hasFence && this.#calls.length > 0 && fence.startsWith(this.#after.trim());
  }

  #fit(): boolean {
    const calls: { readonly name: string; json: string }[] = [];
    for (const part of this.#calls) {
      if (part.kind === 'call') calls.push({ name: part.name, json: '' });
      else if (part.kind === 'arguments') calls[part.index]!.json += part.text;
    }
    return calls.every(({ name, json }) => {
      const tool = this.#tools.find((each) => each.function.name === name);
      return tool !== undefined && fitsParameters(json, tool.function.parameters ?? {});
    });
  }

  #giveBack(): AnswerPart[] {
    this.#state = 'other';
    const text = this.#held;
    this.#held = '';
    return text === '' ? [] : [{ kind: 'content', text }];
  }
}

const fence = '```';
/** Longer white space does not open calls. */
const openingMax = 256;
/** Text that more text can turn into the opening of calls. */
const mayOpen = /^\s*(?:`{0,2}|```[a-z_]*\s*)$/;
const opens = /^\s*(```(?:json|tool_call)?\s+)?(?=[[{])/;
/** A line at which calls may begin. Only the last lines of thoughts are tried. */
const lineOfCalls = /^[ \t]*(?:```|[[{])/gm;
const lineMax = 16;

/**
 * Whether the arguments have the required properties, no unknown ones, and values of their types. Deeper, the schema is not checked. A tool
 * without properties gets any object, as its schema says: small models write the schema itself, and some a schema that allows no properties.
 */
function fitsParameters(json: string, parameters: JsonObject): boolean {
  const { properties, required, additionalProperties } = parameters;
  let given: unknown;
  try {
    given = readExactJson(json);
  } catch {
    return false;
  }
  if (!isJsonObject(given)) return false;
  const known = isJsonObject(properties) ? properties : {};
  const isOpen =
    Object.keys(known).length === 0
      ? additionalProperties !== false || Object.keys(given).every((name) => Object.hasOwn(parameters, name))
      : isJsonObject(additionalProperties) || additionalProperties === true;
  return (
    (Array.isArray(required) ? required : []).every((name) => Object.hasOwn(given, String(name))) &&
    Object.entries(given).every(([name, value]) =>
      Object.hasOwn(known, name) ? hasType(value, (known[name] as JsonObject | null)?.type) : isOpen,
    )
  );
}

/** Without a type, or with several, any value fits. */
function hasType(value: unknown, type: unknown): boolean {
  if (typeof type !== 'string') return true;
  if (type === 'array') return Array.isArray(value);
  if (type === 'object') return isJsonObject(value);
  if (type === 'null') return value === null;
  if (type !== 'integer' && type !== 'number') return typeof value === type;
  const isNumber = typeof value === 'number' || value instanceof ExactNumber;
  return isNumber && (type === 'number' || Number.isInteger(Number(value)));
}

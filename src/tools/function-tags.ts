import { type CallSource, nameLengthMax } from './call-source.ts';
import { SteppedReader, type StepState } from './stepped-reader.ts';
import type { Tool } from './tool.ts';
import { asJson, isOnlyText, typesOfParameter } from './written-values.ts';

const parameterOpen = '<parameter=';
const parameterClose = '</parameter>';
const functionClose = '</function>';

/**
 * Reads a call behind `<function=`:
 *
 *   f>
 *   <parameter=city>
 *   Rome
 *   </parameter>
 *   </function>
 *
 * Its arguments become JSON. The schema of a parameter decides whether its value is a text. Texts are passed on as they come.
 */
export class FunctionTags extends SteppedReader {
  readonly #source: CallSource;
  #state: 'name' | 'between' | 'parameter' | 'text' | 'value' = 'name';
  #tool: Tool | undefined;
  #hasBegun: boolean = false;
  #count = 0;
  #parameter = '';
  /** Of a text: whether a part of it was read. */
  #isFirst: boolean = true;
  /** Of a text: a line break that belongs to the text if more of it follows. */
  #lineBreak = '';
  #value = '';

  constructor(source: CallSource) {
    super();
    this.#source = source;
  }

  /** The answer was cut: its last value is not complete. */
  override end(): void {
    const { held } = this.#source;
    if (this.#state === 'text') this.#source.arguments(escaped(this.#lineBreak + held.takeAll()));
    if (this.#state === 'value') this.#source.arguments((this.#value + held.takeAll()).trim());
  }

  protected step(): StepState {
    switch (this.#state) {
      case 'name':
        return this.#readName();
      case 'between':
        return this.#readBetween();
      case 'parameter':
        return this.#readParameterName();
      case 'text':
        return this.#readText();
      default:
        return this.#readValue();
    }
  }

  #readName(): 'again' | 'open' | 'refused' {
    const name = this.#takeName();
    if (typeof name !== 'string') return name === undefined ? 'open' : 'refused';
    this.#tool = this.#source.tools.get(name.trim());
    this.#state = 'between';
    return this.#tool === undefined ? 'refused' : 'again';
  }

  /** The text up to `>`; undefined: more text decides; null: it is too long for a name. */
  #takeName(): string | undefined | null {
    const text = this.#source.held.peek();
    const end = text.slice(0, nameLengthMax + 1).indexOf('>');
    if (end === -1) return text.length > nameLengthMax ? null : undefined;
    return this.#source.take(end + 1).slice(0, -1);
  }

  #readBetween(): 'again' | 'open' | 'ended' | 'refused' {
    this.#source.takeSpace();
    if (this.#source.held.isEmpty) return 'open';
    const isParameter = this.#source.takeTag(parameterOpen);
    if (isParameter === true) {
      this.#state = 'parameter';
      return 'again';
    }
    const isEnd = this.#source.takeTag(functionClose);
    if (isEnd === true) {
      this.#begin();
      this.#source.arguments('}');
      this.#source.drop();
      return 'ended';
    }
    if (isParameter === undefined || isEnd === undefined) return 'open';
    if (!this.#hasBegun) return 'refused';
    // The model has left out the closing tag.
    this.#source.arguments('}');
    return 'ended';
  }

  #begin(): void {
    if (this.#hasBegun) return;
    this.#hasBegun = true;
    this.#source.begin(this.#tool!.function.name);
    this.#source.arguments('{');
  }

  #readParameterName(): 'again' | 'open' | 'ended' | 'refused' {
    const name = this.#takeName();
    if (name === undefined) return 'open';
    if (name === null) {
      if (!this.#hasBegun) return 'refused';
      this.#source.arguments('}');
      return 'ended';
    }
    this.#begin();
    this.#source.drop();
    this.#parameter = name.trim();
    this.#source.arguments(`${this.#count++ === 0 ? '' : ', '}${JSON.stringify(this.#parameter)}: `);
    const isText = isOnlyText(typesOfParameter(this.#tool!, this.#parameter));
    if (isText) this.#source.arguments('"');
    this.#state = isText ? 'text' : 'value';
    this.#isFirst = true;
    this.#lineBreak = '';
    this.#value = '';
    return 'again';
  }

  /** One line break after the opening tag and one before the closing tag belong to the tags. */
  #readText(): 'again' | 'open' {
    const { text, tag } = this.#source.held.takeUntil(parameterClose);
    const begin = this.#isFirst && text.startsWith('\n') ? 1 : 0;
    if (text !== '') this.#isFirst = false;
    const all = this.#lineBreak + text.slice(begin);
    this.#lineBreak = all.endsWith('\n') ? '\n' : '';
    this.#source.arguments(escaped(all.slice(0, all.length - this.#lineBreak.length)));
    if (tag === undefined) return 'open';
    this.#source.arguments('"');
    this.#state = 'between';
    return 'again';
  }

  #readValue(): 'again' | 'open' {
    const { text, tag } = this.#source.held.takeUntil(parameterClose);
    this.#value += text;
    if (tag === undefined) return 'open';
    const value = this.#value.replace(/^\n/, '').replace(/\n$/, '');
    this.#source.arguments(asJson(value, typesOfParameter(this.#tool!, this.#parameter)));
    this.#state = 'between';
    return 'again';
  }
}

/** Text inside a string of JSON. Pieces may cut a pair of surrogates, which `JSON.stringify` of a piece would escape. */
const escaped = (text: string): string =>
  // biome-ignore lint/suspicious/noControlCharactersInRegex: JSON escapes them.
  text.replace(/["\\\u0000-\u001f]/g, (letter) => JSON.stringify(letter).slice(1, -1));

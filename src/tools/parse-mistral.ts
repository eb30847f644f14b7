import { CallParts } from './call-parts.ts';
import { Content } from './content.ts';
import { HeldText } from './held-text.ts';
import { readSteps } from './read-steps.ts';
import type { AnswerParser, AnswerPart } from './tool.ts';

const marker = '[TOOL_CALLS]';
const argumentsMarker = '[ARGS]';

/**
 * Both formats of Mistral:
 *
 *   content [TOOL_CALLS][{"name": "f", "arguments": {...}}, ...]
 *   content [TOOL_CALLS]f[ARGS]{...}[TOOL_CALLS]g[ARGS]{...}
 */
export class MistralParser implements AnswerParser {
  readonly #held = new HeldText();
  readonly #content = new Content();
  readonly #calls = new CallParts();
  #state: 'content' | 'begin' | 'list' | 'object' | 'name' | 'arguments' = 'content';

  add(text: string): AnswerPart[] {
    this.#held.add(text);
    return readSteps((parts) => this.#step(parts));
  }

  end(): AnswerPart[] {
    const parts: AnswerPart[] = [];
    if (this.#state === 'content') parts.push(...this.#content.add(this.#held.takeAll()));
    if (this.#state === 'arguments') parts.push(...this.#calls.arguments(this.#held.takeAll()));
    if (this.#state === 'object') parts.push(...this.#calls.end(marker));
    return [...parts, ...this.#content.end(this.#calls.count === 0)];
  }

  #step(parts: AnswerPart[]): boolean {
    switch (this.#state) {
      case 'content':
        return this.#readContent(parts);
      case 'begin':
        return this.#begin();
      case 'list':
        return this.#readList();
      case 'object':
        return this.#readObject(parts);
      case 'name':
        return this.#readName(parts);
      default:
        return this.#readArguments(parts);
    }
  }

  #readContent(parts: AnswerPart[]): boolean {
    const { text, tag } = this.#held.takeUntil(marker);
    parts.push(...this.#content.add(text));
    if (tag === undefined) return false;
    this.#content.dropSpace();
    this.#state = 'begin';
    return true;
  }

  #begin(): boolean {
    this.#held.takeSpace();
    if (this.#held.isEmpty) return false;
    this.#state = this.#held.startsWith('[') === true ? 'list' : 'name';
    return true;
  }

  /** Between the objects of a list. After the list, nothing is expected. */
  #readList(): boolean {
    this.#held.take(/^[\s,[\]]*/.exec(this.#held.peek())![0].length);
    if (this.#held.isEmpty) return false;
    this.#state = this.#held.startsWith('{') === true ? 'object' : 'content';
    return true;
  }

  #readObject(parts: AnswerPart[]): boolean {
    const { state, parts: found } = this.#calls.readObject(this.#held, marker);
    parts.push(...found);
    if (state !== 'open') this.#state = state === 'ended' ? 'list' : 'content';
    return state !== 'open';
  }

  #readName(parts: AnswerPart[]): boolean {
    const text = this.#held.peek();
    const end = text.indexOf(argumentsMarker);
    const brace = text.indexOf('{');
    if (end === -1 && brace === -1) return false;
    const isMarked = end !== -1 && (brace === -1 || end < brace);
    const name = this.#held.take(isMarked ? end : brace);
    if (isMarked) this.#held.take(argumentsMarker.length);
    parts.push(this.#calls.begin(name.trim()));
    this.#state = 'arguments';
    return true;
  }

  #readArguments(parts: AnswerPart[]): boolean {
    const { text, tag } = this.#held.takeUntil(marker);
    parts.push(...this.#calls.arguments(text));
    if (tag === undefined) return false;
    this.#state = 'begin';
    return true;
  }
}

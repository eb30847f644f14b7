import { CallParts } from './call-parts.ts';
import { Content } from './content.ts';
import { HeldText } from './held-text.ts';
import { readSteps } from './read-steps.ts';
import type { AnswerParser, AnswerPart } from './tool.ts';

const open = '<tool_call>';
const close = '</tool_call>';

/**
 * The format of Hermes 2 Pro, Qwen 2.5 and Qwen 3:
 *
 *   content <tool_call>{"name": "f", "arguments": {...}}</tool_call> <tool_call>...</tool_call>
 */
export class HermesParser implements AnswerParser {
  readonly #held = new HeldText();
  readonly #content = new Content();
  readonly #calls = new CallParts();
  #state: 'content' | 'call' | 'after call' = 'content';

  add(text: string): AnswerPart[] {
    this.#held.add(text);
    return readSteps((parts) => this.#step(parts));
  }

  end(): AnswerPart[] {
    const parts = this.#state === 'call' ? this.#calls.end(open) : [];
    if (this.#state === 'content') parts.push(...this.#content.add(this.#held.takeAll()));
    return [...parts, ...this.#content.end(this.#calls.count === 0)];
  }

  /** Whether there may be more to read. */
  #step(parts: AnswerPart[]): boolean {
    if (this.#state === 'call') {
      const { state, parts: found } = this.#calls.readObject(this.#held, open);
      parts.push(...found);
      if (state !== 'open') this.#state = state === 'ended' ? 'after call' : 'content';
      return state !== 'open';
    }
    const { text, tag } = this.#held.takeUntil(this.#state === 'content' ? open : close);
    if (this.#state === 'content') parts.push(...this.#content.add(text));
    if (tag === undefined) return false;
    this.#state = this.#state === 'content' ? 'call' : 'content';
    if (this.#state === 'call') this.#content.dropSpace();
    return true;
  }
}

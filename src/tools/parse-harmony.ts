import { CallParts } from './call-parts.ts';
import { HeldText } from './held-text.ts';
import { readSteps } from './read-steps.ts';
import type { AnswerParser, AnswerPart } from './tool.ts';

const message = '<|message|>';
const ends = ['<|end|>', '<|call|>', '<|return|>', '<|start|>'];

/**
 * The format of gpt-oss: messages in channels.
 *
 *   <|channel|>analysis<|message|>reasoning<|end|><|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{...}<|call|>
 *   <|channel|>final<|message|>content<|return|>
 */
export class HarmonyParser implements AnswerParser {
  readonly #held = new HeldText();
  readonly #calls = new CallParts();
  #state: 'header' | 'reasoning' | 'content' | 'arguments' = 'header';
  #header = '';

  add(text: string): AnswerPart[] {
    this.#held.add(text);
    return readSteps((parts) => (this.#state === 'header' ? this.#readHeader(parts) : this.#readBody(parts)));
  }

  /** An answer without any header is content. */
  end(): AnswerPart[] {
    if (this.#state !== 'header') return this.#body(this.#held.takeAll());
    const rest = this.#header + this.#held.takeAll();
    const isAnswer = rest.trim() !== '' && !rest.includes('<|') && this.#calls.count === 0;
    return isAnswer ? [{ kind: 'content', text: rest }] : [];
  }

  #readHeader(parts: AnswerPart[]): boolean {
    const { text, tag } = this.#held.takeUntil(message);
    this.#header += text;
    if (tag === undefined) return false;
    const name = /\bto=(?:functions\.)?([\w.-]+)/.exec(this.#header)?.[1];
    const channel = /<\|channel\|>\s*(\w+)/.exec(this.#header)?.[1];
    this.#header = '';
    if (name !== undefined) parts.push(this.#calls.begin(name));
    this.#state = name !== undefined ? 'arguments' : channel === 'analysis' ? 'reasoning' : 'content';
    return true;
  }

  #readBody(parts: AnswerPart[]): boolean {
    const { text, tag } = this.#held.takeUntil(...ends);
    parts.push(...this.#body(text));
    if (tag === undefined) return false;
    this.#state = 'header';
    return true;
  }

  #body(text: string): AnswerPart[] {
    if (text === '') return [];
    if (this.#state === 'arguments') return this.#calls.arguments(text);
    return [{ kind: this.#state === 'reasoning' ? 'reasoning' : 'content', text }];
  }
}

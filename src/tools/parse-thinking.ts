import { HeldText } from './held-text.ts';
import type { AnswerParser, AnswerPart } from './tool.ts';

export interface ThoughtTags {
  readonly open: string;
  readonly close: string;
}

export const tagsOfThink: ThoughtTags = { open: '<think>', close: '</think>' };
export const gemmaThoughts: ThoughtTags = { open: '<|channel>thought\n', close: '<channel|>' };

/**
 * Answers of models that think first, in tags, like Qwen 3, DeepSeek R1 and Gemma 4. What follows is read by another parser.
 *
 *   <think>reasoning</think> content
 *
 * Some templates write the first tag into the prompt. Then the answer begins inside it.
 */
export class ThinkingParser implements AnswerParser {
  readonly #rest: AnswerParser;
  readonly #held = new HeldText();
  readonly #tags: ThoughtTags;
  #state: 'start' | 'reasoning' | 'after reasoning' | 'rest' = 'start';

  constructor(
    rest: AnswerParser,
    { beginsInside, tags = tagsOfThink }: { readonly beginsInside: boolean; readonly tags?: ThoughtTags },
  ) {
    this.#rest = rest;
    this.#tags = tags;
    if (beginsInside) this.#state = 'reasoning';
  }

  add(text: string): AnswerPart[] {
    this.#held.add(text);
    const parts: AnswerPart[] = [];
    while (this.#step(parts));
    return parts;
  }

  end(isCut = false): AnswerPart[] {
    const left = this.#held.takeAll();
    if (this.#state === 'reasoning') return isCut ? [] : reasoningOf(left);
    const isTag = isCut && left.trim() !== '';
    const text = this.#state === 'start' && !isTag ? left : '';
    return [...(text === '' ? [] : this.#rest.add(text)), ...this.#rest.end(isCut)];
  }

  /** Whether there may be more to read. */
  #step(parts: AnswerPart[]): boolean {
    const before = this.#state;
    if (before === 'start') this.#start();
    else if (before === 'reasoning') this.#readReasoning(parts);
    else if (before === 'after reasoning') this.#skipSpace();
    else if (!this.#held.isEmpty) parts.push(...this.#rest.add(this.#held.takeAll()));
    return this.#state !== before;
  }

  /** White space in front of the tag waits, because it is content if there is no tag. */
  #start(): void {
    const { open } = this.#tags;
    const text = this.#held.peek();
    const begin = text.trimStart();
    if (begin.startsWith(open)) {
      this.#held.take(text.length - begin.length + open.length);
      this.#state = 'reasoning';
    } else if (!open.startsWith(begin)) this.#state = 'rest';
  }

  #readReasoning(parts: AnswerPart[]): void {
    const { text, tag } = this.#held.takeUntil(this.#tags.close);
    parts.push(...reasoningOf(text));
    if (tag !== undefined) this.#state = 'after reasoning';
  }

  #skipSpace(): void {
    this.#held.takeSpace();
    if (!this.#held.isEmpty) this.#state = 'rest';
  }
}

/** Answers without calls. */
export class ContentParser implements AnswerParser {
  add(text: string): AnswerPart[] {
    return text === '' ? [] : [{ kind: 'content', text }];
  }

  end(): AnswerPart[] {
    return [];
  }
}

const reasoningOf = (text: string): AnswerPart[] => (text === '' ? [] : [{ kind: 'reasoning', text }]);

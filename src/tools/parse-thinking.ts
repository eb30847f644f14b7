import { type ControlTags, HeldText } from './held-text.ts';
import type { AnswerParser, AnswerPart } from './tool.ts';

export interface ThoughtTags {
  readonly open: string;
  readonly close: string;
  /** Only tags have these texts, wherever they stand: thoughts can follow content, and a closing tag without thoughts is not shown. */
  readonly areMarks?: boolean;
}

export const tagsOfThink: ThoughtTags = { open: '<think>', close: '</think>' };
export const gemmaThoughts: ThoughtTags = { open: '<|channel>thought\n', close: '<channel|>', areMarks: true };
export const mistralThoughts: ThoughtTags = { open: '[THINK]', close: '[/THINK]', areMarks: true };

export interface ThinkingOptions {
  /** The prompt has the first tag. */
  readonly beginsInside: boolean;
  readonly tags?: ThoughtTags;
  readonly controlTags?: ControlTags | undefined;
}

/**
 * Answers of models that think first, in tags, like Qwen 3, DeepSeek R1 and Gemma 4.
 *
 *   <think>reasoning</think> content
 *
 * Some templates write the first tag into the prompt. Then the answer begins inside it. Another parser reads calls before. A call ends
 * the thoughts, as in vLLM: models leave the closing tag out, and clients wait for a call.
 */
export class ThinkingParser implements AnswerParser {
  readonly #calls: AnswerParser;
  readonly #held: HeldText;
  readonly #tags: ThoughtTags;
  #state: 'start' | 'opened' | 'reasoning' | 'after reasoning' | 'content' | 'stray tag' = 'start';
  /** The last letter of the content. */
  #last = '\n';
  #parts: AnswerPart[] = [];

  constructor(calls: AnswerParser, { beginsInside, tags = tagsOfThink, controlTags }: ThinkingOptions) {
    this.#calls = calls;
    this.#tags = tags;
    this.#held = new HeldText(controlTags);
    if (beginsInside) this.#state = 'opened';
  }

  add(text: string, controls?: readonly number[]): AnswerPart[] {
    return this.#divide(this.#calls.add(text, controls));
  }

  end(isCut = false): AnswerPart[] {
    const parts = this.#divide(this.#calls.end(isCut));
    const left = this.#held.peek();
    const isTag = isCut && left.trim() !== '';
    if (!isTag) this.#giveBack();
    return [...parts, ...this.#takeParts()];
  }

  #takeParts(): AnswerPart[] {
    const parts = this.#parts;
    this.#parts = [];
    return parts;
  }

  #divide(parts: readonly AnswerPart[]): AnswerPart[] {
    for (const part of parts) {
      if (part.kind === 'content') {
        this.#held.add(part.text, part.controls);
        while (this.#step());
      } else {
        this.#giveBack();
        if (this.#state !== 'after reasoning') this.#state = 'content';
        this.#last = '\n';
        this.#parts.push(part);
      }
    }
    return this.#takeParts();
  }

  /** The text that was held belongs to no tag. */
  #giveBack(): void {
    const left = this.#held.takeAll();
    if (this.#state === 'opened' || this.#state === 'reasoning') this.#reasoning(left);
    else this.#content(left);
  }

  #reasoning(text: string): void {
    if (text !== '') this.#parts.push({ kind: 'reasoning', text });
  }

  #content(text: string): void {
    if (text === '') return;
    this.#last = text.at(-1)!;
    this.#parts.push({ kind: 'content', text });
  }

  /** Whether there may be more to read. */
  #step(): boolean {
    const before = this.#state;
    switch (before) {
      case 'start':
        return this.#takeOpen('content');
      case 'opened':
        return this.#takeOpen('reasoning');
      case 'reasoning':
        return this.#readReasoning();
      case 'after reasoning':
        return this.#skipSpace();
      case 'stray tag':
        return this.#readStray();
      default:
        return this.#readContent();
    }
  }

  /** White space in front of the tag waits, because it belongs to the text if there is no tag. */
  #takeOpen(otherwise: 'reasoning' | 'content'): boolean {
    const { open } = this.#tags;
    const space = this.#held.spaceLength();
    const starts = this.#held.startsWith(open, space);
    if (starts === undefined) return false;
    if (starts) this.#held.take(space + open.length);
    this.#state = starts && otherwise === 'content' ? 'opened' : otherwise;
    return true;
  }

  #readReasoning(): boolean {
    const { text, tag } = this.#held.takeUntil(this.#tags.close);
    this.#reasoning(text);
    if (tag !== undefined) this.#state = 'after reasoning';
    return tag !== undefined;
  }

  /** Models repeat the closing tag. */
  #skipSpace(): boolean {
    this.#held.takeSpace();
    if (this.#held.isEmpty) return false;
    const isClose = this.#held.startsWith(this.#tags.close);
    if (isClose === undefined) return false;
    if (isClose) this.#held.take(this.#tags.close.length);
    else this.#state = 'content';
    return true;
  }

  #readContent(): boolean {
    const { open, close, areMarks = false } = this.#tags;
    const { text, tag } = this.#held.takeUntil(...(areMarks ? [open, close] : [close]));
    this.#content(text);
    if (tag === open) this.#state = 'reasoning';
    else if (tag === close && !areMarks) this.#state = 'stray tag';
    return tag !== undefined;
  }

  /** A closing tag without thoughts is no content where it begins or ends a line. Elsewhere the model writes about it. */
  #readStray(): boolean {
    if (this.#held.isEmpty) return false;
    this.#state = 'content';
    if (this.#last !== '\n' && this.#held.peek()[0] !== '\n') this.#content(this.#tags.close);
    return true;
  }
}

/** Answers without calls. */
export class ContentParser implements AnswerParser {
  add(text: string, controls: readonly number[] = []): AnswerPart[] {
    return text === '' ? [] : [{ kind: 'content', text, ...(controls.length === 0 ? {} : { controls }) }];
  }

  end(): AnswerPart[] {
    return [];
  }
}

import { CallSource } from './call-source.ts';
import { Content } from './content.ts';
import { HeldText } from './held-text.ts';
import type { AnswerParser, AnswerPart, Tool } from './tool.ts';

/** Reads calls behind a marker. */
export interface CallReader {
  /**
   * Reads as far as the text decides. `open`: more text decides. `ended`: content follows. `refused`: what was taken since the
   * last call is content, and content follows. Only text decides, never the lengths of its pieces.
   */
  read(): 'open' | 'ended' | 'refused';
  /** The answer has ended within the calls. The text that is held back may belong to arguments, but not if the answer is cut. */
  end?(isCut: boolean): void;
}

export interface CallSyntax {
  /** Texts with which calls begin. */
  readonly markers: readonly string[];
  /** Whether calls can begin an answer without a marker. */
  readonly canBeginUnmarked?: boolean;
  /** `marker`: the text that was read; empty at the start of an answer. */
  reader(source: CallSource, marker: string): CallReader;
}

/** Answers of content and calls that begin with a marker. */
export class MarkedParser implements AnswerParser {
  readonly #syntax: CallSyntax;
  readonly #held = new HeldText();
  readonly #content = new Content();
  readonly #source: CallSource;
  #reader: CallReader | undefined;

  constructor(syntax: CallSyntax, tools: readonly Tool[]) {
    this.#syntax = syntax;
    const offered = new Map(tools.map((tool) => [tool.function.name, tool]));
    this.#source = new CallSource(this.#held, this.#content, offered);
    if (syntax.canBeginUnmarked === true) this.#reader = syntax.reader(this.#source, '');
  }

  add(text: string): AnswerPart[] {
    this.#held.add(text);
    while (this.#readMore());
    return this.#source.takeParts();
  }

  end(isCut = false): AnswerPart[] {
    this.#reader?.end?.(isCut);
    if (isCut) this.#source.drop();
    else this.#source.giveBack();
    const held = this.#held.takeAll();
    if (!isCut) this.#source.content(held);
    return [...this.#source.takeParts(), ...this.#content.end(this.#source.count === 0)];
  }

  /** Whether there may be more to read. */
  #readMore(): boolean {
    return this.#reader === undefined ? this.#readContent() : this.#readCalls(this.#reader);
  }

  #readContent(): boolean {
    const { text, tag } = this.#held.takeUntil(...this.#syntax.markers);
    this.#source.content(text);
    if (tag === undefined) return false;
    this.#source.wait(tag);
    this.#reader = this.#syntax.reader(this.#source, tag);
    return true;
  }

  #readCalls(reader: CallReader): boolean {
    const state = reader.read();
    if (state === 'open') return false;
    if (state === 'ended') this.#source.drop();
    else this.#source.giveBack();
    this.#reader = undefined;
    return true;
  }
}

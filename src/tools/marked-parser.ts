import { CallSource } from './call-source.ts';
import { Content } from './content.ts';
import { type ControlTags, HeldText } from './held-text.ts';
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
  /** Calls can begin an answer without a marker, and follow this tag. */
  readonly canBeginUnmarked?: { readonly after: string };
  /** Between these tags no text is a call. */
  readonly quotes?: { readonly open: string; readonly close: string };
  /** `marker`: the text that was read; empty at the start of an answer. */
  reader(source: CallSource, marker: string): CallReader;
}

/** Answers of content and calls that begin with a marker. */
export class MarkedParser implements AnswerParser {
  readonly #syntax: CallSyntax;
  /** The tags that content is searched for. */
  readonly #tags: readonly string[];
  readonly #held: HeldText;
  readonly #content = new Content();
  readonly #source: CallSource;
  #reader: CallReader | undefined;
  #isQuoted: boolean = false;

  constructor(syntax: CallSyntax, tools: readonly Tool[], controlTags?: ControlTags) {
    const { canBeginUnmarked, markers, quotes } = syntax;
    this.#syntax = syntax;
    this.#tags = [...markers, canBeginUnmarked?.after, quotes?.open].filter((tag) => tag !== undefined);
    this.#held = new HeldText(controlTags);
    const offered = new Map(tools.map((tool) => [tool.function.name, tool]));
    this.#source = new CallSource(this.#held, this.#content, offered);
    if (canBeginUnmarked !== undefined) this.#reader = syntax.reader(this.#source, '');
  }

  add(text: string, controls?: readonly number[]): AnswerPart[] {
    this.#held.add(text, controls);
    while (this.#readMore());
    return this.#source.takeParts();
  }

  end(isCut = false): AnswerPart[] {
    if (!isCut) {
      this.#held.end();
      while (this.#readMore());
    }
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
    const { canBeginUnmarked, markers, quotes } = this.#syntax;
    const { text, controls, tag } = this.#held.takeUntil(...(this.#isQuoted ? [quotes!.close] : this.#tags));
    this.#source.content(text, controls);
    if (tag === undefined) return false;
    if (markers.includes(tag)) {
      this.#source.wait(tag);
      this.#reader = this.#syntax.reader(this.#source, tag);
    } else {
      this.#source.content(tag, [0]);
      this.#isQuoted = tag === quotes?.open;
      if (tag === canBeginUnmarked?.after) this.#reader = this.#syntax.reader(this.#source, '');
    }
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

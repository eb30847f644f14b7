import type { PlacedBlock } from '../core/block-place.ts';
import type { BlockId } from '../core/ids.ts';
import type { TokenBuffer } from '../core/tokens.ts';
import type { HashChain } from './block-hash.ts';
import { BlockTableBuffer } from './block-table.ts';
import { SpanList } from './span-list.ts';

/**
 * The KV cache's side of one request, made by `KvCache.open` and changed by the cache alone.
 * It outlives preemption: the digests stay, the pages go.
 */
export class KvRequest {
  /** Index of this request while it is open; what a page's owner is called by. */
  readonly slot: number;
  readonly tokens: TokenBuffer;
  /** Per group; groups of one block size share one chain. */
  readonly chains: readonly HashChain[];
  /** Per group. */
  readonly tables: readonly BlockTableBuffer[];
  /** What this request is to compute, ascending. `nextSpan` and `nextToken` say how far planning and results have come. */
  readonly spans = new SpanList();
  nextSpan = 0;
  nextToken = 0;
  /** Blocks that others compute and this request reads, ascending; those before `nextAwaited` are there. */
  readonly awaited: AwaitedBlock[] = [];
  nextAwaited = 0;
  /** Its spans are out of date: it has inherited pages, or lost some. */
  needsPlan: boolean = false;
  /** Some of the rows taken last lie in pages that this request must not write to. */
  hasMaskedWrites: boolean = false;
  /** The pool ran out of pages for its next rows. */
  isOutOfBlocks: boolean = false;
  /** States that later spans start from and the rows of the current one would run over; they come back when it is done. */
  readonly reserved: PlacedBlock[] = [];
  /** Per group: blocks below have no page. */
  readonly firstAllocated: Int32Array;
  /** Order of admission, anew after each preemption. */
  admission = 0;
  /** Until `close`. */
  isOpen: boolean = true;
  /** It has pages. */
  admitted: boolean = false;

  constructor(slot: number, tokens: TokenBuffer, chains: readonly HashChain[]) {
    this.slot = slot;
    this.tokens = tokens;
    this.chains = chains;
    this.tables = chains.map(({ blockSize }) => new BlockTableBuffer(Math.ceil(tokens.capacity / blockSize)));
    this.firstAllocated = new Int32Array(chains.length);
  }

  /** Back to a request without pages. */
  reset(): void {
    this.spans.clear();
    this.nextSpan = 0;
    this.nextToken = 0;
    this.awaited.length = 0;
    this.nextAwaited = 0;
    this.firstAllocated.fill(0);
    this.needsPlan = false;
    this.admitted = false;
  }

  /** The next position to be computed; behind the last token when all are. */
  nextPosition(): number {
    if (this.nextSpan === this.spans.count) return this.tokens.length;
    return Math.max(this.spans.start(this.nextSpan), this.nextToken);
  }

  /** Whether the rows so far end where a span ends. */
  isBetweenSpans(): boolean {
    return this.nextSpan === this.spans.count || this.nextToken <= this.spans.start(this.nextSpan);
  }

  /** Whether one row is all that is missing before the next token can be sampled. */
  needsOneToken(): boolean {
    return (
      !this.needsPlan &&
      this.nextSpan === this.spans.count - 1 &&
      this.spans.end(this.nextSpan) - Math.max(this.spans.start(this.nextSpan), this.nextToken) === 1
    );
  }

  /** The spans, or parts of them, that are still to be computed. For checks. */
  rest(): { start: number; end: number }[] {
    const spans = this.spans.toArray().slice(this.nextSpan);
    return spans.map(({ start, end }, i) => ({ start: i === 0 ? Math.max(start, this.nextToken) : start, end }));
  }

  /** Whether just these spans are still to be computed. For checks. */
  hasLeft(wanted: SpanList): boolean {
    if (this.spans.count - this.nextSpan !== wanted.count) return false;
    for (let i = 0; i < wanted.count; i++) {
      const at = this.nextSpan + i;
      const start = i === 0 ? Math.max(this.spans.start(at), this.nextToken) : this.spans.start(at);
      if (start !== wanted.start(i) || this.spans.end(at) !== wanted.end(i)) return false;
    }
    return true;
  }

  /** Rows that are still to be computed before the next token can be sampled. */
  tokensLeft(): number {
    let tokens = 0;
    for (let i = this.nextSpan; i < this.spans.count; i++)
      tokens += this.spans.end(i) - Math.max(this.spans.start(i), this.nextToken);
    return tokens;
  }
}

/** A block that another request fills. */
export interface AwaitedBlock {
  readonly block: BlockId;
  /** Position of its first token. */
  readonly start: number;
  readonly blockSize: number;
}

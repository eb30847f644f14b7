import type { PlacedBlock } from '../core/block-place.ts';
import type { BlockId } from '../core/ids.ts';
import type { TokenBuffer } from '../core/tokens.ts';
import type { HashChain } from './block-hash.ts';
import { BlockTableBuffer } from './block-table.ts';
import { ScheduledSpans } from './scheduled-spans.ts';
import { SpanList } from './span-list.ts';

/**
 * The KV cache's part of one request, made by `KvCache.open` and changed only by the cache. A preemption releases its
 * blocks and keeps its digests.
 */
export class KvRequest {
  /** Number of this request while it is open; identifies the owner of a block. */
  readonly slot: number;
  readonly tokens: TokenBuffer;
  readonly cacheSalt: string | undefined;
  /** For events. The chains have the adapter's digest. */
  readonly adapterName: string | undefined;
  /** Per group; groups with equal block sizes share one chain. */
  readonly chains: readonly HashChain[];
  /** Per group. */
  readonly tables: readonly BlockTableBuffer[];
  /**
   * The tokens that this request must compute, ascending. `nextSpan` and `nextToken` mark the next token to schedule.
   */
  readonly spans = new SpanList();
  nextSpan = 0;
  nextToken = 0;
  /** The tokens that the step which is planned or in flight computes. */
  readonly scheduled = new ScheduledSpans();
  /** Blocks that this request reads and another request or a transfer fills, ascending; valid before `nextAwaited`. */
  readonly awaited: AwaitedBlock[] = [];
  nextAwaited = 0;
  /**
   * The request computes all tokens from this position on, because it asks for their results. It takes no block with
   * one of these tokens from the prefix cache, from another request or from a connector.
   */
  computeFrom = Infinity;
  /** Its spans are out of date: it has become the owner of blocks, or blocks of its own are invalid or dropped. */
  needsPlan: boolean = false;
  /** Some of the tokens scheduled last are in blocks that this request must not write. */
  hasMaskedWrites: boolean = false;
  /** The pool had no block for its next tokens. */
  isOutOfBlocks: boolean = false;
  /**
   * States that later spans need and the current span would overwrite. They return to the tables when their span is next.
   */
  readonly reserved: PlacedBlock[] = [];
  /**
   * Blocks with valid tokens that the plan does not need and the prefix cache would not find: the running state at the end of
   * the tokens that were computed last, the partial block of a window there. If a load fails or a block is invalid, the
   * next plan may continue from them. They are kept until more tokens are computed, or until the pool has too few blocks.
   */
  readonly kept: PlacedBlock[] = [];
  /** Per group: the table has NULL_BLOCK below this index. */
  readonly firstAllocated: Int32Array;
  /** Order of admission; a preempted request gets a new one. */
  admission = 0;
  /** True until `close`. */
  isOpen: boolean = true;
  /** Whether it has blocks. */
  admitted: boolean = false;

  constructor(slot: number, tokens: TokenBuffer, chains: readonly HashChain[], names: CacheNames = noNames) {
    this.slot = slot;
    this.cacheSalt = names.cacheSalt;
    this.adapterName = names.adapterName;
    this.tokens = tokens;
    this.chains = chains;
    this.tables = chains.map(({ blockSize }) => new BlockTableBuffer(Math.ceil(tokens.capacity / blockSize)));
    this.firstAllocated = new Int32Array(chains.length);
  }

  /** Resets it to a request without blocks. */
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

  /** The next position to be computed; the number of tokens if all are computed. */
  nextPosition(): number {
    if (this.nextSpan === this.spans.count) return this.tokens.length;
    return Math.max(this.spans.start(this.nextSpan), this.nextToken);
  }

  /** The full blocks whose content may come from elsewhere: those below `computeFrom`. */
  reusableBlocks({ blockSize, count }: HashChain): number {
    return Math.min(count, Math.floor(this.computeFrom / blockSize));
  }

  /** Whether the tokens scheduled so far end at the end of a span. */
  isBetweenSpans(): boolean {
    return this.nextSpan === this.spans.count || this.nextToken <= this.spans.start(this.nextSpan);
  }

  /** Whether one token must be computed before the next token can be sampled. */
  needsOneToken(): boolean {
    return (
      !this.needsPlan &&
      this.nextSpan === this.spans.count - 1 &&
      this.spans.end(this.nextSpan) - Math.max(this.spans.start(this.nextSpan), this.nextToken) === 1
    );
  }

  /** The spans, or parts of them, that must still be computed. For checks. */
  rest(): { start: number; end: number }[] {
    const spans = this.spans.toArray().slice(this.nextSpan);
    return spans.map(({ start, end }, i) => ({ start: i === 0 ? Math.max(start, this.nextToken) : start, end }));
  }

  /** Whether exactly these spans must still be computed. For checks. */
  hasLeft(wanted: SpanList): boolean {
    if (this.spans.count - this.nextSpan !== wanted.count) return false;
    for (let i = 0; i < wanted.count; i++) {
      const at = this.nextSpan + i;
      const start = i === 0 ? Math.max(this.spans.start(at), this.nextToken) : this.spans.start(at);
      if (start !== wanted.start(i) || this.spans.end(at) !== wanted.end(i)) return false;
    }
    return true;
  }

  /** Tokens that must be computed before the next token can be sampled. */
  tokensLeft(): number {
    let tokens = 0;
    for (let i = this.nextSpan; i < this.spans.count; i++)
      tokens += this.spans.end(i) - Math.max(this.spans.start(i), this.nextToken);
    return tokens;
  }
}

/** What separates the request's cache from others, besides the tokens. */
interface CacheNames {
  readonly cacheSalt: string | undefined;
  readonly adapterName: string | undefined;
}
const noNames: CacheNames = { cacheSalt: undefined, adapterName: undefined };

/** A block that another request computes, or a transfer loads. */
export interface AwaitedBlock {
  readonly block: BlockId;
  /** Position of its first token. */
  readonly start: number;
  readonly blockSize: number;
}

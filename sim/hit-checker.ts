import { assert } from '../src/base/assert.ts';
import type { ConnectorRequest, LoadJob, MatchAnswer } from '../src/connector/connector.ts';
import { type BlockPlace, type PlacedBlock, placeName } from '../src/core/block-place.ts';
import { type BlockId, blockIndex, groupIndex, NULL_BLOCK, type RequestId } from '../src/core/ids.ts';
import type { KvCacheSpec } from '../src/core/kv-spec.ts';
import type { BlockTable, Span } from '../src/core/step.ts';
import type { ScheduledStep } from '../src/scheduler/contract.ts';
import type { ProbeChecker } from './probe-checker.ts';

interface Seen {
  readonly tables: readonly BlockTable[];
  readonly tokens: { readonly length: number };
}

/**
 * I3 for stores: the engine uses every hit. A request that waits for its connector's answer waits until the deadline of this
 * question. A request with invalid full blocks does not compute them before it has asked for them. In models with full attention
 * only, it loads the blocks that it is promised then. The checker sees only inputs and outputs: plans, invalid blocks, questions, answers, loads.
 *
 * It excludes blocks that failed to load: the ledger decides whether the request asks for them again.
 */
export class HitChecker {
  readonly #spec: KvCacheSpec;
  readonly #askLaterMaxMs: number;
  readonly #isAsked: boolean;
  /** Whether every promised block of the plan saves tokens. In other models, the planner chooses. */
  readonly #loadsAll: boolean;
  readonly #available: () => number;
  readonly #seen = new Map<RequestId, Seen>();
  /** Invalid blocks that the request has not asked for since, by `placeName`. */
  readonly #invalid = new Map<RequestId, Map<string, PlacedBlock>>();
  /** Invalid blocks that the request asked for and was promised, and that no load has yet. */
  readonly #promised = new Map<RequestId, Set<string>>();
  /** Until when a request must wait for an answer, the plan in which it was last told "ask later", and the blocks of this question. */
  readonly #waits = new Map<RequestId, { readonly untilMs: number; plan: number; wanted: readonly BlockPlace[] }>();
  /** Per request and place, the last block in which it computed tokens, not counting places it must ask for. Full groups keep none. */
  readonly #computed = new Map<RequestId, Map<string, BlockId>>();
  /** Blocks that a request was told to ask for later, and that it did not ask for again in the same plan. */
  readonly #unanswered = new Map<RequestId, readonly BlockPlace[]>();
  /** Requests that have blocks, and that no plan has had since. */
  readonly #admitted = new Set<RequestId>();
  #plans = 0;
  /** Whether the request computes tokens for results of its prompt, although the store has their KV: it asks for none of these blocks. */
  computesAnyway: (id: RequestId) => boolean = () => false;
  /** Only in worlds in which loading is never worth it. */
  probes: ProbeChecker | undefined;

  /** `isAsked`: false if requests never ask for invalid blocks: without prefix caching, or with the policy `fail`. */
  constructor(spec: KvCacheSpec, askLaterMaxMs: number, isAsked: boolean, available: () => number) {
    this.#spec = spec;
    this.#askLaterMaxMs = askLaterMaxMs;
    this.#isAsked = isAsked;
    this.#loadsAll = spec.groups.every(({ kind }) => kind === 'full');
    this.#available = available;
  }

  /** Before the scheduler plans. */
  planning(): void {
    this.#plans++;
    this.probes?.planning();
  }

  /** Whether any request has invalid blocks that it has not asked for since. */
  get hasInvalid(): boolean {
    return this.#invalid.size > 0;
  }

  planned({ sequences }: ScheduledStep): void {
    for (const { requestId, blockTables, tokens } of sequences) {
      this.#admitted.delete(requestId);
      if (this.#seen.get(requestId)?.tables !== blockTables) this.#seen.set(requestId, { tables: blockTables, tokens });
    }
    if (this.#unanswered.size > 0) for (const sequence of sequences) this.#checkUnanswered(sequence);
    if (this.#invalid.size > 0) this.#checkInvalid(sequences);
    if (!this.#loadsAll && this.#isAsked) for (const sequence of sequences) this.#noteComputed(sequence);
  }

  #checkInvalid(sequences: ScheduledStep['sequences']): void {
    for (const sequence of sequences) this.#computedForSharers(sequence);
    for (const sequence of sequences) {
      const { requestId } = sequence;
      for (const [name, place] of this.#invalid.get(requestId) ?? []) {
        // The request shares another request's block by now: it computes these tokens for another group.
        const block = this.#blockAt(requestId, place);
        if (block !== place.block && this.#isShared(requestId, place)) continue;
        // It has its own block again, which has valid tokens: it kept this block while it shared the other one.
        if (block !== place.block && block === this.#computed.get(requestId)?.get(name)) continue;
        assert(
          !this.#computes(sequence, place),
          `I3: ${requestId} computes block ${name}, which is invalid, before it has asked for it`,
        );
      }
    }
  }

  #noteComputed({ requestId, spans, blockTables }: ScheduledStep['sequences'][number]): void {
    const computed = this.#computed.get(requestId) ?? new Map<string, BlockId>();
    this.#computed.set(requestId, computed);
    for (let group = groupIndex(0); group < blockTables.length; group++) {
      const { kind, blockSize } = this.#spec.groups[group]!;
      if (kind === 'full') continue;
      for (const { start, end } of spans)
        for (let index = blockIndex(Math.floor(start / blockSize)); index * blockSize < end; index++)
          if (this.#invalid.get(requestId)?.has(placeName({ group, index })) !== true)
            computed.set(placeName({ group, index }), blockTables[group]!.ids[index] as BlockId);
    }
  }

  #checkUnanswered(sequence: ScheduledStep['sequences'][number]): void {
    const { requestId } = sequence;
    for (const place of this.#unanswered.get(requestId) ?? []) {
      // Another request computes or loads the block.
      if (this.#isShared(requestId, place)) continue;
      assert(
        !this.#computes(sequence, place),
        `I3: ${requestId} computes block ${placeName(place)} and does not wait for the answer`,
      );
    }
    this.#unanswered.delete(requestId);
  }

  #computes({ spans, tokens, writeTables }: ScheduledStep['sequences'][number], { group, index }: BlockPlace): boolean {
    // The request has found the block in the prefix cache since, and computes these tokens for another group.
    if (writeTables?.[group]?.ids[index] === NULL_BLOCK) return false;
    const token = this.#tokenOf({ group, index });
    // The last token is computed in any case, for its logits.
    return token !== tokens.length - 1 && isScheduled(spans, token);
  }

  /**
   * The token with which the block is computed: its first. In a state group its last, after which the checkpoint is: tokens before it
   * may be computed for other groups, with a running state in a block of its own.
   */
  #tokenOf({ group, index }: BlockPlace): number {
    const { kind, blockSize } = this.#spec.groups[group]!;
    return index * blockSize + (kind === 'state' ? blockSize - 1 : 0);
  }

  /** These blocks are invalid, for every request that has one of them. */
  blocksInvalidated(blocks: readonly BlockId[]): void {
    if (!this.#isAsked || blocks.length === 0) return;
    const invalidIds = new Set<number>(blocks);
    for (const computed of this.#computed.values())
      for (const [name, block] of computed) if (invalidIds.has(block)) computed.delete(name);
    for (const [id, { tables, tokens }] of this.#seen) {
      if (this.computesAnyway(id)) continue;
      const ownInvalid = this.#invalid.get(id) ?? new Map<string, PlacedBlock>();
      for (let group = groupIndex(0); group < tables.length; group++) {
        const { ids, length } = tables[group]!;
        const full = Math.min(length, Math.floor(tokens.length / this.#spec.groups[group]!.blockSize));
        for (let index = blockIndex(0); index < full; index++) {
          const placed = { group, index, block: ids[index]! as BlockId };
          if (invalidIds.has(placed.block)) ownInvalid.set(placeName(placed), placed);
        }
      }
      if (ownInvalid.size > 0) this.#invalid.set(id, ownInvalid);
    }
  }

  /** `isUsable`: whether the engine may load the block from this place. */
  asked(
    request: ConnectorRequest,
    answer: MatchAnswer,
    nowMs: number,
    isUsable: (key: string, place: string) => boolean,
  ) {
    this.probes?.asked(request, answer, isUsable);
    const { id, wanted } = request;
    if (answer.kind === 'askLater') {
      const untilMs = Math.min(answer.deadlineMs, nowMs + this.#askLaterMaxMs);
      const wait = this.#waits.get(id) ?? { untilMs, plan: this.#plans, wanted };
      wait.plan = this.#plans;
      wait.wanted = wanted;
      this.#waits.set(id, wait);
    } else {
      const wait = this.#waits.get(id);
      if (wait !== undefined) wait.plan = answered;
    }
    const invalid = this.#invalid.get(id);
    if (invalid === undefined) return;
    for (const place of wanted) this.#askedForSharers(id, place);
    const keys = new Map<string, string>(wanted.map((block) => [placeName(block), block.key]));
    if (answer.kind === 'found' && this.#hasBlocks(id)) {
      const first = new Map(answer.blocks.map((block) => [placeName(block), block] as const).reverse());
      const promised = [...first].filter(
        ([name, { key, place }]) => invalid.has(name) && keys.get(name) === key && isUsable(key, place),
      );
      this.#promised.set(id, new Set(promised.map(([name]) => name)));
    }
    if (answer.kind !== 'found') return;
    for (const place of wanted) invalid.delete(placeName(place));
  }

  /** A request that shares the block need not ask for it too, also if it becomes the owner. */
  #askedForSharers(id: RequestId, place: BlockPlace): void {
    const name = placeName(place);
    const blocks = [this.#blockAt(id, place), this.#invalid.get(id)?.get(name)?.block];
    for (const [other, invalid] of this.#invalid) {
      if (other === id) continue;
      // Either request may have another block by now: a block that a transfer still writes is replaced for each of them.
      const isShared = [this.#blockAt(other, place), invalid.get(name)?.block].some(
        (block) => block !== undefined && blocks.includes(block),
      );
      if (isShared) invalid.delete(name);
    }
  }

  /** A request that has asked computes the block: it is valid for the requests that share it, which may compute its tokens for other groups. */
  #computedForSharers({ requestId, spans }: ScheduledStep['sequences'][number]): void {
    for (const [other, invalid] of this.#invalid) {
      if (other === requestId) continue;
      for (const [name, place] of invalid) {
        const hasAsked = this.#invalid.get(requestId)?.has(name) !== true;
        if (hasAsked && this.#blockAt(requestId, place) === place.block && isScheduled(spans, this.#tokenOf(place)))
          invalid.delete(name);
      }
    }
  }

  #hasBlocks(id: RequestId): boolean {
    return this.#admitted.has(id) || this.#seen.get(id)?.tables.some(({ length }) => length > 0) === true;
  }

  #isShared(id: RequestId, place: BlockPlace): boolean {
    const block = this.#blockAt(id, place);
    for (const other of this.#seen.keys())
      if (other !== id && block !== undefined && this.#blockAt(other, place) === block) return true;
    return false;
  }

  #blockAt(id: RequestId, { group, index }: BlockPlace): BlockId | undefined {
    const table = this.#seen.get(id)?.tables[group];
    return table === undefined || index >= table.length ? undefined : (table.ids[index] as BlockId);
  }

  /** The request was admitted: its question is answered. */
  allocated(request: ConnectorRequest, load: LoadJob | undefined, nowMs: number): void {
    this.probes?.allocated(request, load);
    const { id } = request;
    const wait = this.#waits.get(id);
    this.#waits.delete(id);
    this.#unanswered.delete(id);
    // If the pool has all blocks by now, the request does not ask in this plan.
    if (wait?.plan === this.#plans && nowMs < wait.untilMs) {
      // A request with blocks may have asked before another request began to fill its missing blocks in this plan.
      assert(
        this.#hasBlocks(id),
        `I3: the engine does not wait for the answer for ${id}, which may come until ${wait.untilMs}`,
      );
      this.#unanswered.set(id, wait.wanted);
    }
    this.#admitted.add(id);
    const promised = this.#promised.get(id);
    this.#promised.delete(id);
    this.#invalid.delete(id);
    if (promised === undefined || !this.#loadsAll || this.#available() === 0) return;
    for (const place of load?.blocks ?? []) promised.delete(placeName(place));
    assert(
      promised.size === 0,
      `I3: ${id} does not load the invalid blocks ${[...promised].join(', ')}, which it was promised`,
    );
  }

  /** Loads of these blocks failed or were given up, perhaps so often that no request asks for the blocks again. */
  loadsFailed(blocks: readonly BlockPlace[]): void {
    if (this.#invalid.size === 0) return;
    for (const invalid of this.#invalid.values()) for (const place of blocks) invalid.delete(placeName(place));
  }

  ended(id: RequestId): void {
    this.#admitted.delete(id);
    const maps = [this.#seen, this.#invalid, this.#computed, this.#promised, this.#waits, this.#unanswered];
    for (const map of maps) map.delete(id);
  }
}

const answered = -1;

const isScheduled = (spans: readonly Span[], token: number): boolean =>
  spans.some(({ start, end }) => start <= token && token < end);

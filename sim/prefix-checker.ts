import { assert } from '../src/base/assert.ts';
import { sha256 } from '../src/base/sha256.ts';
import { type BlockKey, blockKey } from '../src/connector/block-key.ts';
import { type BlockId, blockIndex, groupIndex, type RequestId } from '../src/core/ids.ts';
import type { KvCacheSpec } from '../src/core/kv-spec.ts';
import type { EngineRequest, RequestUpdate } from '../src/core/request.ts';
import { blockAt, type SequencePlan, spansOfTokens } from '../src/core/step.ts';
import { TokenBuffer } from '../src/core/tokens.ts';
import { HashChain } from '../src/kv/block-hash.ts';
import type { ScheduledStep } from '../src/scheduler/contract.ts';
import { firstRead } from './fake-model.ts';
import type { ReferenceKv } from './fake-runner.ts';
import type { PoolMemory } from './minimal-repair.ts';

/**
 * I3 for models with any groups, if the tier keeps every block that it is offered and no block becomes invalid. A request does not
 * compute the tokens of a prefix whose KV the tier had when the request was admitted, or the pool has when the request begins to
 * compute, or will have after the step, because a request that was admitted before computes it in the same plan. This holds in a short
 * pool, too. An engine that uses prefixes only, as vLLM does, computes all tokens after the prefix.
 *
 * The checker sees which keys are stored, admissions, plans and the fake runner's memory. It uses nothing of the KV core but the
 * keys of blocks.
 */
export class PrefixChecker {
  readonly #spec: KvCacheSpec;
  readonly #memory: PoolMemory;
  readonly #referenceOf: (id: RequestId) => ReferenceKv | undefined;
  readonly #neededFrom: (id: RequestId) => number;
  readonly #requests = new Map<RequestId, EngineRequest>();
  /** When each block was stored first: the number of blocks that were stored before. */
  readonly #stored = new Map<BlockKey, number>();
  /** How many blocks were stored when the request was admitted. */
  readonly #admitted = new Map<RequestId, number>();
  /** The order of all admissions. */
  readonly #order = new Map<RequestId, number>();
  #admissions = 0;
  readonly #unanswered = new Set<RequestId>();
  readonly #prefixes = new Map<RequestId, number>();
  #preemptions = 0;
  /** Prefixes that were checked and are not empty. */
  checked = 0;

  /** As `MinimalRepair`. */
  constructor(
    memory: PoolMemory,
    referenceOf: (id: RequestId) => ReferenceKv | undefined,
    neededFrom: (id: RequestId) => number,
  ) {
    this.#spec = memory.kvCacheSpec;
    this.#memory = memory;
    this.#referenceOf = referenceOf;
    this.#neededFrom = neededFrom;
  }

  added(request: EngineRequest): void {
    this.#requests.set(request.id, request);
  }

  stored(key: BlockKey): void {
    if (!this.#stored.has(key)) this.#stored.set(key, this.#stored.size);
  }

  /** `isAnswered`: false if the request must ask again later. Its patience has an end. */
  asked(id: RequestId, isAnswered: boolean): void {
    if (isAnswered) this.#unanswered.delete(id);
    else this.#unanswered.add(id);
  }

  admitted(id: RequestId): void {
    this.#prefixes.delete(id);
    this.#order.set(id, this.#admissions++);
    if (this.#unanswered.delete(id)) this.#admitted.delete(id);
    else this.#admitted.set(id, this.#stored.size);
  }

  /**
   * A load was too slow, or a request has ended early or was preempted. Others may compute the tokens that it was to load or to compute for
   * them, although the tier has some of them: a request does not ask the tier for blocks that another one fills.
   */
  fillerLost(): void {
    this.#admitted.clear();
    this.#prefixes.clear();
  }

  /** A request that only loads ends without computing the tokens that others may wait for. */
  updated({ requestId, finish }: RequestUpdate): void {
    if (finish !== undefined && this.#requests.get(requestId)?.loadOnly === true) this.fillerLost();
  }

  /**
   * `allocated`: the blocks that the plan has allocated. Their content is of earlier requests. `preemptions`: since the start, with those
   * of this plan.
   */
  planned({ sequences }: ScheduledStep, allocated: readonly BlockId[], preemptions: number): void {
    if (preemptions > this.#preemptions) this.fillerLost();
    this.#preemptions = preemptions;
    const coming: Coming = new Map();
    const written = new Set([...allocated, ...sequences.flatMap((sequence) => this.#writtenBy(sequence))]);
    for (const sequence of sequences) {
      const { requestId, tokens } = sequence;
      const storedCount = this.#admitted.get(requestId);
      if (storedCount !== undefined) {
        this.#admitted.delete(requestId);
        const keys = this.#keysOf(sequence);
        const inTier = this.#prefixOf(sequence, this.#inTier(keys, storedCount));
        const inPool = this.#prefixOf(sequence, this.#inPool(sequence, keys, written, coming));
        this.#prefixes.set(requestId, Math.max(inTier, inPool));
        if (inTier > 0 || inPool > 0) this.checked++;
      }
      const prefix = this.#prefixes.get(requestId) ?? 0;
      for (const { start } of spansOfTokens(sequence, tokens.length))
        if (start < prefix)
          assert(
            false,
            `I3: ${requestId} computes token ${start}, but tier or pool had the first ${prefix} of ${tokens.length} tokens`,
          );
      this.#addComing(sequence, coming);
    }
  }

  /** Blocks whose content this step completes or replaces. Until then they may have that of drafts that were wrong. */
  #writtenBy({ spans, blockTables, writeTables = blockTables }: SequencePlan): BlockId[] {
    return this.#spec.groups.flatMap(({ blockSize }, group) =>
      spans.flatMap(({ start, end }) => {
        const first = Math.floor(start / blockSize);
        const count = Math.floor((end - 1) / blockSize) - first + 1;
        return Array.from({ length: count }, (_, i) => blockAt(writeTables[group]!, blockIndex(first + i)));
      }),
    );
  }

  /** Blocks that have all their KV after the sequence's step. */
  #addComing(sequence: SequencePlan, coming: Coming): void {
    const order = this.#order.get(sequence.requestId)!;
    const keys = this.#keysOf(sequence);
    for (const [group, { blockSize, kind }] of this.#spec.groups.entries())
      for (const { start, end } of spansOfTokens(sequence, sequence.tokens.length))
        for (let index = Math.floor(start / blockSize); (index + 1) * blockSize <= end; index++) {
          const key = keys[group]![index];
          const isWhole = kind === 'state' || start <= index * blockSize;
          if (key !== undefined && isWhole && !coming.has(key)) coming.set(key, order);
        }
  }

  /** By group: the keys of the full blocks. */
  #keysOf({ requestId, tokens }: SequencePlan): BlockKey[][] {
    const { cacheSalt, adapter } = this.#requests.get(requestId)!;
    const buffer = new TokenBuffer(Array.from({ length: tokens.length }, (_, i) => tokens.at(i)));
    return this.#spec.groups.map(({ blockSize }, group) => {
      const root = { fingerprint: this.#spec.fingerprint, cacheSalt, adapter: adapter?.digest };
      const chain = new HashChain(sha256, blockSize, root);
      chain.extend(buffer);
      return Array.from({ length: chain.count }, (_, index) =>
        blockKey(groupIndex(group), chain.words, blockIndex(index)),
      );
    });
  }

  /** By group and index: whether the tier had the block when it had so many blocks. */
  #inTier(keys: readonly (readonly BlockKey[])[], storedCount: number): boolean[][] {
    return keys.map((group) => group.map((key) => (this.#stored.get(key) ?? Infinity) < storedCount));
  }

  /**
   * By group and index: whether any block of the pool has the content of the full block before the step, or after the part of the
   * plan that comes before this sequence.
   */
  #inPool(
    { requestId, tokens }: SequencePlan,
    keys: readonly (readonly BlockKey[])[],
    written: ReadonlySet<number>,
    coming: Coming,
  ): boolean[][] {
    const reference = this.#referenceOf(requestId)!;
    const order = this.#order.get(requestId)!;
    return this.#spec.groups.map(({ blockSize, kind }, group) =>
      Array.from({ length: Math.floor(tokens.length / blockSize) }, (_, index) => {
        if ((coming.get(keys[group]![index]!) ?? Infinity) < order) return true;
        const [start, end] = [index * blockSize, (index + 1) * blockSize];
        for (let block = 1; block < this.#spec.blockCount; block++) {
          if (written.has(block)) continue;
          let token = kind === 'state' ? end - 1 : start;
          while (token < end && this.#memory.matchesReference(block, group, token, reference)) token++;
          if (token === end) return true;
        }
        return false;
      }),
    );
  }

  /** The longest prefix, without the last token, of which these blocks have all that the next token reads. */
  #prefixOf({ requestId, tokens }: SequencePlan, hasBlocks: readonly (readonly boolean[])[]): number {
    // A block with a token whose result the request asks for does not count.
    const end = Math.min(tokens.length, this.#neededFrom(requestId));
    const usable = hasBlocks.map((has, group) => has.slice(0, Math.floor(end / this.#spec.groups[group]!.blockSize)));
    for (let prefix = Math.min(tokens.length - 1, end); prefix > 0; prefix--)
      if (this.#spec.groups.every((_, group) => this.#isReadable(group, prefix, usable[group]!))) return prefix;
    return 0;
  }

  /** Whether these blocks have all that the token at `position` reads. */
  #isReadable(group: number, position: number, hasBlocks: readonly boolean[]): boolean {
    const spec = this.#spec.groups[group]!;
    // Blocks have the state after their last token only.
    if (spec.kind === 'state' && position % spec.blockSize !== 0) return false;
    const last = Math.floor((position - 1) / spec.blockSize);
    for (let index = Math.floor(firstRead(spec, position) / spec.blockSize); index <= last; index++)
      if (hasBlocks[index] !== true) return false;
    return true;
  }
}

/** Blocks that a step computes, with the place in the order of admissions of the request that computes them. */
type Coming = Map<BlockKey, number>;

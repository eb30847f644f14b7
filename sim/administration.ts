import { assert } from '../src/base/assert.ts';
import type { Prng } from '../src/base/prng.ts';
import { type BlockKey, groupOfKey } from '../src/connector/block-key.ts';
import type { RequestId } from '../src/core/ids.ts';
import type { KvCacheSpec } from '../src/core/kv-spec.ts';
import type { EngineRequest, RequestUpdate } from '../src/core/request.ts';
import type { ScheduledStep } from '../src/scheduler/contract.ts';
import type { CachedPrompt } from '../src/scheduler/prefixes.ts';
import type { Scheduler } from '../src/scheduler/scheduler.ts';

/** Of the pool that pinned prefixes may have. */
export const pinShare = 0.5;
const ttlMax = 400;
const promptsKept = 8;

export interface AdministrationParts {
  readonly prng: Prng;
  readonly scheduler: Scheduler;
  readonly spec: KvCacheSpec;
  /** Whether blocks may be removed from the pool and from stores. */
  readonly mayRemove: boolean;
  /** No block is lost, and loads fail only because they are late. */
  readonly isFaultless: boolean;
  /** Removes random blocks from all stores, or all of them. */
  clearStores(): void;
}

/**
 * What an administrator does at any time: pins prefixes, removes blocks of prompts, clears stores, and has blocks loaded before
 * their request comes. Checks that a pinned block is evicted only if no other block is available, that each pin ends, and that a request
 * that only loads computes nothing and ends after its loads.
 */
export class Administration {
  readonly #parts: AdministrationParts;
  /** Those of the last requests. */
  readonly #prompts: CachedPrompt[] = [];
  readonly #loadOnly = new Set<RequestId>();
  /** The keys of the blocks that they load, and `#fillersLost` when they began. */
  readonly #loading = new Map<RequestId, { readonly keys: readonly BlockKey[]; readonly fillersLost: number }>();
  #ended = 0;
  #nowMs = 0;
  /** How many blocks of each pin the pool had before the plan. */
  readonly #cachedBefore = new Map<string, number>();
  #evictedBefore = 0;

  /** In half of the worlds. */
  static inSome(prng: Prng, parts: Omit<AdministrationParts, 'prng'>): Administration | undefined {
    return prng.chance(0.5) ? new Administration({ ...parts, prng }) : undefined;
  }

  private constructor(parts: AdministrationParts) {
    this.#parts = parts;
  }

  /** The request, or the same one if it only loads. */
  arrives(request: EngineRequest): EngineRequest {
    const { promptTokens: tokens, cacheSalt, adapter } = request;
    this.#prompts.push({ tokens, cacheSalt, adapter });
    if (this.#prompts.length > promptsKept) this.#prompts.shift();
    if (!this.#parts.prng.chance(0.15)) return request;
    const { constraint: _, pooling: __, ...rest } = request;
    const { promptLogprobs: ___, ...params } = request.params;
    this.#loadOnly.add(request.id);
    return { ...rest, loadOnly: true, params: { ...params, maxTokens: 0, minTokens: 0 } };
  }

  act(nowMs: number): void {
    this.#nowMs = nowMs;
    const { prng, scheduler, mayRemove, clearStores } = this.#parts;
    if (this.#prompts.length === 0 || !prng.chance(0.2)) return;
    const { tokens, ...rest } = prng.pick(this.#prompts);
    const prompt = { tokens: tokens.subarray(0, prng.between(1, tokens.length)), ...rest };
    switch (
      prng.pick(mayRemove ? ['pin', 'pin', 'unpin', 'remove', 'clear', 'look'] : ['pin', 'pin', 'unpin', 'look'])
    ) {
      case 'pin': {
        const ttlMs = prng.between(1, ttlMax);
        const { pin, neededBlocks } = scheduler.prefixes.pin(prompt, ttlMs, nowMs);
        assert(pin === undefined || (pin.blocks > 0 && pin.blocks <= neededBlocks), 'a pin has blocks of its prompt');
        break;
      }
      case 'unpin':
        // By the name or by the prompt.
        scheduler.prefixes.unpin(scheduler.prefixes.pins(nowMs).list[0]?.name ?? prompt);
        break;
      case 'remove':
        scheduler.prefixes.remove(prompt);
        break;
      case 'clear':
        clearStores();
        break;
      case 'look':
        this.#look(prompt);
        break;
    }
  }

  planning(nowMs: number): void {
    const { prefixes } = this.#parts.scheduler;
    this.#nowMs = nowMs;
    this.#cachedBefore.clear();
    // Ends pins now, so that the plan evicts no block of a pin that it ends itself.
    const { list, evictedCount } = prefixes.pins(nowMs);
    this.#evictedBefore = evictedCount;
    for (const { name, cachedBlocks } of list) this.#cachedBefore.set(name, cachedBlocks);
  }

  planned(plan: ScheduledStep | undefined): void {
    const { scheduler } = this.#parts;
    for (const { requestId } of plan?.sequences ?? [])
      assert(!this.#loadOnly.has(requestId), `${requestId} only loads, but a step computes tokens of it`);
    for (const { requestId, blocks } of plan?.connectorMetadata?.loads ?? [])
      if (this.#loadOnly.has(requestId))
        this.#loading.set(requestId, {
          keys: [...(this.#loading.get(requestId)?.keys ?? []), ...blocks.map(({ key }) => key)],
          fillersLost: this.#loading.get(requestId)?.fillersLost ?? this.#fillersLost,
        });
    const { list, evictedCount } = scheduler.prefixes.pins(this.#nowMs);
    // No other block was available then. Later in the same plan, requests may have released some.
    if (evictedCount > this.#evictedBefore) return;
    for (const { name, cachedBlocks } of list) {
      const before = this.#cachedBefore.get(name) ?? 0;
      assert(cachedBlocks >= before, `a pinned block of ${name} was evicted before other blocks`);
    }
  }

  aborted(): void {
    this.#ended++;
  }

  /** Requests that no longer compute blocks, perhaps for others too. */
  get #fillersLost(): number {
    return this.#ended + this.#parts.scheduler.stats().preemptions;
  }

  updated({ requestId, finish, newTokens, stats }: RequestUpdate): void {
    if (finish === undefined) return;
    const { keys, fillersLost } = this.#loading.get(requestId) ?? { keys: [], fillersLost: 0 };
    this.#loading.delete(requestId);
    const hasLostFiller = fillersLost !== this.#fillersLost;
    this.#ended++;
    if (!this.#loadOnly.delete(requestId)) return;
    assert(newTokens.length === 0, `${requestId} only loads, but has an output`);
    // Its loads have failed, or blocks that it had loaded were lost.
    if (!this.#parts.isFaultless || stats.failedLoads !== undefined || finish.reason !== 'length') return;
    // If another request that computed a block for both has ended first, loaded windows and states are of no use.
    const { groups } = this.#parts.spec;
    const mayLetGo = (key: BlockKey): boolean => hasLostFiller && groups[groupOfKey(key)]!.kind !== 'full';
    const cached = this.#parts.scheduler.inspector.cachedKeys();
    for (const key of keys)
      if (!mayLetGo(key)) assert(cached.has(key), `${requestId} has ended, but it has not loaded ${key}`);
  }

  /** All pins end, if no request uses them. */
  checkEnd(nowMs: number): void {
    const { list, blockCount } = this.#parts.scheduler.prefixes.pins(nowMs + ttlMax + 1);
    assert(list.length === 0 && blockCount === 0, `${list.length} pins outlive their time`);
    assert(this.#parts.scheduler.prefixes.protectedCount === 0, 'blocks outlive their pins');
  }

  #look(prompt: CachedPrompt): void {
    const { prefixes } = this.#parts.scheduler;
    const inPool = prefixes.cachedTokens(prompt, { usesPool: true, found: [] });
    assert(inPool >= 0 && inPool < prompt.tokens.length, `${inPool} tokens of ${prompt.tokens.length} are in the pool`);
    const all = prefixes.cachedTokens(prompt, { usesPool: true, found: prefixes.blocksOf(prompt) });
    assert(all >= inPool, 'with the blocks of a tier, fewer tokens are cached');
    for (const { key } of prefixes.blocksOf(prompt))
      if (prefixes.areSaving([key])) {
        const { scheduler } = this.#parts;
        const isKnown = scheduler.inspector.cachedKeys().has(key) || scheduler.stats().transfers.open > 0;
        assert(isKnown, `${key} is being saved, but no transfer and no cached block has it`);
      }
    // A pin names content that the prompt has, each once.
    const { keys } = prefixes.pinOf(prompt);
    assert(new Set(keys).size === keys.length, 'a pin names a block twice');
    const known = new Set(prefixes.blocksOf(prompt).map(({ key }) => key));
    for (const key of keys) assert(known.has(key), `a pin names ${key}, which is no block of the prompt`);
    // What a prefetch would load has no more tokens than the prompt, and only the last of them is computed.
    const counted = { usesPool: true, found: prefixes.blocksOf(prompt) };
    const loadable = prefixes.loadablePart(prompt, counted);
    assert(loadable.length <= prompt.tokens.length, 'a prefetch loads more than the prompt');
    if (loadable.length > 0) {
      const cached = prefixes.cachedTokens({ ...prompt, tokens: loadable }, counted);
      assert(cached === loadable.length - 1, `a prefetch computes ${loadable.length - cached} tokens instead of one`);
    }
  }
}

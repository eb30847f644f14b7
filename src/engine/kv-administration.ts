import { setTimeout as delay } from 'node:timers/promises';
import { assertDefined } from '../base/assert.ts';
import { byEntries, byName, ownValue } from '../base/by-name.ts';
import { withoutUndefined } from '../base/field-reader.ts';
import type { BlockKey } from '../connector/block-key.ts';
import type { KvBlock } from '../connector/connector.ts';
import { tierNameTaken, tiersNotAdministered, tierUnknown } from '../connector/errors.ts';
import { saltTagOf } from '../connector/salt-tag.ts';
import { noWork, type TierAdministration, type TierOrder, type TierOrderAnswer } from '../connector/tier-orders.ts';
import { invalidParameter } from '../core/errors.ts';
import type { PinnedPrefix } from '../kv/pinned-prefixes.ts';
import type { CachedPrompt, Prefixes } from '../scheduler/prefixes.ts';
import { checkIsList } from './check-arguments.ts';
import type { GenerateRequest, OutputDelta, TokenizePromptOptions } from './contract.ts';
import type { EngineParts } from './engine-parts.ts';
import type {
  KvAdministration,
  KvAdministrationCounters,
  Pinned,
  PinnedPrefixInfo,
  PinReport,
  Prefetched,
  PrefixLookup,
  PrefixRequest,
  RemovedBlocks,
  RemovedByPlace,
  TierClearOptions,
  TierPinsInfo,
} from './kv-administration-contract.ts';
import { checkRequest } from './prepare.ts';

export interface KvAdministrationHooks {
  nowMs(): number;
  /** @throws KvasirError if the engine is closed or broken. */
  checkRunning(): void;
  tokenize(prompt: GenerateRequest['prompt'], options: TokenizePromptOptions): Promise<Int32Array>;
  /** Starts a request that only loads. */
  load(request: GenerateRequest, signal: AbortSignal | undefined): AsyncIterableIterator<OutputDelta>;
  /** Blocks of the pool may have changed. */
  changed(): void;
}

export function kvAdministrationOf(
  parts: EngineParts,
  hooks: KvAdministrationHooks,
): EngineKvAdministration | undefined {
  return parts.prefixes === undefined ? undefined : new EngineKvAdministration(parts, parts.prefixes, hooks);
}

interface SignalOption {
  readonly signal?: AbortSignal;
}

interface PinOptions extends SignalOption {
  readonly ttlSeconds?: number;
  readonly places?: readonly string[];
}

interface PinToMake {
  readonly prompt: CachedPrompt;
  readonly name: string;
  readonly keys: readonly BlockKey[];
  readonly ttlSeconds: number;
}

const poolPlace = 'pool';
const defaultTtlSeconds = 3600;
const ttlMaxSeconds = 366 * 86_400;
/** How long a removal waits until blocks are saved that are just being saved, and would be stored after it. */
const savesTimeoutMs = 35_000;
const savesPollMs = 10;

/** See `KvAdministration`. */
export class EngineKvAdministration implements KvAdministration {
  readonly #parts: EngineParts;
  readonly #prefixes: Prefixes;
  readonly #hooks: KvAdministrationHooks;
  readonly #orders: Record<string, number> = byName();
  readonly #removedBlocks: Record<string, number> = byName();
  /** Names of tiers that are being attached. */
  readonly #attaching = new Set<string>();

  constructor(parts: EngineParts, prefixes: Prefixes, hooks: KvAdministrationHooks) {
    this.#parts = parts;
    this.#prefixes = prefixes;
    this.#hooks = hooks;
  }

  async lookup(prefix: PrefixRequest, { signal }: SignalOption = {}): Promise<PrefixLookup> {
    const prompt = await this.#promptOf(prefix, signal);
    this.#count('lookup');
    const hits = await this.#locate(prompt);
    const tokens: Record<string, number> = byName({ [poolPlace]: this.#inPool(prompt) });
    for (const { place, found } of hits)
      tokens[place] = this.#prefixes.cachedTokens(prompt, { usesPool: false, found });
    return {
      promptTokens: prompt.tokens.length,
      tokens,
      cachedTokens: this.#prefixes.cachedTokens(prompt, { usesPool: true, found: foundIn(hits) }),
      unanswered: hits.filter(({ isWhole }) => !isWhole).map(({ place }) => place),
    };
  }

  async prefetch(
    prefix: PrefixRequest,
    { to = poolPlace, signal }: { readonly to?: 'pool' | 'host'; readonly signal?: AbortSignal } = {},
  ): Promise<Prefetched> {
    const prompt = await this.#promptOf(prefix, signal);
    this.#tiers();
    this.#count('prefetch');
    return to === 'host' ? this.#fetch(prompt) : this.#load(prompt, prefix, signal);
  }

  async pin(
    prefix: PrefixRequest,
    { ttlSeconds = defaultTtlSeconds, places = [poolPlace], signal }: PinOptions = {},
  ): Promise<Pinned> {
    if (!(typeof ttlSeconds === 'number' && ttlSeconds > 0 && ttlSeconds <= ttlMaxSeconds))
      throw invalidParameter({
        parameter: 'ttlSeconds',
        expected: `a number of seconds up to ${ttlMaxSeconds}`,
        actual: `${ttlSeconds}`,
      });
    const prompt = await this.#promptOf(prefix, signal);
    const chosen = this.#chosen(places);
    this.#count('pin');
    const { name, keys } = this.#prefixes.pinOf(prompt);
    // First the tiers: if one of them cannot pin, nothing is pinned.
    const tiers = name === undefined ? {} : await this.#pinInTiers({ prompt, name, keys, ttlSeconds }, chosen);
    const ttlMs = ttlSeconds * 1000;
    const isInPool = chosen.includes(poolPlace);
    const { pin } = isInPool ? this.#prefixes.pin(prompt, ttlMs, this.#hooks.nowMs()) : { pin: undefined };
    this.#hooks.changed();
    const done = { promptTokens: prompt.tokens.length, neededBlocks: keys.length, tiers };
    return { ...done, ...withoutUndefined({ name, pin: pin && this.#infoOf(pin) }) };
  }

  async unpin(prefix: PrefixRequest | string): Promise<string | undefined> {
    this.#hooks.checkRunning();
    const name = typeof prefix === 'string' ? prefix : this.#prefixes.pinOf(await this.#promptOf(prefix)).name;
    this.#count('unpin');
    if (name === undefined) return undefined;
    let wasPinned = this.#prefixes.unpin(name) !== undefined;
    this.#hooks.changed();
    if (this.#hasTiers) {
      const { tiers } = await this.#order({ kind: 'unpin', pin: name });
      wasPinned ||= Object.values(tiers).some(({ blocks }) => blocks > 0);
    }
    return wasPinned ? name : undefined;
  }

  async tierPins(): Promise<Readonly<Record<string, TierPinsInfo>>> {
    this.#hooks.checkRunning();
    const { pins: byTier = {} } = this.#hasTiers ? await this.#order({ kind: 'pins' }) : {};
    return byEntries(
      Object.entries(byTier).map(([tier, { pins, ...counts }]) => [
        tier,
        {
          ...counts,
          pins: pins.map(({ name, blocks, ttlMs, leftMs }) => ({
            ...{ name, blocks, ttlSeconds: ttlMs / 1000 },
            secondsLeft: leftMs / 1000,
          })),
        },
      ]),
    );
  }

  pins(): PinReport {
    const { list, blockCount, blocksMax, expiredCount, evictedCount } = this.#prefixes.pins(this.#hooks.nowMs());
    return {
      pins: list.map((pin) => this.#infoOf(pin)),
      blocks: blockCount,
      blocksMax,
      expired: expiredCount,
      evicted: evictedCount,
    };
  }

  async remove(
    prefix: PrefixRequest,
    { places }: { readonly places?: readonly string[] } = {},
  ): Promise<RemovedByPlace> {
    const prompt = await this.#promptOf(prefix);
    const chosen = this.#chosen(places);
    this.#count('remove');
    const keys = this.#prefixes.blocksOf(prompt).map(({ key }) => key);
    const removed: Record<string, RemovedBlocks> = byName();
    if (chosen.includes(poolPlace)) removed[poolPlace] = this.#removeFromPool(prompt);
    const below = chosen.filter((place) => place !== poolPlace);
    if (below.length > 0 && keys.length > 0) {
      await this.#whenSaved(keys);
      Object.assign(removed, (await this.#order({ kind: 'remove', keys, tiers: below })).tiers);
      // A request may have loaded blocks into the pool meanwhile.
      if (chosen.includes(poolPlace)) removed[poolPlace] = again(removed[poolPlace]!, this.#removeFromPool(prompt));
    }
    for (const [place, { blocks }] of Object.entries(removed)) this.#countRemoved(place, blocks);
    return removed;
  }

  tiers(): readonly string[] {
    return this.#parts.connector?.tiers?.names ?? [];
  }

  async clearTier(tier: string, { cacheSalt, olderThanSeconds }: TierClearOptions = {}): Promise<RemovedBlocks> {
    this.#hooks.checkRunning();
    this.#checkTier(tier);
    this.#count('clear');
    const beforeMs = olderThanSeconds === undefined ? undefined : Date.now() - olderThanSeconds * 1000;
    const filter = withoutUndefined({ saltTag: saltTagOf(cacheSalt), beforeMs });
    const answer = await this.#order({ kind: 'clear', tier, filter });
    const work = ownValue(answer.tiers, tier) ?? noWork;
    this.#countRemoved(tier, work.blocks);
    return work;
  }

  async attachTier(tier: string, spec: string): Promise<void> {
    this.#hooks.checkRunning();
    const tiers = this.#tiers();
    // Also while another order attaches a tier of this name: else the end of the second would detach the first.
    if (tiers.names.includes(tier) || this.#attaching.has(tier)) throw tierNameTaken({ tier });
    this.#count('attach');
    this.#attaching.add(tier);
    // First beside the workers, where the settings are checked. Loads from it begin when the scheduler side knows it.
    try {
      await this.#order({ kind: 'attach', tier, spec });
      await tiers.attach(tier, spec);
    } catch (error) {
      // A rank may have opened it.
      await this.#order({ kind: 'detach', tier }).catch(() => undefined);
      throw error;
    } finally {
      this.#attaching.delete(tier);
    }
  }

  async detachTier(tier: string): Promise<RemovedBlocks> {
    this.#hooks.checkRunning();
    this.#checkTier(tier);
    if (this.#isHost(tier)) throw tierUnknown({ tier });
    this.#count('detach');
    // First beside the scheduler, so that no new load counts on it.
    this.#tiers().detach(tier);
    return ownValue((await this.#order({ kind: 'detach', tier })).tiers, tier) ?? noWork;
  }

  counters(): KvAdministrationCounters {
    return { orders: { ...this.#orders }, removedBlocks: { ...this.#removedBlocks } };
  }

  /** @throws KvasirError as `generate`. */
  async #promptOf(prefix: PrefixRequest, signal?: AbortSignal): Promise<CachedPrompt> {
    this.#hooks.checkRunning();
    const { tokenizer, model, adapters } = this.#parts;
    const { cacheSalt, adapter, prompt } = checkRequest(prefix, { tokenizer, model, adapters, drawSeed: () => 0n });
    const options = withoutUndefined({ addSpecial: prefix.addSpecial, parseSpecial: prefix.parseSpecial, signal });
    const tokens = prompt instanceof Int32Array ? prompt : await this.#hooks.tokenize(prefix.prompt, options);
    return { tokens, cacheSalt, adapter };
  }

  /** The pool and the tiers, or those of them that are named. */
  #chosen(places: readonly string[] | undefined): readonly string[] {
    const known = [poolPlace, ...this.tiers()];
    if (places !== undefined) checkIsList('places', places, 'a list of places');
    for (const place of places ?? []) if (!known.includes(place)) throw tierUnknown({ tier: place });
    return known.filter((place) => places === undefined || places.includes(place));
  }

  async #pinInTiers(
    { prompt, name, keys, ttlSeconds }: PinToMake,
    places: readonly string[],
  ): Promise<Pinned['tiers']> {
    const tiers = places.filter((place) => place !== poolPlace);
    if (tiers.length === 0) return {};
    const ttlMs = ttlSeconds * 1000;
    const answer = await this.#order({ kind: 'pin', pin: name, keys, ttlMs, tiers });
    const hits = await this.#locate(prompt);
    const pinned = tiers.map((tier) => {
      // Each rank pins the first blocks, and the rank with the fewest counts.
      const blocks = keys.length - (ownValue(answer.tiers, tier)?.failed ?? keys.length);
      const first = new Set(keys.slice(0, blocks));
      const found = hits.find(({ place }) => place === tier)?.found ?? [];
      return [tier, { blocks, storedBlocks: found.filter(({ key }) => first.has(key)).length }] as const;
    });
    return byEntries(pinned);
  }

  /** Loads into the pool. */
  async #load(prompt: CachedPrompt, prefix: PrefixRequest, signal: AbortSignal | undefined): Promise<Prefetched> {
    const tokensBefore = this.#inPool(prompt);
    const found = foundIn(await this.#locate(prompt));
    const part = this.#prefixes.loadablePart(prompt, { usesPool: true, found });
    let loadedTokens: Readonly<Record<string, number>> = byName();
    let failedBlocks = 0;
    if (part.length > 0 && this.#prefixes.cachedTokens(prompt, { usesPool: true, found }) > tokensBefore) {
      const { cacheSalt, lora } = prefix;
      const request = { prompt: part, params: { maxTokens: 0 }, ...withoutUndefined({ cacheSalt, lora }) };
      let last: OutputDelta | undefined;
      for await (const delta of this.#hooks.load(request, signal)) last = delta;
      const { finish, stats } = assertDefined(last, 'a request has an end');
      if (finish?.error !== undefined) throw finish.error;
      signal?.throwIfAborted();
      loadedTokens = stats.loadedTokens ?? {};
      failedBlocks = stats.failedLoads ?? 0;
    }
    const tokensAfter = this.#inPool(prompt);
    return { promptTokens: prompt.tokens.length, tokensBefore, tokensAfter, loadedTokens, failedBlocks };
  }

  /** Loads into host memory. */
  async #fetch(prompt: CachedPrompt): Promise<Prefetched> {
    const hits = await this.#locate(prompt);
    const inHost = (found: readonly KvBlock[]): number =>
      this.#prefixes.cachedTokens(prompt, { usesPool: false, found });
    const before = foundIn(hits.filter(({ place }) => this.#isHost(place)));
    const keys = foundIn(hits).map(({ key }) => key);
    const salt = withoutUndefined({ saltTag: saltTagOf(prompt.cacheSalt) });
    const answer = keys.length === 0 ? undefined : await this.#order({ kind: 'fetch', keys, ...salt });
    const { tiers = {}, fetched: byTier = {} } = answer ?? {};
    const fetched = new Set(Object.values(byTier).flat());
    const after = foundIn(hits).filter(({ key }) => fetched.has(key));
    return {
      promptTokens: prompt.tokens.length,
      tokensBefore: inHost(before),
      tokensAfter: inHost(after),
      loadedTokens: {},
      failedBlocks: Object.values(tiers).reduce((sum, { failed }) => sum + failed, 0),
    };
  }

  async #locate(prompt: CachedPrompt): Promise<readonly FoundIn[]> {
    const { tiers } = this.#parts.connector ?? {};
    const blocks = this.#prefixes.blocksOf(prompt);
    if (tiers === undefined || blocks.length === 0) return [];
    const hits = await tiers.locate(blocks.map(({ key }) => key));
    return hits.map(({ place, found }) => ({
      place,
      found: blocks.filter((_, i) => found[i] === true),
      isWhole: found.every((answer) => answer !== undefined),
    }));
  }

  #inPool(prompt: CachedPrompt): number {
    return this.#prefixes.cachedTokens(prompt, { usesPool: true, found: [] });
  }

  #removeFromPool(prompt: CachedPrompt): RemovedBlocks {
    const { removed: blocks, inUse } = this.#prefixes.remove(prompt);
    this.#hooks.changed();
    return { blocks, bytes: blocks * this.#parts.executor.kvCacheSpec.blockBytes, failed: 0, inUse };
  }

  async #whenSaved(keys: readonly BlockKey[]): Promise<void> {
    const untilMs = this.#hooks.nowMs() + savesTimeoutMs;
    while (this.#prefixes.areSaving(keys) && this.#hooks.nowMs() < untilMs) await delay(savesPollMs);
  }

  async #order(order: TierOrder): Promise<TierOrderAnswer> {
    const { executor } = this.#parts;
    const tiers = this.#tiers();
    const answer = await assertDefined(executor.administer, 'ranks with tiers take orders').call(executor, order);
    tiers.done(order, answer);
    return answer;
  }

  /** @throws KvasirError `tiersNotAdministered`. */
  #tiers(): TierAdministration {
    const { connector, executor } = this.#parts;
    if (connector?.tiers === undefined || executor.administer === undefined) throw tiersNotAdministered();
    return connector.tiers;
  }

  get #hasTiers(): boolean {
    const { connector, executor } = this.#parts;
    return connector?.tiers !== undefined && executor.administer !== undefined;
  }

  #isHost(tier: string): boolean {
    return this.#parts.connector?.placeKind?.(tier)?.medium === 'CPU';
  }

  #checkTier(tier: string): void {
    if (!this.#tiers().names.includes(tier)) throw tierUnknown({ tier: tier.slice(0, 100) });
  }

  #infoOf({ name, blocks, cachedBlocks, ttlMs, untilMs }: PinnedPrefix): PinnedPrefixInfo {
    const secondsLeft = Math.max(0, untilMs - this.#hooks.nowMs()) / 1000;
    return { name, blocks, cachedBlocks, ttlSeconds: ttlMs / 1000, secondsLeft };
  }

  #count(order: string): void {
    this.#orders[order] = (this.#orders[order] ?? 0) + 1;
  }

  #countRemoved(place: string, blocks: number): void {
    this.#removedBlocks[place] = (this.#removedBlocks[place] ?? 0) + blocks;
  }
}

/** The blocks of a prompt that a tier has. `isWhole`: the tier has answered for all blocks. */
interface FoundIn {
  readonly place: string;
  readonly found: readonly KvBlock[];
  readonly isWhole: boolean;
}

/** Each block once. */
const foundIn = (hits: readonly FoundIn[]): KvBlock[] => [
  ...new Map(hits.flatMap(({ found }) => found.map((block) => [block.key, block] as const))).values(),
];

const again = (first: RemovedBlocks, second: RemovedBlocks): RemovedBlocks => ({
  ...second,
  blocks: first.blocks + second.blocks,
  bytes: first.bytes + second.bytes,
});

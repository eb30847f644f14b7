import type { GenerateRequest } from './contract.ts';

/** A prompt as a request has it, whose cached blocks are meant. */
export type PrefixRequest = Pick<GenerateRequest, 'prompt' | 'parseSpecial' | 'addSpecial' | 'cacheSalt' | 'lora'>;

/** Where the KV of a prompt is. */
export interface PrefixLookup {
  readonly promptTokens: number;
  /**
   * By place, `pool` and the tiers: how many tokens a request with this prompt would not compute with the KV of this place alone. The last token
   * is always computed.
   */
  readonly tokens: Readonly<Record<string, number>>;
  /** The same with the KV of all places together. */
  readonly cachedTokens: number;
  /** Tiers that did not answer for some blocks. */
  readonly unanswered: readonly string[];
}

/** What a prefetch has done. */
export interface Prefetched {
  readonly promptTokens: number;
  /** Tokens that a request with this prompt would find in the pool, or in host memory, before and after. */
  readonly tokensBefore: number;
  readonly tokensAfter: number;
  /** Tokens that were loaded, by the tier that they came from; into the pool only. */
  readonly loadedTokens: Readonly<Record<string, number>>;
  /** Blocks whose load failed. */
  readonly failedBlocks: number;
}

/** A pinned prefix. */
export interface PinnedPrefixInfo {
  readonly name: string;
  /** Its blocks that are evicted last: the first ones, as many as the share of all pins has room for. */
  readonly blocks: number;
  /** Of these, the blocks that are in the pool now. The others are pinned as soon as a request computes or loads them. */
  readonly cachedBlocks: number;
  readonly ttlSeconds: number;
  /** Seconds until the pin ends, if no request uses the prefix. */
  readonly secondsLeft: number;
}

/** What a pin has done. */
export interface Pinned {
  readonly promptTokens: number;
  /** Blocks that a request with this prompt reads. */
  readonly neededBlocks: number;
  /** Of the pin, in all places. Absent: the prompt has no full block. */
  readonly name?: string;
  /** In the pool. Absent: nothing is pinned there. `places` does not name the pool, or other pins have the whole share. */
  readonly pin?: PinnedPrefixInfo;
  /** By the name of each tier that was asked. */
  readonly tiers: Readonly<Record<string, PinnedInTier>>;
}

/** What a pin has done in a tier. */
export interface PinnedInTier {
  /** Its blocks that the tier does not evict: the first ones, as many as the share of all pins has room for. */
  readonly blocks: number;
  /** Of these, the blocks that the tier has now. The others are kept as soon as they are stored there. */
  readonly storedBlocks: number;
}

/** The pinned prefixes, and how much of the pool they may have and have. */
export interface PinReport {
  readonly pins: readonly PinnedPrefixInfo[];
  /** Different blocks of all pins, and how many there may be. */
  readonly blocks: number;
  readonly blocksMax: number;
  /** Pins that ended because no request used them for their time to live, since the start. */
  readonly expired: number;
  /** How often a block of a pin was evicted, because requests needed all other blocks. */
  readonly evicted: number;
}

/** The pins of a tier, how many blocks they have and may have, and how many ended by their time to live since the start. */
export interface TierPinsInfo {
  readonly pins: readonly Omit<PinnedPrefixInfo, 'cachedBlocks'>[];
  readonly blocks: number;
  readonly blocksMax: number;
  readonly expired: number;
}

/** What was removed from one place. */
export interface RemovedBlocks {
  readonly blocks: number;
  readonly bytes: number;
  /** Blocks for which the tier failed: they may still be there. */
  readonly failed: number;
  /** Of the pool: blocks that requests or transfers use, which stay. */
  readonly inUse?: number;
  /** Of a tier: blocks that waited to be written and are dropped. */
  readonly dropped?: number;
}

/** By the name of the place: `pool` or a tier. */
export type RemovedByPlace = Readonly<Record<string, RemovedBlocks>>;

/** Without a field, all blocks of the model are meant, also those of other servers that share the tier. */
export interface TierClearOptions {
  readonly cacheSalt?: string;
  /** Only blocks that were stored (host, S3) or last used (disk, Redis) longer ago. */
  readonly olderThanSeconds?: number;
}

/**
 * Orders about cached KV: where it is, what stays, what goes. None of them changes a text: a request whose blocks are gone computes
 * them. Every call rejects with `engineClosed` or `engineBroken`, and calls with a prompt with the errors of `generate`.
 *
 * ```ts
 * const prefix = { prompt: longSystemPrompt };
 * await engine.kv?.prefetch(prefix);
 * await engine.kv?.pin(prefix, { ttlSeconds: 3600 });
 * ```
 */
export interface KvAdministration {
  lookup(prefix: PrefixRequest, options?: { readonly signal?: AbortSignal }): Promise<PrefixLookup>;
  /**
   * Loads the blocks that tiers have, before their request comes: into the pool, as a request that computes nothing, or into host
   * memory. Waits for its turn like other requests. Rejects with `tiersNotAdministered` if there are no tiers.
   */
  prefetch(
    prefix: PrefixRequest,
    options?: { readonly to?: 'pool' | 'host'; readonly signal?: AbortSignal },
  ): Promise<Prefetched>;
  /**
   * The pool evicts the blocks of this prefix after all others, until no request has used it for `ttlSeconds` (default 3600). A pin takes no
   * block from a request that needs it. Pins of all prompts together have at most `kvPinShare` of the blocks.
   *
   * `places`: `pool` (the default) and names of tiers. Host memory and disks do not evict the blocks, until no load or store has used them
   * there for `ttlSeconds`; pins have at most half of a tier. A pin moves no block. Rejects with `tierUnknown` if a tier evicts by itself.
   */
  pin(
    prefix: PrefixRequest,
    options?: { readonly ttlSeconds?: number; readonly places?: readonly string[]; readonly signal?: AbortSignal },
  ): Promise<Pinned>;
  /** By the prompt or the name of the pin, in all places. Resolves to the name; undefined: there was no such pin. */
  unpin(prefix: PrefixRequest | string): Promise<string | undefined>;
  /** Of the pool. */
  pins(): PinReport;
  /** Of each tier that can pin. */
  tierPins(): Promise<Readonly<Record<string, TierPinsInfo>>>;
  /** Removes the blocks of a prompt, also those that other prompts share. `places`: `pool` and names of tiers; default: all. */
  remove(prefix: PrefixRequest, options?: { readonly places?: readonly string[] }): Promise<RemovedByPlace>;
  /** Names of the tiers, in the order in which loads try them. */
  tiers(): readonly string[];
  clearTier(name: string, options?: TierClearOptions): Promise<RemovedBlocks>;
  /** `spec`: as in `tiers` of the settings, such as `disk:/var/cache/kvasir:100GiB`. Rejects if the tier cannot be opened. */
  attachTier(name: string, spec: string): Promise<void>;
  /** Loads under way fail over to other tiers or are computed. Writes that wait are dropped. Stored blocks stay where they are. */
  detachTier(name: string): Promise<RemovedBlocks>;
  /** Orders since the start, by kind, and what they removed, by place. */
  counters(): KvAdministrationCounters;
}

/** Orders since the start, for metrics. */
export interface KvAdministrationCounters {
  readonly orders: Readonly<Record<string, number>>;
  readonly removedBlocks: Readonly<Record<string, number>>;
}

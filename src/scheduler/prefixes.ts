import { type BlockKey, blockKey } from '../connector/block-key.ts';
import type { KvBlock } from '../connector/connector.ts';
import type { BlockPlace } from '../core/block-place.ts';
import { type BlockId, blockIndex, groupIndex } from '../core/ids.ts';
import type { AdapterRef } from '../core/request.ts';
import { TokenBuffer } from '../core/tokens.ts';
import type { KvCache } from '../kv/kv-cache.ts';
import type { KvRequest } from '../kv/kv-request.ts';
import { contentKey, type PinnedPrefix } from '../kv/pinned-prefixes.ts';
import { Proposal } from '../kv/proposal.ts';
import { removeCached } from '../kv/reset.ts';

/** A prompt, and what separates its cache from others (I10). */
export interface CachedPrompt {
  readonly tokens: Int32Array;
  readonly cacheSalt?: string | undefined;
  readonly adapter?: AdapterRef | undefined;
}

/** Which valid KV a question counts on. */
export interface CountedKv {
  readonly usesPool: boolean;
  /** Blocks of tiers. */
  readonly found: readonly BlockPlace[];
}

/** What a connector may store, and may store no more. */
export interface SavesOfPrefixes {
  /** Whether the block is being saved, or may be offered to be saved. */
  isSaving(key: BlockKey): boolean;
  /** These blocks are not offered any more. */
  removed(blocks: readonly BlockId[]): void;
}

/** What the pool did for a pin. */
export interface PinnedPrompt {
  /** Undefined: the prompt has no full block, or other pins use the whole share. */
  readonly pin: PinnedPrefix | undefined;
  /** Blocks that a request with this prompt reads. */
  readonly neededBlocks: number;
}

/**
 * The cached prefixes of prompts, for people who administer them. All questions are those of an admission (`Proposal`), for a
 * request that never starts. May be called at any time, also while a step is in flight.
 */
export class Prefixes {
  readonly #kv: KvCache;
  readonly #proposal: Proposal;
  readonly #saves: SavesOfPrefixes;

  constructor(kv: KvCache, saves: SavesOfPrefixes) {
    this.#kv = kv;
    this.#saves = saves;
    this.#proposal = new Proposal(kv.parts);
  }

  /** All full blocks of the prompt. None without prefix caching. */
  blocksOf(prompt: CachedPrompt): KvBlock[] {
    return this.#ask(prompt, (request) => {
      const blocks: KvBlock[] = [];
      for (let group = groupIndex(0); group < request.chains.length; group++)
        for (let index = blockIndex(0); index < request.chains[group]!.count; index++)
          blocks.push({ group, index, key: keyOf(request, { group, index }) });
      return blocks;
    });
  }

  /** The tokens that a request with this prompt would not compute. */
  cachedTokens(prompt: CachedPrompt, counted: CountedKv): number {
    return this.#ask(prompt, (request) => {
      const spans = this.#spans(request, counted);
      return spans.reduce((left, { start, end }) => left - (end - start), request.tokens.length);
    });
  }

  /** The prompt up to the first token that must be computed even with this KV, which is included: its plan needs all KV before it. */
  loadablePart(prompt: CachedPrompt, counted: CountedKv): Int32Array {
    const first = this.#ask(prompt, (request) => this.#spans(request, counted)[0]!.start);
    return first === 0 ? new Int32Array(0) : prompt.tokens.subarray(0, first + 1);
  }

  /** Pins the blocks that a request with this prompt reads if all of them are cached: the pool evicts them after all others. */
  pin(prompt: CachedPrompt, ttlMs: number, nowMs: number): PinnedPrompt {
    this.#kv.parts.pins.setTime(nowMs);
    return this.#ask(prompt, (request) => {
      const places = this.#needed(request);
      const keys = places.map(({ group, index }) => contentKey(group, request.chains[group]!.words, index));
      const name = pinName(request);
      const pin = name === undefined ? undefined : this.#kv.parts.pins.pin({ name, keys, ttlMs }, nowMs);
      return { pin, neededBlocks: keys.length };
    });
  }

  /** The name of the prompt's pin, and the blocks that a request with it reads. No name: the prompt has no full block. */
  pinOf(prompt: CachedPrompt): { readonly name: string | undefined; readonly keys: readonly BlockKey[] } {
    return this.#ask(prompt, (request) => ({
      name: pinName(request),
      keys: this.#needed(request).map((place) => keyOf(request, place)),
    }));
  }

  /** Undefined: the prompt is not pinned. */
  unpin(prompt: CachedPrompt | string): string | undefined {
    const name = typeof prompt === 'string' ? prompt : this.#ask(prompt, pinName);
    return name !== undefined && this.#kv.parts.pins.unpin(name) ? name : undefined;
  }

  /** Available blocks that are evicted last. */
  get protectedCount(): number {
    return this.#kv.parts.pool.protectedCount;
  }

  pins(nowMs: number): PinnedPrefixesReport {
    const { pins, pool } = this.#kv.parts;
    pins.setTime(nowMs);
    const { blockCount, blocksMax, expiredCount } = pins;
    return { list: pins.list(), blockCount, blocksMax, expiredCount, evictedCount: pool.protectedEvictions };
  }

  areSaving(keys: readonly BlockKey[]): boolean {
    return keys.some((key) => this.#saves.isSaving(key));
  }

  /** Removes the prompt's blocks from the prefix cache. Blocks that requests or transfers use stay. */
  remove(prompt: CachedPrompt): { readonly removed: number; readonly inUse: number } {
    const keys = this.#ask(prompt, (request) => {
      const all = new Set<string>();
      for (let group = groupIndex(0); group < request.chains.length; group++)
        for (let index = blockIndex(0); index < request.chains[group]!.count; index++)
          all.add(contentKey(group, request.chains[group]!.words, index));
      return all;
    });
    const { removed, inUse } = removeCached(this.#kv.parts, keys);
    this.#saves.removed(removed);
    return { removed: removed.length, inUse };
  }

  #spans(request: KvRequest, { usesPool, found }: CountedKv) {
    this.#proposal.build(request, found, usesPool);
    return this.#proposal.preview(request).spans;
  }

  /** In the order of their last tokens. */
  #needed(request: KvRequest): BlockPlace[] {
    if (!this.#kv.parts.enablePrefixCaching) return [];
    this.#proposal.build(request, this.#proposal.lacking(request));
    const endOf = ({ group, index }: BlockPlace): number => (index + 1) * this.#kv.parts.spec.groups[group]!.blockSize;
    return this.#proposal
      .chosen()
      .filter(({ group, index }) => index < request.chains[group]!.count)
      .sort((a, b) => endOf(a) - endOf(b));
  }

  #ask<T>({ tokens, cacheSalt, adapter }: CachedPrompt, question: (request: KvRequest) => T): T {
    const request = this.#kv.open(new TokenBuffer(tokens), cacheSalt, adapter);
    try {
      return question(request);
    } finally {
      this.#kv.close(request);
    }
  }
}

export interface PinnedPrefixesReport {
  readonly list: readonly PinnedPrefix[];
  /** Different blocks of all pins, and how many there may be. */
  readonly blockCount: number;
  readonly blocksMax: number;
  readonly expiredCount: number;
  /** How often a block of a pinned prefix was evicted, because no other block was available. */
  readonly evictedCount: number;
}

function keyOf({ chains }: KvRequest, { group, index }: BlockPlace): BlockKey {
  return blockKey(group, chains[group]!.words, index);
}

/** By the digest of the last full block, which depends on all tokens before, the salt and the adapter. */
function pinName(request: KvRequest): string | undefined {
  const chain = request.chains.reduce((a, b) => (b.count * b.blockSize > a.count * a.blockSize ? b : a));
  if (chain.count === 0) return undefined;
  const group = groupIndex(request.chains.indexOf(chain));
  return `pin-${keyOf(request, { group, index: blockIndex(chain.count - 1) }).slice(2, 18)}`;
}

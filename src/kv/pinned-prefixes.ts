import { PinnedSets, type SetToPin } from '../base/pinned-sets.ts';
import { type BlockId, type BlockIndex, blockIndex, type GroupIndex } from '../core/ids.ts';
import { DIGEST_WORDS } from './block-hash.ts';
import type { BlockPool } from './block-pool.ts';
import type { PrefixIndex } from './prefix-index.ts';

/** The key of a block as a text, for sets: its group and its digest. */
export type ContentKey = string;

export function contentKey(group: GroupIndex, words: Uint32Array, index: BlockIndex): ContentKey {
  const units: number[] = [group];
  for (let i = index * DIGEST_WORDS; i < (index + 1) * DIGEST_WORDS; i++)
    units.push(words[i]! & 0xffff, words[i]! >>> 16);
  return String.fromCharCode(...units);
}

/** A prefix to pin: the blocks that a request with it reads. */
export type PrefixToPin = SetToPin<ContentKey>;

export interface PinnedPrefix {
  readonly name: string;
  /** Its first blocks, as many as the bound of all pins allows. */
  readonly blocks: number;
  /** Of these, the blocks that the prefix cache has now. */
  readonly cachedBlocks: number;
  readonly untilMs: number;
  readonly ttlMs: number;
}

/**
 * Prefixes whose cached blocks the pool evicts last. A pin is only an order of eviction: the blocks stay available. So a
 * request is admitted, preempted and ended exactly as without pins, and the pool never has too few blocks because of a pin.
 * Content that is not cached yet is protected as soon as it is.
 */
export class PinnedPrefixes {
  readonly #pool: BlockPool;
  readonly #cached: PrefixIndex;
  readonly #pins: PinnedSets<ContentKey>;

  /** `blocksMax`: of all pins together; further blocks are not protected. */
  constructor(pool: BlockPool, cached: PrefixIndex, blocksMax: number) {
    this.#pool = pool;
    this.#cached = cached;
    this.#pins = new PinnedSets(blocksMax);
    pool.isProtected = (block) => {
      const key = this.#pins.size === 0 ? undefined : this.#keyOf(block);
      return key !== undefined && this.#pins.has(key);
    };
  }

  get size(): number {
    return this.#pins.size;
  }

  /** Different blocks of all pins, cached or not. */
  get blockCount(): number {
    return this.#pins.keyCount;
  }

  get blocksMax(): number {
    return this.#pins.keysMax;
  }

  /** Pins that ended because their time to live was over. */
  get expiredCount(): number {
    return this.#pins.expiredCount;
  }

  /** O(blocks of the pool). */
  list(): readonly PinnedPrefix[] {
    if (this.#pins.size === 0) return [];
    const cached = new Set<ContentKey>();
    for (let block = 1 as BlockId; block < this.#pool.blockCount; block++) {
      const key = this.#keyOf(block);
      if (key !== undefined) cached.add(key);
    }
    return this.#pins.list().map(({ name, keys, untilMs, ttlMs }) => ({
      ...{ name, untilMs, ttlMs, blocks: keys.length },
      cachedBlocks: keys.filter((key) => cached.has(key)).length,
    }));
  }

  /** Pins the first blocks of the prefix, as many as there is room for; undefined: none. Replaces the pin of this name. */
  pin(prefix: PrefixToPin, nowMs: number): PinnedPrefix | undefined {
    this.#pins.pin(prefix, nowMs);
    this.#pool.sortCached();
    return this.list().find(({ name }) => name === prefix.name);
  }

  /** False: there is no such pin. */
  unpin(name: string): boolean {
    const wasPinned = this.#pins.unpin(name);
    if (wasPinned) this.#pool.sortCached();
    return wasPinned;
  }

  /** A request has found this cached block: the time to live of its pins begins again. */
  used(block: BlockId): void {
    const key = this.#pins.size === 0 ? undefined : this.#keyOf(block);
    if (key !== undefined) this.#pins.used(key);
  }

  /** Called with the time of each plan, before blocks are allocated. */
  setTime(nowMs: number): void {
    if (this.#pins.size === 0) return;
    const hasExpired = this.#pins.setTime(nowMs);
    if (hasExpired) this.#pool.sortCached();
  }

  checkInvariants(): void {
    this.#pins.checkInvariants();
  }

  /** Undefined: the block is not cached. */
  #keyOf(block: BlockId): ContentKey | undefined {
    const group = this.#cached.groupOf(block);
    return group === undefined ? undefined : contentKey(group, this.#cached.digestOf(block), blockIndex(0));
  }
}

import { assert } from '../base/assert.ts';
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

/** A prefix to pin. */
export interface PrefixToPin {
  /** Equal prefixes have equal names. */
  readonly name: string;
  /** The blocks that a request with this prefix reads, in the order in which they are worth keeping. */
  readonly keys: readonly ContentKey[];
  readonly ttlMs: number;
}

export interface PinnedPrefix {
  readonly name: string;
  /** Its first blocks, as many as the bound of all pins allows. */
  readonly blocks: number;
  /** Of these, the blocks that the prefix cache has now. */
  readonly cachedBlocks: number;
  readonly untilMs: number;
  readonly ttlMs: number;
}

interface Pin {
  readonly name: string;
  readonly keys: readonly ContentKey[];
  readonly ttlMs: number;
  untilMs: number;
  isUsed: boolean;
}

/**
 * Prefixes whose cached blocks the pool evicts last. A pin is only an order of eviction: the blocks stay available. So a
 * request is admitted, preempted and ended exactly as without pins, and the pool never has too few blocks because of a pin.
 * Content that is not cached yet is protected as soon as it is.
 */
export class PinnedPrefixes {
  readonly #pool: BlockPool;
  readonly #cached: PrefixIndex;
  readonly #blocksMax: number;
  readonly #pins = new Map<string, Pin>();
  /** The pins that have each block. */
  readonly #pinsOf = new Map<ContentKey, Set<Pin>>();
  #expired = 0;

  /** `blocksMax`: of all pins together; further blocks are not protected. */
  constructor(pool: BlockPool, cached: PrefixIndex, blocksMax: number) {
    this.#pool = pool;
    this.#cached = cached;
    this.#blocksMax = blocksMax;
    pool.isProtected = (block) => this.#pins.size > 0 && this.#pinsWith(block) !== undefined;
  }

  get size(): number {
    return this.#pins.size;
  }

  /** Different blocks of all pins, cached or not. */
  get blockCount(): number {
    return this.#pinsOf.size;
  }

  get blocksMax(): number {
    return this.#blocksMax;
  }

  /** Pins that ended because their time to live was over. */
  get expiredCount(): number {
    return this.#expired;
  }

  /** O(blocks of the pool). */
  list(): readonly PinnedPrefix[] {
    if (this.#pins.size === 0) return [];
    const cached = new Set<ContentKey>();
    for (let block = 1 as BlockId; block < this.#pool.blockCount; block++) {
      const key = this.#keyOf(block);
      if (key !== undefined) cached.add(key);
    }
    return Array.from(this.#pins.values(), ({ name, keys, untilMs, ttlMs }) => ({
      ...{ name, untilMs, ttlMs, blocks: keys.length },
      cachedBlocks: keys.filter((key) => cached.has(key)).length,
    }));
  }

  /** Pins the first blocks of the prefix, as many as there is room for; undefined: none. Replaces the pin of this name. */
  pin({ name, keys: wanted, ttlMs }: PrefixToPin, nowMs: number): PinnedPrefix | undefined {
    this.#remove(name);
    const keys: ContentKey[] = [];
    let room = this.#blocksMax - this.#pinsOf.size;
    for (const key of wanted) {
      if (!this.#pinsOf.has(key) && room-- <= 0) break;
      keys.push(key);
    }
    if (keys.length > 0) {
      const pin: Pin = { name, keys, untilMs: nowMs + ttlMs, ttlMs, isUsed: false };
      this.#pins.set(name, pin);
      for (const key of keys) {
        const pins = this.#pinsOf.get(key);
        if (pins === undefined) this.#pinsOf.set(key, new Set([pin]));
        else pins.add(pin);
      }
    }
    this.#pool.sortIdle();
    return this.list().find((pin) => pin.name === name);
  }

  /** False: there is no such pin. */
  unpin(name: string): boolean {
    const wasPinned = this.#remove(name);
    if (wasPinned) this.#pool.sortIdle();
    return wasPinned;
  }

  /** A request has found this cached block: the time to live of its pins begins again. */
  used(block: BlockId): void {
    if (this.#pins.size === 0) return;
    for (const pin of this.#pinsWith(block) ?? []) pin.isUsed = true;
  }

  /** Called with the time of each plan, before blocks are allocated. */
  setTime(nowMs: number): void {
    if (this.#pins.size === 0) return;
    let hasExpired = false;
    for (const pin of [...this.#pins.values()]) {
      if (pin.isUsed) pin.untilMs = nowMs + pin.ttlMs;
      pin.isUsed = false;
      if (pin.untilMs > nowMs) continue;
      this.#remove(pin.name);
      this.#expired++;
      hasExpired = true;
    }
    if (hasExpired) this.#pool.sortIdle();
  }

  checkInvariants(): void {
    let count = 0;
    for (const [key, pins] of this.#pinsOf) {
      assert(pins.size > 0, 'a block is protected without a pin');
      for (const pin of pins)
        assert(this.#pins.get(pin.name) === pin && pin.keys.includes(key), 'a pin that has ended protects a block');
      count += pins.size;
    }
    for (const { keys } of this.#pins.values()) count -= keys.length;
    assert(count === 0, 'a pinned block is not protected');
    assert(
      this.#pinsOf.size <= this.#blocksMax,
      `${this.#pinsOf.size} blocks are pinned, at most ${this.#blocksMax} may be`,
    );
  }

  #pinsWith(block: BlockId): ReadonlySet<Pin> | undefined {
    const key = this.#keyOf(block);
    return key === undefined ? undefined : this.#pinsOf.get(key);
  }

  /** Undefined: the block is not cached. */
  #keyOf(block: BlockId): ContentKey | undefined {
    const group = this.#cached.groupOf(block);
    return group === undefined ? undefined : contentKey(group, this.#cached.digestOf(block), blockIndex(0));
  }

  #remove(name: string): boolean {
    const pin = this.#pins.get(name);
    if (pin === undefined) return false;
    this.#pins.delete(name);
    for (const key of pin.keys) {
      const pins = this.#pinsOf.get(key)!;
      pins.delete(pin);
      if (pins.size === 0) this.#pinsOf.delete(key);
    }
    return true;
  }
}

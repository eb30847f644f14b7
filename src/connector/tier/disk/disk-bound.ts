import { assert, assertDefined } from '../../../base/assert.ts';
import type { BlockKey } from '../../block-key.ts';
import { LruBytes } from '../lru-bytes.ts';

/** Bytes that are kept for a block while it is written, and the blocks that make room for it. */
export interface Reservation {
  readonly key: BlockKey;
  /** To be removed from the disk before the block is written, least recently used first. */
  readonly victims: readonly BlockKey[];
  /** Whether the block was unknown before. */
  readonly isNew: boolean;
}

/** A reservation without the victims that were gone meanwhile. */
interface OpenStore {
  readonly addedBytes: number;
  readonly victims: Set<BlockKey>;
}

/**
 * The known blocks of a folder, least recently used first, and the bound of their bytes. It does no I/O.
 *
 *     unknown --reserve--> storing --stored--> kept --chosen by another's `reserve`--> victim --stored--> unknown
 *                              \--failed--> unknown                                        \--failed--> kept
 *
 * The bytes of a block are counted from `reserve` on. The bytes of a victim are room for the block whose store removes it, and
 * for no other block. So the known files never have more than `maxBytes`, with any number of stores at once, whichever of
 * them fail.
 */
export class DiskBound {
  readonly #maxBytes: number;
  readonly #lru = new LruBytes<BlockKey>();
  /** Blocks that are being stored. They are no victims. */
  readonly #open = new Map<BlockKey, OpenStore>();
  /** Distinguishes a block from the same block after it was removed and stored again. */
  readonly #stamps = new Map<BlockKey, number>();
  #lastStamp = 0;
  #evicted: BlockKey[] = [];
  #evictedCount = 0;

  constructor(maxBytes: number) {
    assert(maxBytes >= 0, `a bound of ${maxBytes} bytes`);
    this.#maxBytes = maxBytes;
  }

  /** With the bytes of blocks that are being stored, and of victims that may not be removed yet. */
  get totalBytes(): number {
    return this.#lru.totalBytes;
  }

  get count(): number {
    return this.#lru.count;
  }

  get evictedCount(): number {
    return this.#evictedCount;
  }

  has(key: BlockKey): boolean {
    return this.#lru.has(key);
  }

  /** A block was found in the folder. A known block keeps its place in the order. */
  found(key: BlockKey, bytes: number): void {
    if (!this.#lru.has(key)) this.#add(key, bytes);
  }

  /** A block was loaded. */
  used(key: BlockKey, bytes: number): void {
    if (!this.#lru.touch(key)) this.#add(key, bytes);
  }

  /** Blocks that are stored later have larger stamps. */
  get lastStamp(): number {
    return this.#lastStamp;
  }

  /** Before a call that may find the block gone: for `gone`. */
  stampOf(key: BlockKey): number | undefined {
    return this.#stamps.get(key);
  }

  /**
   * A block was not in the folder at a time after `stampOf`. No effect on a block that is being stored, or was stored since:
   * its bytes stay counted.
   */
  gone(key: BlockKey, stamp: number | undefined): void {
    if (this.#open.has(key) || this.#stamps.get(key) !== stamp) return;
    for (const { victims } of this.#open.values()) victims.delete(key);
    this.#drop(key);
  }

  /** An administrator has removed the block. Its bytes stay counted while it is being stored. */
  cleared(key: BlockKey): void {
    const wasKnown = this.#lru.has(key);
    this.gone(key, this.#stamps.get(key));
    if (wasKnown && !this.#lru.has(key)) this.#evicted.push(key);
  }

  /**
   * Counts the block's bytes and chooses blocks to remove, so that all of them together have at most `maxBytes`.
   * Undefined, with no effect: too many of the others are being stored. `isFull`: the disk has no room, so at least as many
   * bytes are to be removed as the block has.
   */
  reserve(key: BlockKey, bytes: number, { isFull = false } = {}): Reservation | undefined {
    assert(!this.#open.has(key), `block ${key} is being stored already`);
    // The file is about to be removed: it can be written after that.
    if (this.#isVictim(key)) return undefined;
    const isNew = !this.#lru.touch(key);
    const addedBytes = isNew ? bytes : 0;
    const tooMany = Math.max(this.#bytesAtMost() + addedBytes - this.#maxBytes, isFull ? bytes : 0);
    const victims = this.#choose(tooMany, key);
    if (victims === undefined) return undefined;
    if (isNew) this.#add(key, bytes);
    else this.#stamps.set(key, ++this.#lastStamp);
    this.#open.set(key, { addedBytes, victims: new Set(victims) });
    return { key, victims, isNew };
  }

  /** The block is in the folder, and its victims are not. */
  stored({ key }: Reservation): void {
    this.#removed(this.#end(key));
  }

  /** The block was in the folder already: nothing was written or removed. */
  alreadyStored({ key }: Reservation): void {
    this.#end(key);
  }

  /** The block was not written. Some victims may be removed: they are counted until a load or the next scan shows it. */
  failed({ key, isNew }: Reservation): void {
    this.#end(key);
    if (isNew) this.#drop(key);
  }

  /** The disk had no room for the block, after its victims were removed. */
  diskFull({ key, isNew }: Reservation): void {
    this.#removed(this.#end(key));
    if (isNew) this.#drop(key);
  }

  takeEvicted(): readonly BlockKey[] {
    const evicted = this.#evicted;
    this.#evicted = [];
    return evicted;
  }

  checkInvariants(): void {
    this.#lru.checkInvariants();
    assert(this.#stamps.size === this.#lru.count, `${this.#stamps.size} stamps for ${this.#lru.count} blocks`);
    const seen = new Set<BlockKey>();
    for (const [key, { victims }] of this.#open) {
      assert(this.#lru.has(key), `block ${key} is being stored, and its bytes are not counted`);
      for (const victim of victims) {
        assert(!this.#open.has(victim), `block ${victim} is being stored and removed`);
        assert(!seen.has(victim), `block ${victim} makes room for two blocks`);
        assert(this.#lru.has(victim), `block ${victim} is to be removed, and its bytes are not counted`);
        seen.add(victim);
      }
    }
  }

  /** The largest number of bytes that the folder can have while stores are open, for every order and outcome of them. */
  #bytesAtMost(): number {
    let bytes = this.#lru.totalBytes;
    for (const { addedBytes, victims } of this.#open.values()) {
      let victimBytes = 0;
      for (const victim of victims) victimBytes += this.#bytesOf(victim);
      bytes -= Math.min(addedBytes, victimBytes);
    }
    return bytes;
  }

  /** The least recently used blocks with at least `bytes`; undefined if there are not enough. */
  #choose(bytes: number, stored: BlockKey): BlockKey[] | undefined {
    const chosen: BlockKey[] = [];
    let rest = bytes;
    for (const key of this.#lru.names()) {
      if (rest <= 0) break;
      if (key === stored || this.#open.has(key) || this.#isVictim(key)) continue;
      chosen.push(key);
      rest -= this.#bytesOf(key);
    }
    return rest <= 0 ? chosen : undefined;
  }

  #isVictim(key: BlockKey): boolean {
    for (const { victims } of this.#open.values()) if (victims.has(key)) return true;
    return false;
  }

  #end(key: BlockKey): ReadonlySet<BlockKey> {
    const { victims } = assertDefined(this.#open.get(key), `block ${key} is not being stored`);
    assert(this.#lru.has(key), `block ${key} was stored, and its bytes are not counted`);
    this.#open.delete(key);
    return victims;
  }

  #removed(victims: ReadonlySet<BlockKey>): void {
    for (const victim of victims) {
      this.#drop(victim);
      this.#evicted.push(victim);
      this.#evictedCount++;
    }
  }

  #add(key: BlockKey, bytes: number): void {
    assert(!this.#lru.has(key), `block ${key} is counted already`);
    this.#lru.set(key, bytes);
    this.#stamps.set(key, ++this.#lastStamp);
  }

  #drop(key: BlockKey): void {
    const wasKnown = this.#lru.delete(key);
    assert(this.#stamps.delete(key) === wasKnown, `block ${key} has a stamp if and only if its bytes are counted`);
  }

  #bytesOf(key: BlockKey): number {
    return assertDefined(this.#lru.bytesOf(key), `block ${key} is not known`);
  }
}

import { assert, assertDefined } from '../../../base/assert.ts';
import type { BlockKey } from '../../block-key.ts';
import type { SaltTag } from '../../salt-tag.ts';
import { LruBytes } from '../lru-bytes.ts';
import type { SaltBytes } from '../salt-bytes.ts';
import type { TierPins } from '../tier-pins.ts';

/** Bytes that are kept for a block while it is written, and the blocks that make room for it. */
export interface Reservation {
  readonly key: BlockKey;
  /** To be removed from the disk before the block is written: of its cache salt first, least recently used first. */
  readonly victims: readonly BlockKey[];
  /** Whether the block was unknown before. */
  readonly isNew: boolean;
}

/** What is kept beside the order of use. */
export interface DiskBoundRules {
  /** Counts the blocks of each cache salt, and has their quota. */
  readonly salts?: SaltBytes<BlockKey> | undefined;
  /** These blocks are no victims. */
  readonly pins?: TierPins | undefined;
}

interface ReserveOptions {
  /** The disk has no room, so at least as many bytes are to be removed as the block has. */
  readonly isFull?: boolean;
  readonly saltTag?: SaltTag | undefined;
}

interface NewBlock extends Required<Pick<ReserveOptions, 'isFull'>>, Pick<ReserveOptions, 'saltTag'> {
  readonly key: BlockKey;
  readonly bytes: number;
  /** Not counted yet. */
  readonly addedBytes: number;
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
 * for no other block. So the known files never have more than `maxBytes`, and those of one cache salt not more than its quota, with
 * any number of stores at once, whichever of them fail. Files of other processes that are found later may exceed both, until
 * `overQuota` and the next stores remove as many.
 */
export class DiskBound {
  readonly #maxBytes: number;
  readonly #salts: SaltBytes<BlockKey> | undefined;
  readonly #pins: TierPins | undefined;
  readonly #lru = new LruBytes<BlockKey>();
  /** Blocks that are being stored. They are no victims. */
  readonly #open = new Map<BlockKey, OpenStore>();
  /** Distinguishes a block from the same block after it was removed and stored again. */
  readonly #stamps = new Map<BlockKey, number>();
  #lastStamp = 0;
  #evicted: BlockKey[] = [];
  #evictedCount = 0;
  /** Pinned blocks that a choice of victims has passed. */
  #passed: BlockKey[] = [];
  readonly #isEvictable = (key: BlockKey): boolean => {
    if (this.#pins?.keeps(key) !== true) return !this.#open.has(key) && !this.#isVictim(key);
    this.#passed.push(key);
    return false;
  };

  constructor(maxBytes: number, { salts, pins }: DiskBoundRules = {}) {
    assert(maxBytes >= 0, `a bound of ${maxBytes} bytes`);
    this.#maxBytes = maxBytes;
    this.#salts = salts;
    this.#pins = pins;
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
  found(key: BlockKey, bytes: number, saltTag?: SaltTag): void {
    if (!this.#lru.has(key)) this.#add(key, bytes, saltTag);
  }

  /** A block was loaded. */
  used(key: BlockKey, bytes: number, saltTag?: SaltTag): void {
    if (this.#lru.touch(key)) this.#salts?.touch(key);
    else this.#add(key, bytes, saltTag);
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

  /** Blocks to remove, because other processes have stored more blocks of a salt than its quota allows; least recently used first. */
  overQuota(): BlockKey[] {
    const salts = this.#salts;
    if (salts === undefined) return [];
    this.#pins?.expire();
    const excess = (tag: SaltTag): number => this.#bytesAtMost(tag) - salts.quotaBytes;
    const chosen = [...salts.tags()].flatMap((tag) => salts.oldest(tag, excess(tag), this.#isEvictable) ?? []);
    this.#usePassed();
    return chosen;
  }

  /** A block of `overQuota` was removed. `stamp`: of the time before the removal. */
  trimmed(key: BlockKey, stamp: number | undefined): void {
    if (this.#dropEvicted(key, stamp)) this.#evictedCount++;
  }

  /** An administrator has removed the block. Its bytes stay counted while it is being stored. */
  cleared(key: BlockKey): void {
    this.#dropEvicted(key, this.#stamps.get(key));
  }

  /**
   * Counts the block's bytes and chooses blocks to remove, so that those of its cache salt together have at most their quota, and all blocks
   * at most `maxBytes`. Undefined, with no effect: too many of the others are being stored, or are pinned.
   */
  reserve(key: BlockKey, bytes: number, { isFull = false, saltTag }: ReserveOptions = {}): Reservation | undefined {
    assert(!this.#open.has(key), `block ${key} is being stored already`);
    // The file is about to be removed: it can be written after that.
    if (this.#isVictim(key)) return undefined;
    const isNew = !this.#lru.touch(key);
    if (!isNew) this.#salts?.touch(key);
    const addedBytes = isNew ? bytes : 0;
    const victims = this.#chooseVictims({ key, bytes, addedBytes, isFull, saltTag });
    this.#usePassed();
    if (victims === undefined) return undefined;
    if (isNew) this.#add(key, bytes, saltTag);
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
    this.#salts?.checkInvariants();
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

  /**
   * The largest number of bytes that the folder, or the blocks of one salt in it, can have while stores are open, for every order and outcome
   * of them.
   */
  #bytesAtMost(saltTag?: SaltTag): number {
    const isCounted = (key: BlockKey): boolean => saltTag === undefined || this.#salts!.tagOf(key) === saltTag;
    let bytes = saltTag === undefined ? this.#lru.totalBytes : this.#salts!.bytesOf(saltTag);
    for (const [key, { addedBytes, victims }] of this.#open) {
      if (!isCounted(key)) continue;
      let victimBytes = 0;
      for (const victim of victims) if (isCounted(victim)) victimBytes += this.#bytesOf(victim);
      bytes -= Math.min(addedBytes, victimBytes);
    }
    return bytes;
  }

  /** Those of the same salt that make room within its quota, then any; undefined: there are not enough. */
  #chooseVictims({ key, bytes, addedBytes, isFull, saltTag }: NewBlock): BlockKey[] | undefined {
    this.#pins?.expire();
    let ofSalt: BlockKey[] | undefined = [];
    if (this.#salts !== undefined && saltTag !== undefined) {
      const tooMany = this.#bytesAtMost(saltTag) + addedBytes - this.#salts.quotaBytes;
      ofSalt = this.#salts.oldest(saltTag, tooMany, (other) => other !== key && this.#isEvictable(other));
    }
    if (ofSalt === undefined) return undefined;
    const room = ofSalt.reduce((sum, victim) => sum + this.#bytesOf(victim), 0);
    const tooMany = Math.max(this.#bytesAtMost() + addedBytes - this.#maxBytes, isFull ? bytes : 0) - room;
    const isChosen = (other: BlockKey): boolean => ofSalt.includes(other);
    const others = this.#lru.oldest(tooMany, (other) => other !== key && !isChosen(other) && this.#isEvictable(other));
    return others === undefined ? undefined : [...ofSalt, ...others];
  }

  /** Pinned blocks count as used now, so that the next choices do not pass them again. */
  #usePassed(): void {
    for (const key of this.#passed) {
      this.#lru.touch(key);
      this.#salts?.touch(key);
    }
    this.#passed = [];
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

  #dropEvicted(key: BlockKey, stamp: number | undefined): boolean {
    if (!this.#lru.has(key)) return false;
    this.gone(key, stamp);
    if (this.#lru.has(key)) return false;
    this.#evicted.push(key);
    return true;
  }

  #add(key: BlockKey, bytes: number, saltTag: SaltTag | undefined): void {
    assert(!this.#lru.has(key), `block ${key} is counted already`);
    this.#lru.set(key, bytes);
    this.#salts?.add(key, bytes, saltTag);
    this.#stamps.set(key, ++this.#lastStamp);
  }

  #drop(key: BlockKey): void {
    const wasKnown = this.#lru.delete(key);
    this.#salts?.delete(key);
    assert(this.#stamps.delete(key) === wasKnown, `block ${key} has a stamp if and only if its bytes are counted`);
  }

  #bytesOf(key: BlockKey): number {
    return assertDefined(this.#lru.bytesOf(key), `block ${key} is not known`);
  }
}

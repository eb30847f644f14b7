import { assert } from '../../../base/assert.ts';
import type { BlockKey } from '../../block-key.ts';
import { LruBytes } from '../lru-bytes.ts';
import { countOfShortKeys, parseObjectName, type ShortKey, shortKeyAt, shortKeyOf } from './object-name.ts';

/** An object of the bucket with one or more blocks. */
export interface StoredObject {
  /** Without the folder. */
  readonly name: string;
  readonly shortKeys: string;
  bytes: number;
  /** How many blocks are found in this object. The others are in a newer object too, or are corrupt. */
  found: number;
  /** The last listing that had the object, or that began before the object was added. */
  seenBy: number;
  /** The blocks' keys, if this tier has written the object. A listing has only short keys. */
  readonly keys?: readonly BlockKey[];
}

export interface StoredPlace {
  readonly object: StoredObject;
  /** The position of the block in the object. */
  readonly slot: number;
}

/** A block takes about 170 bytes of the index. */
const blockCountMaxDefault = 4 * 1024 ** 2;

/**
 * The blocks that are known to be in the bucket, and the objects in the order of their last use by this tier. An index with
 * more than `blockCountMax` blocks forgets the objects that were not used for the longest time: their blocks are misses.
 */
export class ObjectIndex {
  readonly #objects = new Map<string, StoredObject>();
  readonly #blocks = new Map<ShortKey, StoredPlace>();
  readonly #lru = new LruBytes<string>();
  /** Objects that were removed while a listing runs. */
  readonly #removed = new Set<string>();
  #listings = 0;
  readonly #blockCountMax: number;

  constructor(blockCountMax = blockCountMaxDefault) {
    this.#blockCountMax = blockCountMax;
  }

  get objectCount(): number {
    return this.#objects.size;
  }

  get blockCount(): number {
    return this.#blocks.size;
  }

  get totalBytes(): number {
    return this.#lru.totalBytes;
  }

  has(key: BlockKey): boolean {
    return this.#blocks.has(shortKeyOf(key));
  }

  /** The block in the newest object that has it. */
  find(key: BlockKey): StoredPlace | undefined {
    return this.#blocks.get(shortKeyOf(key));
  }

  /** All objects that list the block. */
  objectsWith(key: BlockKey): StoredObject[] {
    const shortKey = shortKeyOf(key);
    return [...this.#objects.values()].filter(({ shortKeys }) => slotOf(shortKeys, shortKey) !== undefined);
  }

  /** `addListed` ignores objects that are removed before the matching `endListing`: a page may be older than the removal. */
  beginListing(): void {
    this.#listings++;
  }

  endListing(): void {
    if (--this.#listings === 0) this.#removed.clear();
  }

  addListed(name: string, bytes: number, listing: number): void {
    if (!this.#removed.has(name)) this.add(name, bytes, listing);
  }

  /** No effect for an object that no tier has written. A block that was removed from a known object stays removed. */
  add(name: string, bytes: number, listing: number, keys?: readonly BlockKey[]): void {
    const known = this.#objects.get(name);
    if (known !== undefined) {
      known.seenBy = listing;
      if (known.bytes !== bytes) this.#lru.set(name, bytes);
      known.bytes = bytes;
      return;
    }
    const parsed = parseObjectName(name);
    if (parsed === undefined) return;
    const { shortKeys } = parsed;
    const object: StoredObject = { name, shortKeys, bytes, found: 0, seenBy: listing, ...(keys && { keys }) };
    this.#objects.set(name, object);
    this.#lru.set(name, bytes);
    for (let slot = 0; slot < countOfShortKeys(shortKeys); slot++) {
      const shortKey = shortKeyAt(shortKeys, slot);
      const place = this.#blocks.get(shortKey);
      if (place !== undefined && place.object.name >= name) continue;
      if (place !== undefined) place.object.found--;
      this.#blocks.set(shortKey, { object, slot });
      object.found++;
    }
    while (this.#blocks.size > this.#blockCountMax) this.#forgetOldest();
  }

  touch({ name }: StoredObject): void {
    this.#lru.touch(name);
  }

  /** The object is gone, with all its blocks. */
  removeObject(object: StoredObject): void {
    if (this.#objects.get(object.name) !== object) return;
    if (this.#listings > 0) this.#removed.add(object.name);
    this.#forget(object);
  }

  /** The block is no longer found in this object. */
  removeBlock({ object, slot }: StoredPlace): void {
    this.#unlist(object, slot);
  }

  /** The objects that a complete listing did not have. */
  removeUnseen(listing: number): void {
    for (const object of [...this.#objects.values()]) if (object.seenBy < listing) this.removeObject(object);
  }

  /** Least recently used first. */
  *oldest(): IterableIterator<StoredObject> {
    for (const name of this.#lru.names()) {
      const object = this.#objects.get(name);
      assert(object !== undefined, `the index has no object ${name}`);
      yield object;
    }
  }

  checkInvariants(): void {
    this.#lru.checkInvariants();
    assert(this.#lru.count === this.#objects.size, 'the index has objects without an order of use');
    const found = new Map<StoredObject, number>();
    for (const [shortKey, { object, slot }] of this.#blocks) {
      assert(this.#objects.get(object.name) === object, 'the index has a block of an object that it removed');
      assert(shortKeyAt(object.shortKeys, slot) === shortKey, 'the index has a block in another slot');
      found.set(object, (found.get(object) ?? 0) + 1);
    }
    for (const object of this.#objects.values()) {
      assert(object.found === (found.get(object) ?? 0), `the index counts ${object.found} blocks of ${object.name}`);
    }
  }

  #forgetOldest(): void {
    const [object] = this.oldest();
    assert(object !== undefined, 'an index with blocks has an object');
    this.#forget(object);
  }

  #forget(object: StoredObject): void {
    this.#objects.delete(object.name);
    this.#lru.delete(object.name);
    for (let slot = 0; slot < countOfShortKeys(object.shortKeys); slot++) this.#unlist(object, slot);
  }

  #unlist(object: StoredObject, slot: number): void {
    const shortKey = shortKeyAt(object.shortKeys, slot);
    const place = this.#blocks.get(shortKey);
    if (place?.object !== object || place.slot !== slot) return;
    this.#blocks.delete(shortKey);
    object.found--;
  }
}

export function slotOf(shortKeys: string, shortKey: ShortKey): number | undefined {
  for (let slot = 0; slot < countOfShortKeys(shortKeys); slot++) {
    if (shortKeyAt(shortKeys, slot) === shortKey) return slot;
  }
  return undefined;
}

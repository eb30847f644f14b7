import { randomBytes } from 'node:crypto';
import { assert } from '../../../base/assert.ts';
import type { Clock } from '../../../base/clock.ts';
import { delay } from '../../../base/deadlines.ts';
import type { Timers } from '../../../base/timers.ts';
import { unlessAborted } from '../../../base/unless-aborted.ts';
import type { BlockKey } from '../../block-key.ts';
import { systemTimers } from '../../system-timers.ts';
import type { ClearFilter } from '../../tier-orders.ts';
import { type BlockCodec, headerBytes } from '../block-header.ts';
import { hasSaltTag } from '../clear-filter.ts';
import { identityRecord } from '../identity.ts';
import { ObjectIndex, type StoredObject, slotOf } from './object-index.ts';
import { ObjectListing } from './object-listing.ts';
import {
  countOfShortKeys,
  objectNameOf,
  parseObjectName,
  type ShortKey,
  shortKeyAt,
  shortKeyOf,
} from './object-name.ts';
import type { PackedBlock } from './pack-queue.ts';
import type { ByteRange, ByteSink, S3Bucket } from './s3-bucket.ts';

export interface BlockObjectsOptions {
  readonly bucket: S3Bucket;
  /** Ends with a slash. */
  readonly folder: string;
  readonly codec: BlockCodec;
  readonly maxBytes: number;
  readonly fullListingMs: number;
  readonly listingOverlapMs: number;
  readonly clock: Clock;
  /** Default: the system's. */
  readonly timers?: Timers;
  readonly wallNowMs: () => number;
  /** Ends listings and removals in the background. */
  readonly closing: AbortSignal;
  count(name: string): void;
  evicted(key: BlockKey): void;
  backgroundFailed(error: unknown): void;
}

interface NewObject {
  readonly shortKeys: readonly ShortKey[];
  readonly keys: readonly BlockKey[] | undefined;
  readonly replaced?: StoredObject;
}

const buffersKeptMax = 4;

/** The objects of one model, layout and rank: the index of their blocks, and the calls that keep bucket and index equal. */
export class BlockObjects {
  readonly index = new ObjectIndex();
  readonly listing: ObjectListing;
  readonly slotBytes: number;
  readonly #options: BlockObjectsOptions;
  /** Of writes under way. */
  #reservedBytes = 0;
  /** Memory of successful writes, because new memory of this size costs as much as the copy. */
  readonly #buffers: Uint8Array[] = [];
  #isDescribed: boolean = false;
  /** The time in the name of our newest object. */
  #lastMs = 0;

  constructor(options: BlockObjectsOptions) {
    this.#options = options;
    this.slotBytes = headerBytes + options.codec.identity.blockBytes;
    const { bucket, folder, closing } = options;
    this.listing = new ObjectListing({
      index: this.index,
      clock: options.clock,
      serverNowMs: () => this.#serverNowMs(),
      overlapMs: options.listingOverlapMs,
      fullEveryMs: options.fullListingMs,
      failed: options.backgroundFailed,
      pause: (pauseMs) => unlessAborted(delay(options.timers ?? systemTimers, pauseMs), closing),
      page: async (after, continuation) => {
        options.count('lists');
        const page = await bucket.list({ prefix: folder, after: folder + after, continuation }, closing);
        return {
          ...page,
          objects: page.objects.map(({ name, bytes }) => ({ name: name.slice(folder.length), bytes })),
        };
      },
    });
  }

  read({ name }: StoredObject, range: ByteRange, sink: ByteSink, signal: AbortSignal): Promise<void> {
    this.#options.count('gets');
    return this.#options.bucket.get(this.#options.folder + name, range, sink, signal);
  }

  /** Copies the blocks before it returns. Evicts objects before it writes. */
  async write(pack: readonly PackedBlock[], signal: AbortSignal): Promise<void> {
    const body = this.#copy(pack);
    this.#reservedBytes += body.length;
    try {
      await this.#evict(signal);
      this.#describe();
      const keys = pack.map(({ key }) => key);
      await this.#put({ shortKeys: keys.map(shortKeyOf), keys }, body, signal);
      this.#keep(body);
    } finally {
      this.#reservedBytes -= body.length;
    }
  }

  async remove(object: StoredObject, signal: AbortSignal): Promise<void> {
    await this.#options.bucket.delete(this.#options.folder + object.name, signal);
    this.index.removeObject(object);
  }

  /**
   * Removes the block from the object, or replaces its bytes. Objects do not change in place, so the other blocks go to an
   * object of their own. Rare: a deletion by the program, or fault injection.
   */
  async replace(
    object: StoredObject,
    key: BlockKey,
    change: ((stored: Uint8Array) => Uint8Array) | undefined,
    signal: AbortSignal,
  ): Promise<void> {
    const shortKey = shortKeyOf(key);
    const slot = slotOf(object.shortKeys, shortKey);
    assert(slot !== undefined, `the object does not list ${key}`);
    const count = countOfShortKeys(object.shortKeys);
    if (count > 1 || change !== undefined) {
      const bytes = await this.#readAll(object, signal);
      const [start, end] = [slot * this.slotBytes, slot === count - 1 ? bytes.length : (slot + 1) * this.slotBytes];
      if (count > 1) {
        const others = shortKeysOf(object).filter((_, at) => at !== slot);
        const keys = object.keys?.filter((_, at) => at !== slot);
        const body = Buffer.concat([bytes.subarray(0, start), bytes.subarray(end)]);
        await this.#put({ shortKeys: others, keys, replaced: object }, body, signal);
      }
      if (change !== undefined) {
        const changed = change(bytes.slice(start, end));
        await this.#put({ shortKeys: [shortKey], keys: [key], replaced: object }, changed, signal);
      }
    }
    await this.remove(object, signal);
  }

  /** Removes those blocks of the object that the filter names. Returns how many, and their keys if they are known. */
  async clear(
    object: StoredObject,
    { saltTag, beforeMs = Infinity }: ClearFilter,
    signal: AbortSignal,
  ): Promise<{ readonly slots: number; readonly keys: readonly BlockKey[] }> {
    const none = { slots: 0, keys: [] };
    if ((parseObjectName(object.name)?.writtenAtMs ?? 0) >= beforeMs) return none;
    const all = shortKeysOf(object);
    if (saltTag === undefined) {
      await this.remove(object, signal);
      return { slots: all.length, keys: object.keys ?? [] };
    }
    const bytes = await this.#readAll(object, signal);
    const blockAt = (slot: number): Uint8Array => bytes.subarray(slot * this.slotBytes, (slot + 1) * this.slotBytes);
    const isCleared = all.map((_, slot) => hasSaltTag(blockAt(slot), saltTag));
    const others = [...all.keys()].filter((slot) => !isCleared[slot]);
    if (others.length === all.length) return none;
    if (others.length > 0) {
      const keys = object.keys?.filter((_, slot) => !isCleared[slot]);
      const shortKeys = others.map((slot) => all[slot]!);
      await this.#put({ shortKeys, keys, replaced: object }, Buffer.concat(others.map(blockAt)), signal);
    }
    await this.remove(object, signal);
    return { slots: all.length - others.length, keys: object.keys?.filter((_, slot) => isCleared[slot]) ?? [] };
  }

  async #put({ shortKeys, keys, replaced }: NewObject, body: Uint8Array, signal: AbortSignal): Promise<void> {
    const { bucket, folder, count } = this.#options;
    const name = objectNameOf(this.#nextMs(replaced), randomBytes(6).toString('base64url'), shortKeys);
    count('puts');
    await bucket.put(folder + name, body, signal);
    this.index.add(name, body.length, this.listing.serial, keys);
  }

  #copy(pack: readonly PackedBlock[]): Uint8Array {
    const length = pack.length * this.slotBytes;
    const kept = this.#buffers.findIndex((buffer) => buffer.length >= length);
    const memory = kept < 0 ? new Uint8Array(length) : this.#buffers.splice(kept, 1)[0]!;
    const { codec } = this.#options;
    for (const [slot, { key, bytes, isEncoded = false, ...context }] of pack.entries()) {
      const stored = memory.subarray(slot * this.slotBytes, (slot + 1) * this.slotBytes);
      if (isEncoded) stored.set(bytes);
      else codec.encodeInto(key, bytes, stored, context);
    }
    return memory.subarray(0, length);
  }

  /** After a successful write only: a failed write may still read the memory. */
  #keep(body: Uint8Array): void {
    if (this.#buffers.length === buffersKeptMax) this.#buffers.shift();
    this.#buffers.push(new Uint8Array(body.buffer));
  }

  /** Removes the objects that this tier has not used for the longest time, until the writes under way fit. */
  async #evict(signal: AbortSignal): Promise<void> {
    const { maxBytes, evicted, count } = this.#options;
    const victims: StoredObject[] = [];
    let totalBytes = this.index.totalBytes + this.#reservedBytes;
    for (const object of this.index.oldest()) {
      if (totalBytes <= maxBytes) break;
      totalBytes -= object.bytes;
      victims.push(object);
    }
    for (const object of victims) {
      for (const key of object.keys ?? []) if (this.index.find(key)?.object === object) evicted(key);
      for (let left = object.found; left > 0; left--) count('evicted');
      // Before the deletion, because writes at the same time must not free the same bytes.
      this.index.removeObject(object);
    }
    await Promise.all(victims.map((object) => this.remove(object, signal)));
  }

  async #readAll({ name }: StoredObject, signal: AbortSignal): Promise<Uint8Array> {
    const chunks: Uint8Array[] = [];
    const sink = { begin: () => undefined, write: (chunk: Uint8Array) => void chunks.push(chunk) };
    await this.#options.bucket.get(this.#options.folder + name, undefined, sink, signal);
    return Buffer.concat(chunks);
  }

  /** Writes the identity in clear text beside the folder, for people. */
  #describe(): void {
    if (this.#isDescribed) return;
    this.#isDescribed = true;
    const { bucket, folder, codec, closing, backgroundFailed } = this.#options;
    const record = { ...identityRecord(codec.identity), format: recordFormat };
    const body = Buffer.from(`${JSON.stringify(record, undefined, 2)}\n`);
    bucket.put(`${folder.slice(0, -1)}.json`, body, closing).catch(backgroundFailed);
  }

  /** Greater than the times of our last object and of `replaced`, because the newest object with a block is used. */
  #nextMs(replaced: StoredObject | undefined): number {
    const replacedMs = replaced === undefined ? 0 : (parseObjectName(replaced.name)?.writtenAtMs ?? 0);
    this.#lastMs = Math.max(this.#serverNowMs(), this.#lastMs + 1, replacedMs + 1);
    return this.#lastMs;
  }

  #serverNowMs(): number {
    return this.#options.wallNowMs() + this.#options.bucket.clockOffsetMs;
  }
}

const recordFormat =
  'Kvasir KV blocks, version 1: an object has one or more blocks, each with a header of 160 bytes; its name lists them';

const shortKeysOf = ({ shortKeys }: StoredObject): ShortKey[] =>
  Array.from({ length: countOfShortKeys(shortKeys) }, (_, slot) => shortKeyAt(shortKeys, slot));

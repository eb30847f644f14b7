import { setMaxListeners } from 'node:events';
import { AssertionError } from '../../../base/assert.ts';
import { byEntries, byName } from '../../../base/by-name.ts';
import { type Clock, systemClock } from '../../../base/clock.ts';
import { KvasirError } from '../../../base/errors.ts';
import type { Timers } from '../../../base/timers.ts';
import { unlessAborted } from '../../../base/unless-aborted.ts';
import type { BlockKey } from '../../block-key.ts';
import type { Crc32, KvIdentity, MacKeys } from '../../connector.ts';
import { tierClosed, tierFailed } from '../../errors.ts';
import type { MissReason } from '../../reasons.ts';
import { systemTimers } from '../../system-timers.ts';
import { addWork, type ClearFilter, noWork, type TierWork } from '../../tier-orders.ts';
import { BlockCoder } from '../block-coder.ts';
import { headerBytes } from '../block-header.ts';
import type { LookupAnswers } from '../look-up.ts';
import { OpenCalls } from '../open-calls.ts';
import type { StoreAnswer, TamperableTier, TierContext } from '../tier.ts';
import { BlockLoads } from './block-loads.ts';
import { BlockObjects } from './block-objects.ts';
import { checkedLocation, unusable } from './bucket-checks.ts';
import type { StoredObject, StoredPlace } from './object-index.ts';
import { blocksPerName } from './object-name.ts';
import { type PackedBlock, PackQueue } from './pack-queue.ts';
import { S3Bucket, type S3Credentials } from './s3-bucket.ts';
import { failureOf, S3Failure } from './s3-failure.ts';

export interface S3TierOptions {
  readonly bucket: string;
  /** Before the names of all objects, for buckets with other content. */
  readonly prefix?: string;
  /** The server's URL. Absent: Amazon's, or `AWS_ENDPOINT_URL_S3`. */
  readonly endpoint?: string;
  readonly region?: string;
  /** Default: true with an endpoint. */
  readonly forcePathStyle?: boolean;
  /** Absent: from the usual places of AWS. */
  readonly credentials?: S3Credentials;
  readonly identity: KvIdentity;
  readonly name?: string;
  /** Default: Node's. */
  readonly crc32?: Crc32 | undefined;
  /** Blocks have a MAC, and others are not loaded. */
  readonly macKeys?: MacKeys | undefined;
  /** Default false. True: blocks are encrypted with these keys, and others are not loaded. */
  readonly encrypts?: boolean | undefined;
  /** Receives events for the operator. Absent: events are dropped. */
  readonly event?: (message: string) => void;
  /** How long one request may take; default 30 s. */
  readonly requestTimeoutMs?: number;
  /** Bytes of one object; default 8 MiB. At least one block. */
  readonly packBytes?: number;
  /** How long a block waits for others of its object; default 10 ms. */
  readonly gatherMs?: number;
  /** Of the objects of this model and rank, by all servers together. Absent: no limit. */
  readonly maxBytes?: number;
  /** A look-up of an unknown block lists new objects if the last listing is older; default 1 s. */
  readonly refreshMs?: number;
  /** How often all objects are listed; default 10 minutes. */
  readonly fullListingMs?: number;
  /** How long after the time in its name an object may appear; default 2 minutes. */
  readonly listingOverlapMs?: number;
  /** How long `open` waits for the first listing; default 5 s. */
  readonly openTimeoutMs?: number;
  readonly timers?: Timers;
  readonly clock?: Clock;
  readonly wallNowMs?: () => number;
}

const defaults = {
  requestTimeoutMs: 30_000,
  packBytes: 8 * 1024 ** 2,
  gatherMs: 10,
  maxBytes: Number.POSITIVE_INFINITY,
  refreshMs: 1_000,
  fullListingMs: 600_000,
  listingOverlapMs: 120_000,
  openTimeoutMs: 5_000,
};
const getsAtOnce = 8;
const putsAtOnce = 4;
/** Beside loads and stores: listings and deletions. */
const otherSockets = 4;
/** An object with only such blocks is another engine's, so it is not deleted. */
const reasonsOfOthers = new Set<MissReason>([
  'formatVersion',
  'wrongModel',
  'wrongDtype',
  'wrongBlockSize',
  'wrongGroup',
  'wrongLayers',
  'wrongRank',
  'macMissing',
  'macKeyUnknown',
  'notEncrypted',
  'encryptionKeyUnknown',
]);

/**
 * Blocks in a bucket of an S3 server, shared by any number of servers. Blocks that are stored at the same time go into one
 * object, whose name lists them. So a listing of names is an index of all blocks, and a look-up needs no request if the
 * block is known. A load reads a range of an object.
 */
export class S3Tier implements TamperableTier {
  readonly name: string;
  readonly #options: S3TierOptions & typeof defaults;
  readonly #bucket: S3Bucket;
  readonly #clock: Clock;
  readonly #objects: BlockObjects;
  readonly #coder: BlockCoder;
  readonly #loads: BlockLoads;
  readonly #packs: PackQueue;
  /** Blocks that are being written, which are not written twice at once. */
  readonly #storing = new Map<BlockKey, Promise<void>>();
  readonly #calls: OpenCalls;
  readonly #closing = new AbortController();
  readonly #counters: Record<string, number> = byName();
  /** Refusals that were reported. */
  readonly #reported = new Set<string>();
  #evicted: BlockKey[] = [];

  private constructor(options: S3TierOptions & typeof defaults, folder: string, bucket: S3Bucket) {
    this.name = options.name ?? 's3';
    // Each removal in the background listens to it.
    setMaxListeners(0, this.#closing.signal);
    this.#options = options;
    this.#bucket = bucket;
    this.#clock = options.clock ?? systemClock;
    const coder = new BlockCoder({ ...options, name: this.name });
    this.#coder = coder;
    this.#objects = new BlockObjects({
      ...options,
      bucket,
      folder,
      codec: coder.codec,
      clock: this.#clock,
      wallNowMs: options.wallNowMs ?? Date.now,
      closing: this.#closing.signal,
      count: (name) => this.#count(name),
      evicted: (key) => this.#evicted.push(key),
      backgroundFailed: (error) => this.#backgroundFailed(error),
    });
    this.#loads = new BlockLoads({
      codec: coder,
      getsAtOnce,
      bytesMax: Math.max(options.packBytes, this.#objects.slotBytes),
      get: (object, range, sink, signal) => this.#objects.read(object, range, sink, signal),
    });
    const { blocksMax, writesAtOnce } = packLimits(options, folder, this.#objects.slotBytes);
    this.#packs = new PackQueue({
      blocksMax,
      writesAtOnce,
      gatherMs: options.gatherMs,
      timers: options.timers ?? systemTimers,
      write: (pack, signal) => this.#objects.write(pack, signal),
    });
    this.#calls = new OpenCalls(() => tierClosed({ tier: this.name }));
  }

  /**
   * Throws `bucketUnusable` if the server refuses the bucket or the credentials, and `s3ClientMissing`. A server that does
   * not answer is only an event: the tier works as soon as the server does.
   */
  static async open(given: S3TierOptions): Promise<S3Tier> {
    const options = { ...defaults, ...withoutUndefined(given) };
    const folder = checkedLocation(options);
    let bucket: S3Bucket;
    try {
      bucket = await S3Bucket.open({
        ...options,
        socketsMax: getsAtOnce + putsAtOnce + otherSockets,
        timers: options.timers ?? systemTimers,
        wallNowMs: options.wallNowMs ?? Date.now,
      });
    } catch (error) {
      throw error instanceof S3Failure ? unusable(options, error) : error;
    }
    const tier = new S3Tier(options, folder, bucket);
    try {
      await tier.#begin();
      return tier;
    } catch (error) {
      await tier.close();
      throw error;
    }
  }

  has(keys: readonly BlockKey[], signal: AbortSignal): Promise<LookupAnswers> {
    return this.#call('look up blocks', signal, () => this.#lookUp(keys, signal));
  }

  load(key: BlockKey, into: Uint8Array, signal: AbortSignal): Promise<MissReason | undefined> {
    return this.#call('load a block', signal, async () => {
      signal.throwIfAborted();
      const reason = await this.#load(key, into, signal);
      this.#count(reason ?? 'loaded');
      return reason;
    });
  }

  store(key: BlockKey, bytes: Uint8Array, signal: AbortSignal, context?: TierContext): Promise<StoreAnswer> {
    return this.#call('store a block', signal, async () => {
      signal.throwIfAborted();
      if (headerBytes + bytes.length > this.#options.maxBytes) return 'full';
      await this.#knowBeforeStore(key, signal);
      for (let other = this.#storing.get(key); other !== undefined; other = this.#storing.get(key)) {
        await unlessAborted(
          other.catch(() => undefined),
          signal,
        );
      }
      const place = this.#objects.index.find(key);
      if (place === undefined)
        return this.#store({ key, bytes, payloadCrc: context?.payloadCrc, saltTag: context?.saltTag }, signal);
      this.#objects.index.touch(place.object);
      return 'alreadyStored';
    });
  }

  delete(key: BlockKey): Promise<void> {
    const signal = this.#closing.signal;
    return this.#call('delete a block', signal, async () => {
      await this.#objects.listing.knowAt(this.#clock.nowMs());
      for (const object of this.#objects.index.objectsWith(key)) {
        await this.#objects.replace(object, key, undefined, signal);
      }
    });
  }

  /** By the time of the store. Objects with blocks of several salts are written again without those of the salt. */
  clear(filter: ClearFilter, signal: AbortSignal): Promise<TierWork> {
    return this.#call('clear the tier', signal, async () => {
      await unlessAborted(this.#objects.listing.knowAt(this.#clock.nowMs()), signal);
      let work = noWork;
      for (const object of [...this.#objects.index.oldest()])
        work = addWork(work, await this.#clear(object, filter, signal));
      return work;
    });
  }

  tamper(key: BlockKey, corrupt: (stored: Uint8Array) => Uint8Array): Promise<boolean> {
    const signal = this.#closing.signal;
    return this.#call('tamper with a block', signal, async () => {
      await this.#objects.listing.knowAt(this.#clock.nowMs());
      const place = this.#objects.index.find(key);
      if (place === undefined) return false;
      await this.#objects.replace(place.object, key, corrupt, signal);
      return true;
    });
  }

  /** Of the blocks that this tier has stored. Of the other blocks it does not know the whole keys. */
  takeEvicted(): readonly BlockKey[] {
    const evicted = this.#evicted;
    this.#evicted = [];
    return evicted;
  }

  counters(): Readonly<Record<string, number>> {
    return { ...this.#counters };
  }

  levels(): Readonly<Record<string, number>> {
    const { totalBytes: bytes, blockCount: blocks, objectCount: objects } = this.#objects.index;
    return { bytes, blocks, objects };
  }

  checkInvariants(): void {
    this.#objects.index.checkInvariants();
  }

  /** Blocks that wait for others are written at once. */
  async close(): Promise<void> {
    this.#packs.flush();
    await this.#calls.close();
    this.#closing.abort(new Error('the tier is closed'));
    await this.#objects.listing.whenIdle();
    this.#bucket.close();
    await this.#coder.close();
  }

  async #clear(object: StoredObject, filter: ClearFilter, signal: AbortSignal): Promise<TierWork> {
    try {
      const { slots, keys } = await this.#objects.clear(object, filter, signal);
      this.#evicted.push(...keys);
      return { blocks: slots, bytes: slots * this.#objects.slotBytes, failed: 0 };
    } catch (error) {
      if (error instanceof AssertionError || signal.aborted) throw error;
      this.#backgroundFailed(error);
      return { ...noWork, failed: object.found };
    }
  }

  /** The first listing. Throws if the server refuses it; if there is no answer, it goes on in the background. */
  async #begin(): Promise<void> {
    const { bucket, event, openTimeoutMs, timers = systemTimers } = this.#options;
    const listing = this.#objects.listing.knowAt(this.#clock.nowMs());
    let isLate = false;
    const timeout = new AbortController();
    const timer = timers.after(openTimeoutMs, () => timeout.abort(new S3Failure('failed', '', 'no answer yet')));
    try {
      await unlessAborted(listing, timeout.signal);
    } catch (error) {
      if (error instanceof AssertionError) throw error;
      const failure = failureOf(error);
      if (failure.kind === 'refused') throw unusable(this.#options, failure);
      isLate = timeout.signal.aborted;
      event?.(
        `The S3 bucket ${bucket} does not answer: ${failure.message}. Its blocks are used as soon as it answers; until then, KV is computed.`,
      );
    } finally {
      timer.cancel();
    }
    if (isLate) listing.catch((error: unknown) => this.#backgroundFailed(error));
  }

  async #lookUp(keys: readonly BlockKey[], signal: AbortSignal): Promise<LookupAnswers> {
    if (signal.aborted) return keys.map(() => undefined);
    const { index, listing } = this.#objects;
    const nowMs = this.#clock.nowMs();
    const { refreshMs } = this.#options;
    const known = keys.map((key) => index.has(key));
    if (!known.includes(false)) {
      // Objects that were deleted are forgotten some time later.
      listing.knowAt(nowMs - refreshMs * 10).catch((error: unknown) => this.#backgroundFailed(error));
      return known;
    }
    let failure: unknown;
    try {
      await unlessAborted(listing.knowAt(nowMs - refreshMs), signal);
    } catch (error) {
      if (error instanceof AssertionError) throw error;
      failure = error;
    }
    const answers = keys.map((key, i) =>
      known[i] || index.has(key) ? true : failure === undefined ? false : undefined,
    );
    if (failure !== undefined && !signal.aborted && !answers.includes(true)) throw failure;
    return answers;
  }

  async #load(key: BlockKey, into: Uint8Array, signal: AbortSignal): Promise<MissReason | undefined> {
    const { index, listing } = this.#objects;
    // Another server's block can be newer than the last listing.
    if (!index.has(key)) await unlessAborted(listing.knowAt(this.#clock.nowMs()), signal);
    const place = index.find(key);
    if (place === undefined) return 'missing';
    const answer = await this.#loads.load(place, key, into, signal);
    if (answer === undefined) {
      index.touch(place.object);
      return undefined;
    }
    if (answer === 'objectMissing') {
      index.removeObject(place.object);
      return 'missing';
    }
    this.#dropCorrupt(place, answer);
    return answer;
  }

  /** The block is not found again in this object. An object without other blocks is deleted. */
  #dropCorrupt(place: StoredPlace, reason: MissReason): void {
    this.#objects.index.removeBlock(place);
    if (place.object.found > 0 || reasonsOfOthers.has(reason)) return;
    this.#calls
      .run(() => this.#objects.remove(place.object, this.#closing.signal))
      .catch((error: unknown) => this.#backgroundFailed(error));
  }

  /** Another server may have stored the block. If the listing fails, the block is stored twice at worst. */
  async #knowBeforeStore(key: BlockKey, signal: AbortSignal): Promise<void> {
    const { index, listing } = this.#objects;
    if (index.has(key) || !listing.isComplete) return;
    try {
      await unlessAborted(listing.knowAt(this.#clock.nowMs() - this.#options.refreshMs), signal);
    } catch (error) {
      if (error instanceof AssertionError || signal.aborted) throw error;
      this.#count('failedLists');
    }
  }

  async #store(block: PackedBlock, signal: AbortSignal): Promise<StoreAnswer> {
    const { key } = block;
    const storing = this.#write(block, signal);
    this.#storing.set(key, storing);
    try {
      await storing;
    } catch (error) {
      if (error instanceof S3Failure && error.kind === 'full') return 'full';
      throw error;
    } finally {
      this.#storing.delete(key);
    }
    this.#count('stored');
    return 'stored';
  }

  async #write(block: PackedBlock, signal: AbortSignal): Promise<void> {
    if (!this.#coder.codec.encrypts) return this.#packs.store(block, signal);
    // Before it waits for others, because the pack is copied without waiting.
    const stored = new Uint8Array(this.#objects.slotBytes);
    await this.#coder.encodeInto(block.key, block.bytes, stored, block);
    await this.#packs.store({ key: block.key, bytes: stored, isEncoded: true }, signal);
  }

  async #call<T>(action: string, signal: AbortSignal, call: () => Promise<T>): Promise<T> {
    try {
      return await this.#calls.run(call);
    } catch (error) {
      if (error instanceof AssertionError || error instanceof KvasirError) throw error;
      if (signal.aborted && error === signal.reason) throw error;
      const failure = failureOf(error);
      this.#count('failed');
      this.#report(failure);
      throw tierFailed({ tier: this.name, action, reason: failure.message });
    }
  }

  #backgroundFailed(error: unknown): void {
    if (error instanceof AssertionError) throw error;
    if (this.#closing.signal.aborted) return;
    this.#count('failedInBackground');
    this.#report(failureOf(error));
  }

  /** A refusal ends only when the operator changes something. Each sort is reported once. */
  #report({ kind, code, message }: S3Failure): void {
    if (kind !== 'refused' || this.#reported.has(code)) return;
    this.#reported.add(code);
    this.#options.event?.(
      `The S3 bucket ${this.#options.bucket} refuses a request: ${message}. Check the permissions of the credentials. Further refusals of this kind are not reported.`,
    );
  }

  #count(name: string): void {
    this.#counters[name] = (this.#counters[name] ?? 0) + 1;
  }
}

/** An explicit `undefined` must not replace a default. */
function withoutUndefined(options: S3TierOptions): S3TierOptions {
  return byEntries(Object.entries(options).filter(([, value]) => value !== undefined)) as unknown as S3TierOptions;
}

/** With a small `maxBytes`, smaller objects and fewer writes, so that the writes under way fit. */
function packLimits(
  { packBytes, maxBytes }: { readonly packBytes: number; readonly maxBytes: number },
  folder: string,
  slotBytes: number,
): { readonly blocksMax: number; readonly writesAtOnce: number } {
  const bytes = Math.min(packBytes, maxBytes / putsAtOnce);
  const blocksMax = Math.max(1, Math.min(blocksPerName(folder), Math.floor(bytes / slotBytes)));
  const writesAtOnce = Math.max(1, Math.min(putsAtOnce, Math.floor(maxBytes / (blocksMax * slotBytes))));
  return { blocksMax, writesAtOnce };
}

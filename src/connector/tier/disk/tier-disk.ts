import { dirname, resolve } from 'node:path';
import { AssertionError } from '../../../base/assert.ts';
import { byName } from '../../../base/by-name.ts';
import { systemClock } from '../../../base/clock.ts';
import { KvasirError } from '../../../base/errors.ts';
import { addressOfBytes } from '../../../base/native-memory.ts';
import { unlessAborted } from '../../../base/unless-aborted.ts';
import type { BlockKey } from '../../block-key.ts';
import type { Crc32, KvIdentity, MacKeys } from '../../connector.ts';
import { storageUnusable, tierClosed, tierFailed } from '../../errors.ts';
import type { MissReason } from '../../reasons.ts';
import type { ClearFilter, TierWork } from '../../tier-orders.ts';
import { headerBytes } from '../block-header.ts';
import type { LookupAnswers } from '../look-up.ts';
import { OpenCalls } from '../open-calls.ts';
import { SaltBytes, type SaltLevels } from '../salt-bytes.ts';
import type { HangableTier, StoreAnswer, TamperableTier, TierCall, TierContext } from '../tier.ts';
import { TierPins } from '../tier-pins.ts';
import { DiskBound, type Reservation } from './disk-bound.ts';
import { type DiskAnswers, SharedAnswers } from './disk-calls.ts';
import { codeOf, isFull } from './disk-file.ts';
import { DiskFolder } from './disk-folder.ts';
import { type DiskThreads, withTimeout } from './disk-threads.ts';
import { defaultThreads, diskThreadsOf, nameOf } from './disk-threads-of.ts';
import { KnownFolder } from './known-folder.ts';
import { type OtherBlocks, OtherFoldersBound, type OthersLeft } from './other-folders.ts';

export interface DiskTierOptions {
  /** Shared by all models, ranks and processes. Each model and rank has its own folder in it. */
  readonly root: string;
  readonly identity: KvIdentity;
  /** Of this rank's folder, with headers. Blocks of other processes are counted when the folder is read again. */
  readonly maxBytes: number;
  /** Of the blocks in `root` of other models, layouts and numbers of ranks. Absent: these blocks are never removed. */
  readonly othersMaxBytes?: number;
  /** Of the blocks of one cache salt, as `maxBytes`. Absent: no bound but `maxBytes`. */
  readonly quotaBytes?: number | undefined;
  /** Default false. True: `saltLevels` has the blocks of each cache salt. */
  readonly reportsSalts?: boolean | undefined;
  /** A block expires so long after it was stored or last loaded, by any process. Absent: never. */
  readonly ttlSeconds?: number | undefined;
  /** Default false. True: expired blocks are removed in the background, also without stores. */
  readonly removesExpired?: boolean;
  /** Default false: after a power failure a block may be corrupt, which its checksum finds. */
  readonly fsync?: boolean;
  readonly name?: string;
  /** Default: Node's. */
  readonly crc32?: Crc32 | undefined;
  /** Blocks have a MAC, and others are not loaded. */
  readonly macKeys?: MacKeys | undefined;
  /** Default false. True: blocks are encrypted with these keys, and others are not loaded. */
  readonly encrypts?: boolean | undefined;
  readonly wallNowMs?: () => number;
  /** Default false. True: files are read and written without the system's cache where the file system can do this. */
  readonly directIo?: boolean;
  /**
   * How many threads read and write at once; default 4. They start at first use. Threads whose calls stall do not count
   * (`IoPool`).
   */
  readonly threads?: number;
  /** How many further threads write at once, at a low priority; default 0: `threads` write. They start at first use. */
  readonly backgroundWriters?: number;
  /** How many threads start when the tier opens; default 1. */
  readonly startThreads?: number;
  /** How long the directory may take to answer at the start; default 30 s. */
  readonly openTimeoutMs?: number;
  /** Receives events for the operator, such as a folder that cannot be read. Absent: events are dropped. */
  readonly event?: (message: string) => void;
}

/** A look-up uses one thread for each so many keys. */
const keysPerThread = 64;
const openTimeoutMs = 30_000;
const neighboursTimeoutMs = 5_000;
const deleteTimeoutMs = 30_000;
const othersTimeoutMs = 600_000;

/**
 * Blocks as files in a folder, for any number of processes at once. A block is found by its file name, so the processes
 * need no coordination. A store renames a whole file into place, and an eviction unlinks it. After that, a read finds the
 * block missing.
 *
 * Only threads of this tier read and write the files. A thread whose call does not return is replaced, so such a call
 * never blocks the engine (ADR 14).
 */
export class DiskTier implements TamperableTier, HangableTier {
  readonly name: string;
  readonly events: readonly string[];
  readonly pins: TierPins;
  readonly #options: DiskTierOptions;
  readonly #folder: DiskFolder;
  readonly #threads: DiskThreads;
  readonly #isDirect: boolean;
  readonly #bound: DiskBound;
  readonly #calls: OpenCalls;
  readonly #counters: Record<string, number> = byName();
  /** Blocks that are being written: they are not written twice at once. */
  readonly #storing = new Map<BlockKey, Promise<StoreAnswer>>();
  /** Reasons for failed look-ups that were reported. */
  readonly #noticed = new Set<string>();
  /** On rank 0, for all ranks. */
  readonly #others: OtherFoldersBound | undefined;
  readonly #closing = new AbortController();
  readonly #known: KnownFolder;
  readonly #salts: SaltBytes<BlockKey> | undefined;

  private constructor(
    options: DiskTierOptions,
    threads: DiskThreads,
    { isDirect, events }: Pick<DiskAnswers['prepare'], 'isDirect' | 'events'>,
  ) {
    this.name = nameOf(options);
    this.events = events;
    this.#options = options;
    this.#threads = threads;
    this.#isDirect = isDirect;
    this.#folder = new DiskFolder(options.root, options.identity);
    const { othersMaxBytes, quotaBytes, reportsSalts = false } = options;
    this.#salts = quotaBytes === undefined && !reportsSalts ? undefined : new SaltBytes(quotaBytes);
    const blocksMax = Math.floor(options.maxBytes / (headerBytes + options.identity.blockBytes));
    this.pins = new TierPins(blocksMax, () => systemClock.nowMs());
    this.#bound = new DiskBound(options.maxBytes, { salts: this.#salts, pins: this.pins });
    this.#known = new KnownFolder({
      bound: this.#bound,
      threads,
      maxBytes: options.maxBytes,
      readsSalts: this.#salts !== undefined,
      closing: this.#closing.signal,
      wallNowMs: () => this.#wallNowMs(),
      reads: () => this.#others?.start(),
      count: (name) => this.#count(name),
    });
    if (othersMaxBytes !== undefined && options.identity.rank === 0) {
      this.#others = new OtherFoldersBound(() => this.#boundOthers(othersMaxBytes));
    }
    this.#calls = new OpenCalls(() => tierClosed({ tier: this.name }));
    if (options.removesExpired === true && options.ttlSeconds !== undefined)
      void this.#known.removeExpired(options.ttlSeconds);
  }

  /** Throws `storageUnusable`, also when the directory does not answer. */
  static async open(given: DiskTierOptions): Promise<DiskTier> {
    // The working folder may be removed later.
    const options = { ...given, root: resolve(given.root) };
    const threads = diskThreadsOf(options);
    const { directIo: isDirect = false, wallNowMs = Date.now } = options;
    try {
      const { hasBlocks, ...prepared } = await withTimeout(options.openTimeoutMs ?? openTimeoutMs, (signal) =>
        threads.ask({ kind: 'prepare', nowMs: wallNowMs(), isDirect }, signal),
      );
      threads.start(options.startThreads ?? 1);
      // Several models may share a directory: events report other folders only if this model has no blocks.
      const neighbours = hasBlocks ? [] : await neighboursOf(options, threads);
      return new DiskTier(options, threads, { ...prepared, events: [...prepared.events, ...neighbours] });
    } catch (error) {
      await threads.close();
      if (error instanceof AssertionError) throw error;
      throw storageUnusable({ path: options.root, reason: messageOf(error) }, error);
    }
  }

  /** Throws `storageUnusable` if the directory cannot be used with any model, or does not answer. */
  static async check(options: DiskTierOptions): Promise<void> {
    const threads = diskThreadsOf(options);
    try {
      const timeoutMs = options.openTimeoutMs ?? openTimeoutMs;
      await withTimeout(timeoutMs, (signal) => threads.ask({ kind: 'checkRoot' }, signal));
    } catch (error) {
      if (error instanceof AssertionError) throw error;
      throw storageUnusable({ path: options.root, reason: messageOf(error) }, error);
    } finally {
      await threads.close();
    }
  }

  /** This rank's folder. */
  get path(): string {
    return this.#folder.path;
  }

  fileOf(key: BlockKey): string {
    return this.#folder.fileOf(key);
  }

  /** Threads whose call was given up and has not returned. */
  get stuckCount(): number {
    return this.#threads.stuckCount;
  }

  /** Threads in a call whose result is still needed. */
  get busyCount(): number {
    return this.#threads.busyCount;
  }

  has(keys: readonly BlockKey[], signal: AbortSignal): Promise<LookupAnswers> {
    return this.#calls.run(() => this.#lookUp(keys, signal));
  }

  load(key: BlockKey, into: Uint8Array, signal: AbortSignal, context?: TierContext): Promise<MissReason | undefined> {
    return this.#call('load a block', async () => {
      const call = {
        kind: 'load',
        key,
        into: addressOfBytes(into),
        nowMs: this.#wallNowMs(),
        isDirect: this.#isDirect,
      } as const;
      const stamp = this.#bound.stampOf(key);
      const answer = await this.#threads.ask(call, signal, into);
      this.#count(answer);
      if (answer === 'loaded') {
        this.pins.used(key);
        this.#bound.used(key, headerBytes + into.length, context?.saltTag);
        return undefined;
      }
      this.#bound.gone(key, stamp);
      return answer;
    });
  }

  store(key: BlockKey, bytes: Uint8Array, signal: AbortSignal, context?: TierContext): Promise<StoreAnswer> {
    return this.#call('store a block', async () => {
      signal.throwIfAborted();
      for (let other = this.#storing.get(key); other !== undefined; other = this.#storing.get(key)) {
        await unlessAborted(
          other.catch(() => undefined),
          signal,
        );
      }
      const storing = this.#store(key, bytes, signal, context);
      this.#storing.set(key, storing);
      try {
        return await storing;
      } finally {
        this.#storing.delete(key);
      }
    });
  }

  delete(key: BlockKey): Promise<void> {
    return this.#call('delete a block', () => withTimeout(deleteTimeoutMs, (signal) => this.#remove([key], signal)));
  }

  /** By the time of the last store or load. Also files that this tier does not know of. */
  clear(filter: ClearFilter, signal: AbortSignal): Promise<TierWork> {
    return this.#call('clear the tier', async () => {
      const { removed, failed } = await this.#threads.ask({ kind: 'clear', filter }, signal);
      // After the call: a block that was stored again meanwhile is counted again by its next load or scan.
      for (const { key } of removed) this.#bound.cleared(key);
      return { blocks: removed.length, bytes: removed.reduce((sum, { bytes }) => sum + bytes, 0), failed };
    });
  }

  tamper(key: BlockKey, corrupt: (stored: Uint8Array) => Uint8Array): Promise<boolean> {
    return this.#call('tamper with a block', () =>
      withTimeout(deleteTimeoutMs, async (signal) => {
        const stored = await this.#threads.ask({ kind: 'read', key }, signal);
        if (stored === undefined) return false;
        await this.#threads.ask({ kind: 'overwrite', key, bytes: corrupt(stored) }, signal);
        return true;
      }),
    );
  }

  hang(on: TierCall, fifo: string, signal: AbortSignal): Promise<void> {
    return this.#calls.run(() => this.#threads.ask({ kind: 'hang', on, fifo }, signal));
  }

  takeEvicted(): readonly BlockKey[] {
    return this.#bound.takeEvicted();
  }

  counters(): Readonly<Record<string, number>> {
    const { evictedCount: evicted } = this.#bound;
    return { ...this.#counters, ...(evicted === 0 ? {} : { evicted }), ...this.#others?.counters };
  }

  levels(): Readonly<Record<string, number>> {
    const { totalBytes: bytes, count: blocks } = this.#bound;
    const { blockCount: prefixBlocks } = this.pins;
    return { ...this.#others?.levels, bytes, blocks, prefixBlocks, stuckThreads: this.stuckCount };
  }

  saltLevels(): Readonly<Record<string, SaltLevels>> | undefined {
    return this.#options.reportsSalts === true ? this.#salts?.report() : undefined;
  }

  /** The running removal of other models' blocks, if there is one. */
  get othersBounded(): Promise<void> {
    return this.#others?.running ?? Promise.resolve();
  }

  /** Blocks in the directory that this tier cannot use. */
  countOthers(): Promise<OtherBlocks> {
    return this.#call('count other blocks', () =>
      withTimeout(
        othersTimeoutMs,
        (signal) => this.#threads.ask({ kind: 'countOthers' }, signal),
        this.#closing.signal,
      ),
    );
  }

  /** Does not wait for threads that are stuck. */
  async close(): Promise<void> {
    this.#others?.close();
    await this.#calls.close();
    this.#closing.abort(new Error('the tier is closed'));
    await this.#threads.close();
  }

  #wallNowMs(): number {
    return (this.#options.wallNowMs ?? Date.now)();
  }

  async #lookUp(keys: readonly BlockKey[], signal: AbortSignal): Promise<LookupAnswers> {
    const answers = SharedAnswers.for(keys.length);
    const threads = Math.min(this.#options.threads ?? defaultThreads, Math.ceil(keys.length / keysPerThread));
    const askThread = async (): Promise<void> => {
      const failed = await this.#threads.ask(
        { kind: 'has', keys, answers: answers.memory, nowMs: this.#wallNowMs() },
        signal,
      );
      for (const [key, code] of failed) this.#lookUpFailed(key, code);
    };
    const results = await Promise.allSettled(Array.from({ length: threads }, askThread));
    const failure = results.find((outcome) => outcome.status === 'rejected');
    if (failure !== undefined && !signal.aborted && results.every(({ status }) => status === 'rejected')) {
      throw this.#failed('look up blocks', failure.reason);
    }
    return answers.all();
  }

  async #store(
    key: BlockKey,
    bytes: Uint8Array,
    signal: AbortSignal,
    context: TierContext | undefined,
  ): Promise<StoreAnswer> {
    const size = headerBytes + bytes.length;
    if (size > this.#options.maxBytes) return 'full';
    await unlessAborted(this.#known.know(), signal);
    const { saltTag } = context ?? {};
    this.pins.used(key);
    const write = (reservation: Reservation): Promise<DiskAnswers['store']> =>
      this.#write(reservation, bytes, signal, context);
    let answer = await this.#storeReserved(this.#bound.reserve(key, size, { saltTag }), write);
    // Other blocks are removed and the block is written again. Once, because other programs may fill the disk.
    if (answer === 'diskFull') {
      this.#count('diskFull');
      answer = await this.#storeReserved(this.#bound.reserve(key, size, { isFull: true, saltTag }), write);
    }
    if (answer === 'diskFull') return 'full';
    if (answer !== 'stored') return answer;
    this.#known.stored(size);
    this.#count('stored');
    return 'stored';
  }

  async #storeReserved(
    reservation: Reservation | undefined,
    write: (reservation: Reservation) => Promise<DiskAnswers['store']>,
  ): Promise<StoreAnswer | 'diskFull'> {
    if (reservation === undefined) return 'full';
    try {
      const answer = await write(reservation);
      if (answer === 'stored') this.#bound.stored(reservation);
      else this.#bound.alreadyStored(reservation);
      return answer;
    } catch (error) {
      if (!isFull(error)) {
        this.#bound.failed(reservation);
        throw error;
      }
      this.#bound.diskFull(reservation);
      return 'diskFull';
    }
  }

  #write(
    { key, victims }: Reservation,
    bytes: Uint8Array,
    signal: AbortSignal,
    context: TierContext | undefined,
  ): Promise<DiskAnswers['store']> {
    const call = {
      kind: 'store',
      key,
      bytes: addressOfBytes(bytes),
      payloadCrc: context?.payloadCrc,
      saltTag: context?.saltTag,
      nowMs: this.#wallNowMs(),
      isDirect: this.#isDirect,
      victims,
    } as const;
    return this.#threads.ask(call, signal, bytes);
  }

  #boundOthers(maxBytes: number): Promise<OthersLeft> {
    const nowMs = this.#wallNowMs();
    const call = { kind: 'boundOthers', maxBytes, nowMs } as const;
    return withTimeout(othersTimeoutMs, (signal) => this.#threads.ask(call, signal), this.#closing.signal);
  }

  async #remove(keys: readonly BlockKey[], signal: AbortSignal): Promise<void> {
    const stamps = keys.map((key) => this.#bound.stampOf(key));
    await this.#threads.ask({ kind: 'remove', keys }, signal);
    for (const [i, key] of keys.entries()) this.#bound.gone(key, stamps[i]);
  }

  /** Counts by reason. Reports each reason once, because each prompt may look up the same folder many times. */
  #lookUpFailed(key: BlockKey, reason: string): void {
    this.#count(`lookupFailed.${reason}`);
    if (this.#noticed.has(reason)) return;
    this.#noticed.add(reason);
    const folder = dirname(this.#folder.fileOf(key));
    this.#options.event?.(
      `${folder} cannot be read (${reason}): blocks in it are computed again. Check its type, owner and mode. Other folders with this error are not reported.`,
    );
  }

  async #call<T>(action: string, call: () => Promise<T>): Promise<T> {
    try {
      return await this.#calls.run(call);
    } catch (error) {
      throw this.#failed(action, error);
    }
  }

  /** Errors of the system and the threads become `tierFailed`; the reason of an aborted signal does not change. */
  #failed(action: string, error: unknown): unknown {
    if (codeOf(error) === undefined || error instanceof KvasirError) return error;
    this.#count('failed');
    return tierFailed({ tier: this.name, action, reason: messageOf(error) }, error);
  }

  #count(name: string): void {
    this.#counters[name] = (this.#counters[name] ?? 0) + 1;
  }
}

/** If folders of other models do not answer, the tier opens without this information. */
async function neighboursOf(options: DiskTierOptions, threads: DiskThreads): Promise<DiskAnswers['neighbours']> {
  const timeoutMs = Math.min(options.openTimeoutMs ?? openTimeoutMs, neighboursTimeoutMs);
  try {
    return await withTimeout(timeoutMs, (signal) => threads.ask({ kind: 'neighbours' }, signal));
  } catch (error) {
    if (error instanceof AssertionError) throw error;
    return [`folders of other models in ${options.root} cannot be read: ${messageOf(error)}`];
  }
}

const messageOf = (error: unknown): string => (error instanceof Error ? error.message : String(error));

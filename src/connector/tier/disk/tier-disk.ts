import { dirname } from 'node:path';
import { AssertionError } from '../../../base/assert.ts';
import { threadEntry } from '../../../base/call-thread.ts';
import { systemClock } from '../../../base/clock.ts';
import { KvasirError } from '../../../base/errors.ts';
import { addressOfBytes } from '../../../base/native-memory.ts';
import type { BlockKey } from '../../block-key.ts';
import type { Crc32, KvIdentity } from '../../connector.ts';
import { storageUnusable, tierClosed, tierFailed } from '../../errors.ts';
import type { MissReason } from '../../reasons.ts';
import { systemTimers } from '../../system-timers.ts';
import { headerBytes } from '../block-header.ts';
import type { LookupAnswers } from '../look-up.ts';
import { LruBytes } from '../lru-bytes.ts';
import { OpenCalls } from '../open-calls.ts';
import type { HangableTier, StoreAnswer, TamperableTier } from '../tier.ts';
import { type DiskAnswer, type DiskAnswers, type DiskCall, type DiskThreadSetup, SharedAnswers } from './disk-calls.ts';
import { codeOf, isFull } from './disk-file.ts';
import { DiskFolder } from './disk-folder.ts';
import { HungFiles } from './hung-files.ts';
import { IoPool } from './io-pool.ts';
import { type OtherBlocks, OtherFoldersBound, type OthersLeft } from './other-folders.ts';

export interface DiskTierOptions {
  /** Shared by all models, ranks and processes. Each model and rank has its own folder in it. */
  readonly root: string;
  readonly identity: KvIdentity;
  /** Of this rank's folder, with headers. Blocks of other processes are counted when the folder is read again. */
  readonly maxBytes: number;
  /** Of the blocks in `root` of other models, layouts and numbers of ranks. Absent: these blocks are never removed. */
  readonly othersMaxBytes?: number;
  /** Default false: after a power failure a block may be corrupt, which its checksum finds. */
  readonly fsync?: boolean;
  readonly name?: string;
  /** Default: Node's. */
  readonly crc32?: Crc32 | undefined;
  readonly wallNowMs?: () => number;
  /**
   * How many threads read and write at once; default 4. They start at first use. Threads whose calls stall do not count
   * (`IoPool`).
   */
  readonly threads?: number;
  /** How many threads start when the tier opens; default 1. */
  readonly startThreads?: number;
  /** How long the directory may take to answer at the start; default 30 s. */
  readonly openTimeoutMs?: number;
  /** Receives events for the operator, such as a folder that cannot be read. Absent: events are dropped. */
  readonly event?: (message: string) => void;
}

const defaultThreads = 4;
/** With this many threads in calls that do not return, all calls fail at once. */
const stuckMax = 16;
/** A look-up uses one thread for each so many keys. */
const keysPerThread = 64;
const openTimeoutMs = 30_000;
const neighboursTimeoutMs = 5_000;
const deleteTimeoutMs = 30_000;
/** For a scan of a folder with the largest number of files. */
const scanTimeoutMs = 120_000;
const othersTimeoutMs = 600_000;

/**
 * Blocks as files in a folder, for any number of processes at once. A block is found by its file name, so the processes
 * need no coordination: a store renames a whole file into place, and an eviction unlinks it. After that, a read finds the
 * block missing.
 *
 * Only threads of this tier read and write the files. A thread whose call does not return is replaced, so such a call
 * never blocks the engine (ADR 14).
 */
export class DiskTier implements TamperableTier, HangableTier {
  readonly name: string;
  readonly events: readonly string[];
  readonly #options: DiskTierOptions;
  readonly #folder: DiskFolder;
  readonly #pool: IoPool<DiskCall, DiskAnswer>;
  readonly #maxBytes: number;
  /** The known blocks of the folder, least recently used first; after a restart, least recently written first. */
  readonly #lru = new LruBytes<BlockKey>();
  readonly #calls: OpenCalls;
  readonly #counters: Record<string, number> = {};
  /** Blocks in `#lru` that are being written: they are not evicted, and not written twice at once. */
  readonly #storing = new Map<BlockKey, Promise<StoreAnswer>>();
  /** Reasons for failed look-ups that were reported. */
  readonly #noticed = new Set<string>();
  /** On rank 0, for all ranks. */
  readonly #others: OtherFoldersBound | undefined;
  readonly #closing = new AbortController();
  readonly #hung = new HungFiles();
  #evicted: BlockKey[] = [];
  #scan: Promise<void> | undefined;
  #storedSinceScan = 0;

  private constructor(options: DiskTierOptions, pool: IoPool<DiskCall, DiskAnswer>, events: readonly string[]) {
    this.name = nameOf(options);
    this.events = events;
    this.#options = options;
    this.#pool = pool;
    this.#folder = new DiskFolder(options.root, options.identity);
    this.#maxBytes = options.maxBytes;
    const { othersMaxBytes } = options;
    if (othersMaxBytes !== undefined && options.identity.rank === 0) {
      this.#others = new OtherFoldersBound(() => this.#boundOthers(othersMaxBytes));
    }
    this.#calls = new OpenCalls(() => tierClosed({ tier: this.name }));
  }

  /** Throws `storageUnusable`, also when the directory does not answer. */
  static async open(options: DiskTierOptions): Promise<DiskTier> {
    const pool = newPool(options);
    try {
      const prepared = (await withTimeout(options.openTimeoutMs ?? openTimeoutMs, (signal) =>
        pool.run({ kind: 'prepare', nowMs: (options.wallNowMs ?? Date.now)() }, signal),
      )) as DiskAnswers['prepare'];
      pool.start(options.startThreads ?? 1);
      // Several models may share a directory: events report other folders only if this model has no blocks.
      const neighbours = prepared.hasBlocks ? [] : await neighboursOf(options, pool);
      return new DiskTier(options, pool, [...prepared.events, ...neighbours]);
    } catch (error) {
      await pool.close();
      if (error instanceof AssertionError) throw error;
      throw storageUnusable({ path: options.root, reason: messageOf(error) }, error);
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
    return this.#pool.stuckCount;
  }

  /** Threads in a call whose result is still needed. */
  get busyCount(): number {
    return this.#pool.busyCount;
  }

  has(keys: readonly BlockKey[], signal: AbortSignal): Promise<LookupAnswers> {
    return this.#calls.run(() => this.#lookUp(keys, signal));
  }

  load(key: BlockKey, into: Uint8Array, signal: AbortSignal): Promise<MissReason | undefined> {
    return this.#call('load a block', async () => {
      const answer = await this.#ask({ kind: 'load', key, into: addressOfBytes(into) }, signal, into);
      this.#count(answer);
      if (answer === 'loaded') {
        if (!this.#lru.touch(key)) this.#lru.set(key, headerBytes + into.length);
        return undefined;
      }
      this.#lru.delete(key);
      return answer;
    });
  }

  store(key: BlockKey, bytes: Uint8Array, signal: AbortSignal): Promise<StoreAnswer> {
    return this.#call('store a block', async () => {
      signal.throwIfAborted();
      for (let other = this.#storing.get(key); other !== undefined; other = this.#storing.get(key)) {
        await unlessAborted(
          other.catch(() => undefined),
          signal,
        );
      }
      const storing = this.#store(key, bytes, signal);
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

  tamper(key: BlockKey, corrupt: (stored: Uint8Array) => Uint8Array): Promise<boolean> {
    return this.#call('tamper with a block', () =>
      withTimeout(deleteTimeoutMs, async (signal) => {
        const stored = await this.#ask({ kind: 'read', key }, signal);
        if (stored === undefined) return false;
        await this.#ask({ kind: 'overwrite', key, bytes: corrupt(stored) }, signal);
        return true;
      }),
    );
  }

  hang(key: BlockKey): boolean {
    return this.#hung.hang(this.fileOf(key));
  }

  mend(key: BlockKey): void {
    this.#hung.mend(this.fileOf(key));
  }

  takeEvicted(): readonly BlockKey[] {
    const evicted = this.#evicted;
    this.#evicted = [];
    return evicted;
  }

  counters(): Readonly<Record<string, number>> {
    return { ...this.#counters, ...this.#others?.counters };
  }

  levels(): Readonly<Record<string, number>> {
    const { totalBytes: bytes, count: blocks } = this.#lru;
    return { ...this.#others?.levels, bytes, blocks, stuckThreads: this.stuckCount };
  }

  /** The running removal of other models' blocks, if there is one. */
  get othersBounded(): Promise<void> {
    return this.#others?.running ?? Promise.resolve();
  }

  /** Blocks in the directory that this tier cannot use. */
  countOthers(): Promise<OtherBlocks> {
    return this.#call('count other blocks', () =>
      withTimeout(othersTimeoutMs, (signal) => this.#ask({ kind: 'countOthers' }, signal), this.#closing.signal),
    );
  }

  /** Does not wait for threads that are stuck. */
  async close(): Promise<void> {
    this.#others?.close();
    this.#hung.close();
    await this.#calls.close();
    this.#closing.abort(new Error('the tier is closed'));
    await this.#pool.close();
  }

  get #threads(): number {
    return this.#options.threads ?? defaultThreads;
  }

  async #lookUp(keys: readonly BlockKey[], signal: AbortSignal): Promise<LookupAnswers> {
    const answers = SharedAnswers.for(keys.length);
    const threads = Math.min(this.#threads, Math.ceil(keys.length / keysPerThread));
    const askThread = async (): Promise<void> => {
      const failed = await this.#ask({ kind: 'has', keys, answers: answers.memory }, signal);
      for (const [key, code] of failed) this.#lookUpFailed(key, code);
    };
    const results = await Promise.allSettled(Array.from({ length: threads }, askThread));
    const failure = results.find((outcome) => outcome.status === 'rejected');
    if (failure !== undefined && !signal.aborted && results.every(({ status }) => status === 'rejected')) {
      throw this.#failed('look up blocks', failure.reason);
    }
    return answers.all();
  }

  async #store(key: BlockKey, bytes: Uint8Array, signal: AbortSignal): Promise<StoreAnswer> {
    const size = headerBytes + bytes.length;
    if (size > this.#maxBytes) return 'full';
    await unlessAborted(this.#knowFolder(), signal);
    const isNew = !this.#lru.touch(key);
    // Counted before it is written, because several stores at once must not use the same free bytes.
    if (isNew) this.#lru.set(key, size);
    try {
      const answer = await this.#write(key, bytes, signal);
      if (answer !== 'stored') {
        if (answer === 'full') this.#lru.delete(key);
        return answer;
      }
    } catch (error) {
      this.#lru.delete(key);
      if (isFull(error)) return 'full';
      throw error;
    }
    this.#storedSinceScan += size;
    this.#count('stored');
    return 'stored';
  }

  /** If the disk is full, evicts other blocks and writes again. Once, because other programs may fill the disk. */
  async #write(key: BlockKey, bytes: Uint8Array, signal: AbortSignal): Promise<StoreAnswer> {
    const isStored = async (): Promise<boolean> => (await this.#lookUp([key], signal))[0] === true;
    if (this.#lru.totalBytes > this.#maxBytes) {
      // No eviction if the block is stored already.
      if (await isStored()) return 'alreadyStored';
      if (!(await this.#makeRoom(this.#maxBytes, signal))) return 'full';
    }
    const write = (): Promise<StoreAnswer> =>
      this.#ask({ kind: 'store', key, bytes: addressOfBytes(bytes) }, signal, bytes);
    try {
      return await write();
    } catch (error) {
      if (!isFull(error)) throw error;
      this.#count('diskFull');
      const rest = Math.max(0, this.#lru.totalBytes - headerBytes - bytes.length);
      if (!(await this.#makeRoom(rest, signal))) throw error;
      return write();
    }
  }

  /** Evicts the oldest blocks until at most `maxBytes` are left; false if the rest is being written. */
  async #makeRoom(maxBytes: number, signal: AbortSignal): Promise<boolean> {
    const victims: BlockKey[] = [];
    let isEnough = true;
    while (this.#lru.totalBytes > maxBytes) {
      const oldest = this.#oldest();
      if (oldest === undefined) {
        isEnough = false;
        break;
      }
      this.#lru.delete(oldest);
      this.#evicted.push(oldest);
      this.#count('evicted');
      victims.push(oldest);
    }
    if (victims.length > 0) await this.#remove(victims, signal);
    return isEnough;
  }

  #oldest(): BlockKey | undefined {
    for (const key of this.#lru.names()) if (!this.#storing.has(key)) return key;
    return undefined;
  }

  /**
   * Reads the folder before the first store, and again after an eighth of `maxBytes` was stored, for other processes'
   * blocks.
   */
  async #knowFolder(): Promise<void> {
    if (this.#scan !== undefined && this.#storedSinceScan <= this.#maxBytes / 8) return this.#scan;
    this.#storedSinceScan = 0;
    this.#others?.start();
    this.#scan = this.#readFolder();
    try {
      await this.#scan;
    } catch (error) {
      this.#scan = undefined;
      throw error;
    }
  }

  async #readFolder(): Promise<void> {
    const nowMs = (this.#options.wallNowMs ?? Date.now)();
    const found = await withTimeout(
      scanTimeoutMs,
      (signal) => this.#ask({ kind: 'scan', nowMs }, signal),
      this.#closing.signal,
    );
    // Unknown blocks were written after the last scan, so they are newer than the known blocks.
    for (const { key, bytes } of found) if (!this.#lru.has(key)) this.#lru.set(key, bytes);
  }

  #boundOthers(maxBytes: number): Promise<OthersLeft> {
    const nowMs = (this.#options.wallNowMs ?? Date.now)();
    const call = { kind: 'boundOthers', maxBytes, nowMs } as const;
    return withTimeout(othersTimeoutMs, (signal) => this.#ask(call, signal), this.#closing.signal);
  }

  async #remove(keys: readonly BlockKey[], signal: AbortSignal): Promise<void> {
    for (const key of keys) {
      this.mend(key);
      this.#lru.delete(key);
    }
    await this.#ask({ kind: 'remove', keys }, signal);
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

  /** `memory`: the memory whose address is in the call. */
  #ask<Call extends DiskCall>(
    call: Call,
    signal: AbortSignal,
    memory?: Uint8Array,
  ): Promise<DiskAnswers[Call['kind']]> {
    return this.#pool.run(call, signal, memory) as Promise<DiskAnswers[Call['kind']]>;
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

const nameOf = ({ name }: DiskTierOptions): string => name ?? 'disk';

function newPool(options: DiskTierOptions): IoPool<DiskCall, DiskAnswer> {
  const { root, identity, fsync = false, crc32 } = options;
  const setup: Omit<DiskThreadSetup, 'cell'> = { root, identity, fsync, crc32Library: crc32?.library };
  return new IoPool({
    entry: threadEntry(import.meta.url, 'disk-thread-main'),
    setup,
    threadsMax: options.threads ?? defaultThreads,
    stuckMax,
    clock: systemClock,
    timers: systemTimers,
    tooManyStuck: (count) =>
      tierFailed({
        tier: nameOf(options),
        action: 'take a call',
        reason: `${count} calls of the file system at ${root} do not return`,
      }),
  });
}

/** If folders of other models do not answer, the tier opens without this information. */
async function neighboursOf(
  options: DiskTierOptions,
  pool: IoPool<DiskCall, DiskAnswer>,
): Promise<DiskAnswers['neighbours']> {
  const timeoutMs = Math.min(options.openTimeoutMs ?? openTimeoutMs, neighboursTimeoutMs);
  try {
    const found = await withTimeout(timeoutMs, (signal) => pool.run({ kind: 'neighbours' }, signal));
    return found as DiskAnswers['neighbours'];
  } catch (error) {
    if (error instanceof AssertionError) throw error;
    return [`folders of other models in ${options.root} cannot be read: ${messageOf(error)}`];
  }
}

/** Runs a call that has no other time limit. */
async function withTimeout<T>(
  timeoutMs: number,
  call: (signal: AbortSignal) => Promise<T>,
  closing?: AbortSignal,
): Promise<T> {
  const controller = new AbortController();
  const timer = setTimeout(() => {
    const error = new Error(`no answer in ${timeoutMs / 1000} s`);
    controller.abort(Object.assign(error, { code: 'ETIMEDOUT' }));
  }, timeoutMs);
  timer.unref();
  const onClose = (): void => controller.abort(closing?.reason);
  closing?.addEventListener('abort', onClose, { once: true });
  try {
    return await call(controller.signal);
  } finally {
    clearTimeout(timer);
    closing?.removeEventListener('abort', onClose);
  }
}

/** Waits for the promise or the abort. The work of the promise continues after an abort. */
async function unlessAborted<T>(promise: Promise<T>, signal: AbortSignal): Promise<T> {
  let onAbort = (): void => undefined;
  const aborted = new Promise<never>((_, reject) => {
    onAbort = () => reject(signal.reason as Error);
    if (signal.aborted) onAbort();
    else signal.addEventListener('abort', onAbort, { once: true });
  });
  try {
    return await Promise.race([promise, aborted]);
  } finally {
    signal.removeEventListener('abort', onAbort);
  }
}

const messageOf = (error: unknown): string => (error instanceof Error ? error.message : String(error));

import { access, readFile, unlink, writeFile } from 'node:fs/promises';
import { dirname } from 'node:path';
import { KvasirError } from '../base/errors.ts';
import { BlockCodec, headerBytes } from './block-header.ts';
import type { BlockKey } from './block-key.ts';
import type { Crc32, KvIdentity } from './connector.ts';
import { codeOf, isFull, isMissing, readBlockFile, writeBlockFile } from './disk-file.ts';
import { DiskFolder } from './disk-folder.ts';
import { tierClosed, tierFailed } from './errors.ts';
import { type LookupAnswers, lookUpEach } from './look-up.ts';
import { LruBytes } from './lru-bytes.ts';
import { OpenCalls } from './open-calls.ts';
import { OtherFoldersBound } from './other-folders.ts';
import type { MissReason } from './reasons.ts';
import type { StoreAnswer, TamperableTier } from './tier.ts';

export interface DiskTierOptions {
  /** Shared by all models, ranks and processes; each finds its own folder in it. */
  readonly root: string;
  readonly identity: KvIdentity;
  /** Of this rank's folder, headers included. Other processes' blocks are counted when the folder is read again. */
  readonly maxBytes: number;
  /** Of the blocks in `root` that belong to other models, layouts and numbers of ranks. Absent: they are left alone. */
  readonly othersMaxBytes?: number;
  /** Default false: after a power cut a block may be torn, which its checksum finds. */
  readonly fsync?: boolean;
  readonly name?: string;
  /** Default: Node's. */
  readonly crc32?: Crc32 | undefined;
  readonly wallNowMs?: () => number;
  /** For what an operator should know while it runs: a folder that cannot be read. Absent: nobody listens. */
  readonly notice?: (message: string) => void;
}

/** How many files are asked for at once in `has`. */
const lookupsAtOnce = 32;

/**
 * Blocks as files in a folder, for any number of processes at once. A block is found by its name alone, so nothing has
 * to be agreed on: whoever stores renames a whole file into place, whoever evicts unlinks it, and a reader that was
 * late finds nothing.
 */
export class DiskTier implements TamperableTier {
  readonly name: string;
  readonly notices: readonly string[];
  readonly #folder: DiskFolder;
  readonly #codec: BlockCodec;
  readonly #maxBytes: number;
  readonly #fsync: boolean;
  /** What is known to lie in the folder, least recently used first; after a restart, least recently written first. */
  readonly #lru = new LruBytes<BlockKey>();
  readonly #calls: OpenCalls;
  readonly #counters: Record<string, number> = {};
  /** In the books, not yet on the disk: not to be let go, and not to be written twice at once. */
  readonly #storing = new Map<BlockKey, Promise<StoreAnswer>>();
  readonly #notice: ((message: string) => void) | undefined;
  /** Reasons for failed look-ups of which somebody was told. */
  readonly #noticed = new Set<string>();
  /** One rank does it for all. */
  readonly #others: OtherFoldersBound | undefined;
  #evicted: BlockKey[] = [];
  #scan: Promise<void> | undefined;
  #storedSinceScan = 0;

  private constructor(options: DiskTierOptions, folder: DiskFolder) {
    this.name = options.name ?? 'disk';
    this.notices = folder.notices;
    this.#folder = folder;
    this.#codec = new BlockCodec(options.identity, options.crc32);
    this.#maxBytes = options.maxBytes;
    this.#fsync = options.fsync ?? false;
    this.#notice = options.notice;
    const { root, identity, othersMaxBytes, wallNowMs = Date.now } = options;
    if (othersMaxBytes !== undefined && identity.rank === 0) {
      this.#others = new OtherFoldersBound(root, identity, othersMaxBytes, wallNowMs);
    }
    this.#calls = new OpenCalls(() => tierClosed({ tier: this.name }));
  }

  /** Throws `storageUnusable`. */
  static async open(options: DiskTierOptions): Promise<DiskTier> {
    const folder = await DiskFolder.open(options.root, options.identity, options.wallNowMs ?? Date.now);
    return new DiskTier(options, folder);
  }

  /** This rank's folder. */
  get path(): string {
    return this.#folder.path;
  }

  fileOf(key: BlockKey): string {
    return this.#folder.fileOf(key);
  }

  has(keys: readonly BlockKey[], signal: AbortSignal): Promise<LookupAnswers> {
    const failed = (key: BlockKey, error: unknown): void => this.#lookUpFailed(key, error);
    return this.#calls.run(() =>
      lookUpEach(keys, signal, (key) => this.#exists(key), { limit: lookupsAtOnce, failed }),
    );
  }

  load(key: BlockKey, into: Uint8Array, signal: AbortSignal): Promise<MissReason | undefined> {
    return this.#call('load a block', async () => {
      signal.throwIfAborted();
      const reason = await this.#read(key, into, signal);
      if (reason === undefined) {
        if (!this.#lru.touch(key)) this.#lru.set(key, headerBytes + into.length);
      } else {
        this.#lru.delete(key);
        if (reason !== 'absent') await this.#folder.quarantine(key, reason);
      }
      this.#count(reason ?? 'loaded');
      return reason;
    });
  }

  store(key: BlockKey, bytes: Uint8Array, signal: AbortSignal): Promise<StoreAnswer> {
    return this.#call('store a block', async () => {
      for (let other = this.#storing.get(key); other !== undefined; other = this.#storing.get(key)) {
        await other.catch(() => {});
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
    return this.#call('delete a block', () => this.#remove(key));
  }

  tamper(key: BlockKey, spoil: (stored: Uint8Array) => Uint8Array): Promise<boolean> {
    return this.#call('tamper with a block', async () => {
      try {
        const path = this.#folder.fileOf(key);
        await writeFile(path, spoil(await readFile(path)));
        return true;
      } catch (error) {
        if (isMissing(error)) return false;
        throw error;
      }
    });
  }

  takeEvicted(): readonly BlockKey[] {
    const evicted = this.#evicted;
    this.#evicted = [];
    return evicted;
  }

  counters(): Readonly<Record<string, number>> {
    return { ...this.#counters, ...this.#others?.counters, bytes: this.#lru.totalBytes, blocks: this.#lru.count };
  }

  /** The removal of other models' blocks that is under way, if there is one. */
  get othersBounded(): Promise<void> {
    return this.#others?.running ?? Promise.resolve();
  }

  close(): Promise<void> {
    this.#others?.close();
    return this.#calls.close();
  }

  async #store(key: BlockKey, bytes: Uint8Array, signal: AbortSignal): Promise<StoreAnswer> {
    signal.throwIfAborted();
    const size = headerBytes + bytes.length;
    if (size > this.#maxBytes) return 'full';
    if (await this.#exists(key)) {
      if (!this.#lru.touch(key)) this.#lru.set(key, size);
      return 'alreadyStored';
    }
    await this.#knowFolder();
    const header = this.#codec.encode(key, bytes);
    // In the books before it is on the disk: several stores at once must not each take the last free bytes.
    this.#lru.set(key, size);
    try {
      if (!(await this.#makeRoom(this.#maxBytes))) {
        this.#lru.delete(key);
        return 'full';
      }
      await this.#write(key, [header, bytes], signal);
    } catch (error) {
      this.#lru.delete(key);
      if (isFull(error)) return 'full';
      throw error;
    }
    this.#storedSinceScan += size;
    this.#count('stored');
    return 'stored';
  }

  async #read(key: BlockKey, into: Uint8Array, signal: AbortSignal): Promise<MissReason | undefined> {
    try {
      const read = await readBlockFile(this.#folder.fileOf(key), into, signal);
      return read === undefined ? 'absent' : this.#codec.verify(key, read.header, into, read.storedBytes);
    } catch (error) {
      if (codeOf(error) === 'EISDIR') return 'notABlock';
      throw error;
    }
  }

  /** A full disk is not the end: other blocks of ours may go. Once, for we may not be the ones who fill it. */
  async #write(key: BlockKey, parts: readonly Uint8Array[], signal: AbortSignal): Promise<void> {
    const path = this.#folder.fileOf(key);
    const write = (): Promise<void> =>
      writeBlockFile(path, parts, signal, { temporaryName: this.#folder.newTemporaryName(path), fsync: this.#fsync });
    try {
      await write();
    } catch (error) {
      if (!isFull(error)) throw error;
      this.#count('diskFull');
      const size = parts.reduce((sum, { length }) => sum + length, 0);
      if (!(await this.#makeRoom(Math.max(0, this.#lru.totalBytes - size)))) throw error;
      await write();
    }
  }

  /** Lets the oldest go until so many bytes are left; false when that is more than can go. */
  async #makeRoom(maxBytes: number): Promise<boolean> {
    while (this.#lru.totalBytes > maxBytes) {
      const oldest = this.#oldest();
      if (oldest === undefined) return false;
      await this.#remove(oldest);
      this.#evicted.push(oldest);
      this.#count('evicted');
    }
    return true;
  }

  #oldest(): BlockKey | undefined {
    for (const key of this.#lru.names()) if (!this.#storing.has(key)) return key;
    return undefined;
  }

  /** Reads the folder before the first store, and again when so much was stored that others' blocks matter too. */
  async #knowFolder(): Promise<void> {
    if (this.#scan !== undefined && this.#storedSinceScan <= this.#maxBytes / 8) return this.#scan;
    this.#storedSinceScan = 0;
    this.#others?.start();
    this.#scan = this.#folder.scan().then((found) => {
      // What we have not seen yet was written since we last looked: it is newer than what we know.
      for (const { key, bytes } of found) if (!this.#lru.has(key)) this.#lru.set(key, bytes);
    });
    try {
      await this.#scan;
    } catch (error) {
      this.#scan = undefined;
      throw error;
    }
  }

  async #exists(key: BlockKey): Promise<boolean> {
    try {
      await access(this.#folder.fileOf(key));
      return true;
    } catch (error) {
      if (isMissing(error)) return false;
      throw error;
    }
  }

  async #remove(key: BlockKey): Promise<void> {
    this.#lru.delete(key);
    try {
      await unlink(this.#folder.fileOf(key));
    } catch (error) {
      if (!isMissing(error)) throw error;
    }
  }

  /** Counted by reason; told once per reason, because each prompt may meet the same folder a hundred times. */
  #lookUpFailed(key: BlockKey, error: unknown): void {
    const reason = codeOf(error) ?? 'error';
    this.#count(`lookupFailed.${reason}`);
    if (this.#noticed.has(reason)) return;
    this.#noticed.add(reason);
    const folder = dirname(this.#folder.fileOf(key));
    this.#notice?.(
      `${folder} cannot be read (${reason}): blocks in it are computed again. Check its type, owner and mode. Other folders with this error are not reported.`,
    );
  }

  async #call<T>(action: string, call: () => Promise<T>): Promise<T> {
    try {
      return await this.#calls.run(call);
    } catch (error) {
      if (codeOf(error) === undefined || error instanceof KvasirError) throw error;
      this.#count('failed');
      throw tierFailed({ tier: this.name, action, reason: (error as Error).message }, error);
    }
  }

  #count(name: string): void {
    this.#counters[name] = (this.#counters[name] ?? 0) + 1;
  }
}

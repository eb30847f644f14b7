import type { BlockKey } from '../block-key.ts';
import type { Crc32, KvIdentity } from '../connector.ts';
import { tierClosed } from '../errors.ts';
import type { MissReason } from '../reasons.ts';
import { BlockCodec, headerBytes } from './block-header.ts';
import type { LookupAnswers } from './look-up.ts';
import { LruBytes } from './lru-bytes.ts';
import { OpenCalls } from './open-calls.ts';
import type { StoreAnswer, TamperableTier } from './tier.ts';

export interface HostTierOptions {
  readonly identity: KvIdentity;
  /** Headers included. */
  readonly maxBytes: number;
  readonly name?: string;
  /** Default: Node's. */
  readonly crc32?: Crc32 | undefined;
}

/**
 * Blocks in the memory of this process. Least recently used blocks are evicted. Loads verify checksums, as in every
 * tier.
 */
export class HostTier implements TamperableTier {
  readonly name: string;
  readonly #codec: BlockCodec;
  readonly #maxBytes: number;
  readonly #stored = new Map<BlockKey, Uint8Array>();
  readonly #lru = new LruBytes<BlockKey>();
  readonly #calls: OpenCalls;
  readonly #counters: Record<string, number> = {};
  #evicted: BlockKey[] = [];

  constructor(options: HostTierOptions) {
    this.name = options.name ?? 'host';
    this.#codec = new BlockCodec(options.identity, options.crc32);
    this.#maxBytes = options.maxBytes;
    this.#calls = new OpenCalls(() => tierClosed({ tier: this.name }));
  }

  has(keys: readonly BlockKey[], signal: AbortSignal): Promise<LookupAnswers> {
    return this.#calls.run(async () => keys.map((key) => (signal.aborted ? undefined : this.#stored.has(key))));
  }

  load(key: BlockKey, into: Uint8Array, signal: AbortSignal): Promise<MissReason | undefined> {
    return this.#calls.run(async () => {
      signal.throwIfAborted();
      const stored = this.#stored.get(key);
      if (stored === undefined) return 'absent';
      const payload = stored.subarray(headerBytes, headerBytes + into.length);
      into.set(payload);
      const header = new Uint8Array(headerBytes);
      header.set(stored.subarray(0, headerBytes));
      const reason = this.#codec.verify(key, header, into, stored.length);
      if (reason === undefined) this.#lru.touch(key);
      else this.#forget(key);
      this.#count(reason ?? 'loaded');
      return reason;
    });
  }

  store(key: BlockKey, bytes: Uint8Array, signal: AbortSignal): Promise<StoreAnswer> {
    return this.#calls.run(async () => {
      signal.throwIfAborted();
      if (this.#lru.touch(key)) return 'alreadyStored';
      const size = headerBytes + bytes.length;
      if (size > this.#maxBytes) return 'full';
      for (const oldest of this.#lru.names()) {
        if (this.#lru.totalBytes + size <= this.#maxBytes) break;
        this.#forget(oldest);
        this.#evicted.push(oldest);
        this.#count('evicted');
      }
      const stored = new Uint8Array(size);
      stored.set(this.#codec.encode(key, bytes));
      stored.set(bytes, headerBytes);
      this.#stored.set(key, stored);
      this.#lru.set(key, size);
      this.#count('stored');
      return 'stored';
    });
  }

  delete(key: BlockKey): Promise<void> {
    return this.#calls.run(async () => this.#forget(key));
  }

  tamper(key: BlockKey, corrupt: (stored: Uint8Array) => Uint8Array): Promise<boolean> {
    return this.#calls.run(async () => {
      const stored = this.#stored.get(key);
      if (stored === undefined) return false;
      const corrupted = corrupt(stored.slice());
      this.#stored.set(key, corrupted);
      this.#lru.set(key, corrupted.length);
      return true;
    });
  }

  takeEvicted(): readonly BlockKey[] {
    const evicted = this.#evicted;
    this.#evicted = [];
    return evicted;
  }

  counters(): Readonly<Record<string, number>> {
    return { ...this.#counters };
  }

  levels(): Readonly<Record<string, number>> {
    return { bytes: this.#lru.totalBytes, blocks: this.#lru.count };
  }

  close(): Promise<void> {
    return this.#calls.close();
  }

  #forget(key: BlockKey): void {
    this.#stored.delete(key);
    this.#lru.delete(key);
  }

  #count(name: string): void {
    this.#counters[name] = (this.#counters[name] ?? 0) + 1;
  }
}

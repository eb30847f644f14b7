import { AssertionError } from '../../../base/assert.ts';
import { backgroundTimers } from '../../../base/background-timers.ts';
import { delay } from '../../../base/deadlines.ts';
import { unlessAborted } from '../../../base/unless-aborted.ts';
import type { BlockKey } from '../../block-key.ts';
import type { SaltTag } from '../../salt-tag.ts';
import type { DiskBound } from './disk-bound.ts';
import { type DiskThreads, withTimeout } from './disk-threads.ts';

export interface KnownFolderParts {
  readonly bound: DiskBound;
  readonly threads: DiskThreads;
  readonly maxBytes: number;
  /** Whether the tags of cache salts are read, which takes a call of the file system for each file that is new. */
  readonly readsSalts: boolean;
  /** The tier is closed. */
  readonly closing: AbortSignal;
  wallNowMs(): number;
  /** Called before the folder is read, except for `removeExpired`. */
  reads(): void;
  count(name: string): void;
}

/** For a folder with the largest number of files. */
const scanTimeoutMs = 120_000;
/** Of one call for tags: each file is opened. */
const filesAtOnce = 4096;
const removeTimeoutMs = 30_000;
const sweepMinMs = 1_000;
const sweepMaxMs = 600_000;

/** Tells a `DiskBound` what other processes, and this process before a restart, have stored in the folder. */
export class KnownFolder {
  readonly #parts: KnownFolderParts;
  #scan: Promise<void> | undefined;
  #storedSinceScan = 0;

  constructor(parts: KnownFolderParts) {
    this.#parts = parts;
  }

  /** This process has stored a block. */
  stored(bytes: number): void {
    this.#storedSinceScan += bytes;
  }

  /** Reads the folder before the first store, and again after an eighth of `maxBytes` was stored. */
  async know(): Promise<void> {
    const { maxBytes, reads } = this.#parts;
    if (this.#scan !== undefined && this.#storedSinceScan <= maxBytes / 8) return this.#scan;
    this.#storedSinceScan = 0;
    reads();
    this.#scan = this.#read();
    try {
      await this.#scan;
    } catch (error) {
      this.#scan = undefined;
      throw error;
    }
  }

  /** At once, and then ten times in the time to live, until the tier is closed. */
  async removeExpired(ttlSeconds: number): Promise<void> {
    const { closing } = this.#parts;
    const pauseMs = Math.min(sweepMaxMs, Math.max(sweepMinMs, ttlSeconds * 100));
    while (!closing.aborted) {
      // A folder that cannot be read is reported by the calls that need it.
      await this.#read().catch((error: unknown) => {
        if (error instanceof AssertionError) throw error;
      });
      await unlessAborted(delay(backgroundTimers, pauseMs), closing).catch(() => undefined);
    }
  }

  async #read(): Promise<void> {
    const { bound, threads, closing, wallNowMs, count } = this.#parts;
    const { lastStamp } = bound;
    const call = { kind: 'scan', nowMs: wallNowMs() } as const;
    const { found, expired } = await withTimeout(scanTimeoutMs, (signal) => threads.ask(call, signal), closing);
    const tags = await this.#saltTags(found.map(({ key }) => key).filter((key) => !bound.has(key)));
    // Unknown blocks were written after the last scan, so they are newer than the known blocks.
    for (const { key, bytes } of found) bound.found(key, bytes, tags.get(key));
    for (const key of expired) {
      count('expired');
      const stamp = bound.stampOf(key);
      if (stamp !== undefined && stamp <= lastStamp) bound.gone(key, stamp);
    }
    await this.#trim();
  }

  async #saltTags(keys: readonly BlockKey[]): Promise<ReadonlyMap<BlockKey, SaltTag | undefined>> {
    const { threads, closing, readsSalts } = this.#parts;
    const tags = new Map<BlockKey, SaltTag | undefined>();
    for (let start = 0; readsSalts && start < keys.length; start += filesAtOnce) {
      const call = { kind: 'saltTags', keys: keys.slice(start, start + filesAtOnce) } as const;
      const found = await withTimeout(scanTimeoutMs, (signal) => threads.ask(call, signal), closing);
      for (const [i, key] of call.keys.entries()) tags.set(key, found[i]);
    }
    return tags;
  }

  async #trim(): Promise<void> {
    const { bound, threads, closing } = this.#parts;
    const keys = bound.overQuota();
    if (keys.length === 0) return;
    const stamps = keys.map((key) => bound.stampOf(key));
    await withTimeout(removeTimeoutMs, (signal) => threads.ask({ kind: 'remove', keys }, signal), closing);
    for (const [i, key] of keys.entries()) bound.trimmed(key, stamps[i]);
  }
}

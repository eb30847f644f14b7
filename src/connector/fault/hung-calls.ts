import { setMaxListeners } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { CallThread } from '../../base/call-thread.ts';
import { Fifo } from '../../base/fifo.ts';
import { entryPoint } from '../../base/package-files.ts';
import type { BlockKey } from '../block-key.ts';
import { type HangableTier, isHangable, type Tier, type TierCall } from '../tier/tier.ts';

/** An abort signal that is never aborted. */
export const never: AbortSignal = new AbortController().signal;
// Each hung call listens to it. From the eleventh on, Node would warn of a leak.
setMaxListeners(0, never);

/** So many released FIFOs stay open, because a thread may be about to open one. */
const releasedMax = 16;

/** The FIFO where threads of a tier block for one call of one key. */
interface Blocked {
  readonly fifo: Fifo;
  /** Calls that wait. If there are none, the threads of calls that were given up may still be blocked. */
  waiting: number;
}

/** Of FIFOs of this process. If it exits without closing its tiers, it removes them too. A killed process leaves them. */
const folders = new Set<string>();
let isExitWatched = false;

function newFolder(): string {
  if (!isExitWatched) process.once('exit', () => folders.forEach(removeFolder));
  isExitWatched = true;
  const folder = mkdtempSync(join(tmpdir(), `kvasir-hung-${process.pid}-`));
  folders.add(folder);
  return folder;
}

function removeFolder(folder: string): void {
  rmSync(folder, { recursive: true, force: true });
  folders.delete(folder);
}

/**
 * Calls that hang. As long as one hangs, a thread is blocked in a system call that does not return: a read from an empty FIFO.
 *
 *     a tier with threads (`HangableTier`)    each call blocks a thread of the tier, also after an abort, until
 *                                             `recover` or `release`
 *     everything else                         one thread of this object is blocked while any call hangs
 *
 * The FIFOs are in a folder of the system's folder for temporary files. On a system without FIFOs no thread is blocked.
 */
export class HungCalls {
  readonly #tier: HangableTier | undefined;
  /** By call and key. */
  readonly #blocked = new Map<string, Blocked>();
  readonly #waiting = new Set<() => void>();
  readonly #released: Fifo[] = [];
  #folder: string | undefined;
  #serial = 0;
  #thread: CallThread<string, void> | undefined;
  /** Where the own thread is blocked. */
  #fifo: Fifo | undefined;
  /** No call hangs any more: the object is closed. */
  #hasEnded: boolean = false;

  constructor(tier?: Tier) {
    this.#tier = tier !== undefined && isHangable(tier) ? tier : undefined;
  }

  /**
   * Resolves when the call is released. Rejects with the signal's reason at an abort, unless the call ignores aborts. A tier
   * with too many blocked threads rejects it at once, like every call.
   */
  async hang(on: TierCall, key: BlockKey, ignoresAbort: boolean, signal: AbortSignal): Promise<void> {
    if (this.#hasEnded) return;
    const blocked = this.#tier === undefined ? undefined : this.#blockedFor(`${on}/${key}`);
    if (blocked !== undefined) return this.#hangInTier(on, blocked, ignoresAbort, signal);
    this.#blockOwnThread();
    try {
      await this.#untilReleased(ignoresAbort ? never : signal);
    } finally {
      if (this.#waiting.size === 0) this.#unblockOwnThread();
    }
  }

  /** The call for this key does not hang any more. Threads return that are blocked for calls that were given up. */
  recover(on: TierCall, key: BlockKey): void {
    const name = `${on}/${key}`;
    const blocked = this.#blocked.get(name);
    if (blocked?.waiting !== 0) return;
    this.#blocked.delete(name);
    this.#release(blocked.fifo);
  }

  /** Ends all calls that hang. */
  release(): void {
    for (const { fifo } of this.#blocked.values()) this.#release(fifo);
    this.#blocked.clear();
    this.#unblockOwnThread();
    for (const resolve of [...this.#waiting]) resolve();
  }

  /** Ends all calls that hang, and later ones at once. */
  end(): void {
    this.#hasEnded = true;
    this.release();
  }

  /** After the tier has closed: its threads need the FIFOs until then. */
  async close(): Promise<void> {
    this.end();
    await this.#thread?.close();
    for (const fifo of this.#released.splice(0)) fifo.close();
    if (this.#folder !== undefined) removeFolder(this.#folder);
  }

  async #hangInTier(on: TierCall, blocked: Blocked, ignoresAbort: boolean, signal: AbortSignal): Promise<void> {
    const released = ignoresAbort ? this.#untilReleased(never) : undefined;
    blocked.waiting++;
    try {
      await this.#tier!.hang(on, blocked.fifo.path, signal).catch((error: unknown) => {
        if (!ignoresAbort || !signal.aborted) throw error;
      });
      await released;
    } finally {
      blocked.waiting--;
    }
  }

  #blockedFor(name: string): Blocked | undefined {
    const known = this.#blocked.get(name);
    if (known !== undefined) return known;
    const fifo = this.#newFifo();
    if (fifo === undefined) return undefined;
    const blocked = { fifo, waiting: 0 };
    this.#blocked.set(name, blocked);
    return blocked;
  }

  #blockOwnThread(): void {
    if (this.#fifo !== undefined) return;
    this.#fifo = this.#newFifo();
    if (this.#fifo === undefined) return;
    this.#thread ??= new CallThread(entryPoint('src/connector/fault/hung-thread-main'), undefined, 'kvasir-hung');
    const thread = this.#thread;
    thread.ignore();
    const returned = (): void => {
      if (thread.openCount === 0) thread.heed();
    };
    thread.call(this.#fifo.path).then(returned, returned);
  }

  #unblockOwnThread(): void {
    if (this.#fifo === undefined) return;
    this.#release(this.#fifo);
    this.#fifo = undefined;
  }

  #newFifo(): Fifo | undefined {
    try {
      this.#folder ??= newFolder();
      return Fifo.make(join(this.#folder, `${this.#serial++}`));
    } catch {
      // The folder for temporary files cannot be written.
      return undefined;
    }
  }

  #release(fifo: Fifo): void {
    fifo.release();
    this.#released.push(fifo);
    if (this.#released.length > releasedMax) this.#released.shift()!.close();
  }

  #untilReleased(signal: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      const settle = (how: () => void): void => {
        this.#waiting.delete(release);
        signal.removeEventListener('abort', onAbort);
        how();
      };
      const release = (): void => settle(resolve);
      const onAbort = (): void => settle(() => reject(signal.reason as Error));
      this.#waiting.add(release);
      if (signal.aborted) onAbort();
      else signal.addEventListener('abort', onAbort, { once: true });
    });
  }
}

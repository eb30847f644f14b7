import { backgroundTimers } from '../../../base/background-timers.ts';
import { systemClock } from '../../../base/clock.ts';
import { withDeadline } from '../../../base/deadlines.ts';
import { entryPoint } from '../../../base/package-files.ts';
import { tierFailed } from '../../errors.ts';
import { systemTimers } from '../../system-timers.ts';
import type { DiskAnswer, DiskAnswers, DiskCall, DiskThreadSetup } from './disk-calls.ts';
import { IoPool } from './io-pool.ts';

export interface DiskThreadsOptions {
  readonly setup: Omit<DiskThreadSetup, 'cell'>;
  /** Of the tier, for errors. */
  readonly name: string;
  readonly threadsMax: number;
  /** Further threads of low priority for stores; 0: the same threads do everything. */
  readonly backgroundWritersMax: number;
}

/** Calls that no request waits for. */
const backgroundCalls: ReadonlySet<DiskCall['kind']> = new Set(['store', 'scan', 'saltTags', 'boundOthers']);

/**
 * The threads of a disk tier. With background writers, stores have threads of their own with a low priority, because a
 * request waits for a load, and never for a store. These threads mostly use time in which the model does not compute.
 */
export class DiskThreads {
  readonly #usual: IoPool<DiskCall, DiskAnswer>;
  readonly #background: IoPool<DiskCall, DiskAnswer> | undefined;

  constructor({ setup, name, threadsMax, backgroundWritersMax }: DiskThreadsOptions) {
    const pool = (countMax: number, isBackground: boolean): IoPool<DiskCall, DiskAnswer> =>
      new IoPool({
        entry: entryPoint('src/connector/tier/disk/disk-thread-main'),
        isBackground,
        setup,
        threadsMax: countMax,
        clock: systemClock,
        timers: systemTimers,
        tooManyStuck: (count) =>
          tierFailed({
            tier: name,
            action: 'take a call',
            reason: `${count} calls of the file system at ${setup.root} do not return`,
          }),
      });
    this.#usual = pool(threadsMax, false);
    this.#background = backgroundWritersMax === 0 ? undefined : pool(backgroundWritersMax, true);
  }

  /** Threads whose call was given up and has not returned. */
  get stuckCount(): number {
    return this.#usual.stuckCount + (this.#background?.stuckCount ?? 0);
  }

  /** Threads in a call whose result is still needed. */
  get busyCount(): number {
    return this.#usual.busyCount + (this.#background?.busyCount ?? 0);
  }

  /** `memory`: the memory whose address is in the call. */
  ask<Call extends DiskCall>(call: Call, signal: AbortSignal, memory?: Uint8Array): Promise<DiskAnswers[Call['kind']]> {
    const kind = call.kind === 'hang' ? call.on : call.kind;
    const pool = (backgroundCalls.has(kind) ? this.#background : undefined) ?? this.#usual;
    return pool.run(call, signal, memory) as Promise<DiskAnswers[Call['kind']]>;
  }

  /** Starts threads before they are needed. Background writers start at the first store. */
  start(count: number): void {
    this.#usual.start(count);
  }

  /** Does not wait for threads that are stuck. */
  async close(): Promise<void> {
    await Promise.all([this.#usual.close(), this.#background?.close()]);
  }
}

/** Runs a call that has no other time limit. */
export const withTimeout = <T>(
  timeoutMs: number,
  call: (signal: AbortSignal) => Promise<T>,
  signal?: AbortSignal,
): Promise<T> => withDeadline({ timers: backgroundTimers, timeoutMs, signal, late }, call);

const late = (message: string): Error => Object.assign(new Error(message), { code: 'ETIMEDOUT' });

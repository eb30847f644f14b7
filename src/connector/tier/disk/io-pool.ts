import { setMaxListeners } from 'node:events';
import { assert } from '../../../base/assert.ts';
import type { Clock } from '../../../base/clock.ts';
import type { Timers } from '../../../base/timers.ts';
import { StallWatch, stuckMax } from '../../transfer/stall-watch.ts';
import { CallCell } from './call-cell.ts';
import { type IoThread, type IoThreadKind, keepIoThread, takeIoThread } from './io-threads.ts';

/**
 * Threads for calls that may never return. Each runs one call at a time.
 *
 *     starting --> idle --> busy --> idle
 *                             \
 *                              stuck (its call was given up) --> idle or ended, if the call ever returns
 *
 * A stuck thread is replaced, so that other calls can run, up to a bound. With more stuck threads, all calls fail at once
 * until a stuck thread returns, because the store is down.
 *
 * Threads start one after the other, and only while calls wait. The start of a thread takes longer than a hundred calls,
 * so one thread often answers all waiting calls before the next has started.
 *
 * A busy thread whose call stalls (`StallWatch`) is also replaced if calls wait, within the same bound. The call may last
 * until its deadline, and the waiting calls have deadlines too.
 */
export class IoPool<Call, Answer> {
  readonly #options: IoPoolOptions;
  readonly #slots = new Set<Slot>();
  readonly #queue: Waiting<Call, Answer>[] = [];
  readonly #stalls: StallWatch<Slot>;
  #isClosed: boolean = false;

  constructor(options: IoPoolOptions) {
    this.#options = options;
    const { clock, timers } = options;
    this.#stalls = new StallWatch({ clock, timers, onStall: () => this.#pump() });
  }

  /** Threads whose call was given up and has not returned. */
  get stuckCount(): number {
    return this.#countOf('stuck');
  }

  /** Threads in a call whose result is still needed. */
  get busyCount(): number {
    return this.#countOf('busy');
  }

  /**
   * Rejects at an abort with the signal's reason, unless the thread has claimed the call (`CallCell`). Rejects with
   * `tooManyStuck` if too many threads are stuck. `memory` is not collected until the call has returned.
   */
  run(call: Call, signal: AbortSignal, memory?: unknown): Promise<Answer> {
    assert(!this.#isClosed, 'a call to a closed pool');
    return new Promise((resolve, reject) => {
      if (signal.aborted) {
        reject(signal.reason as Error);
        return;
      }
      const waiting: Waiting<Call, Answer> = {
        call,
        memory,
        resolve,
        reject,
        signal,
        isGivenUp: false,
        onAbort: () => undefined,
      };
      waiting.onAbort = () => this.#abortWaiting(waiting);
      // Many calls may share one signal. Node warns of a leak from the eleventh listener on.
      setMaxListeners(0, signal);
      signal.addEventListener('abort', waiting.onAbort, { once: true });
      this.#queue.push(waiting);
      this.#pump();
    });
  }

  /** Starts threads before they are needed, because a start takes some tens of milliseconds. */
  start(count: number): void {
    while (this.#slots.size < Math.min(count, this.#options.threadsMax)) this.#newSlot();
  }

  /** Waits for calls whose results are still needed, not for stuck calls. */
  async close(): Promise<void> {
    this.#isClosed = true;
    await Promise.all([...this.#slots].map((slot) => this.#release(slot)));
  }

  #countOf(wanted: Slot['state']): number {
    let count = 0;
    for (const { state } of this.#slots) if (state === wanted) count++;
    return count;
  }

  #pump(): void {
    if (this.stuckCount >= stuckMax) {
      const error = this.#options.tooManyStuck(this.stuckCount);
      for (const waiting of this.#queue.splice(0)) settle(waiting, () => waiting.reject(error));
    }
    while (this.#queue.length > 0) {
      // One signal may abort many calls: this may run between the listeners of two of them.
      const next = this.#queue[0]!;
      if (next.signal.aborted) {
        this.#dequeue(next);
        continue;
      }
      const slot = this.#idleSlot();
      if (slot === undefined) break;
      this.#queue.shift();
      this.#runOn(slot, next);
    }
    this.#stalls.watch(this.#queue.length > 0);
  }

  #idleSlot(): Slot | undefined {
    for (const slot of this.#slots) if (slot.state === 'idle') return slot;
    if (this.#countOf('starting') === 0 && this.#liveCount < this.#options.threadsMax) this.#addSlot();
    return undefined;
  }

  /** Without memory for a thread, other threads answer the waiting calls. If there are none, the calls fail. */
  #addSlot(): void {
    try {
      this.#newSlot();
    } catch (error) {
      if (this.#slots.size > this.stuckCount) return;
      for (const waiting of this.#queue.splice(0)) settle(waiting, () => waiting.reject(error as Error));
    }
  }

  /**
   * Threads that need no replacement. If the calls of all threads stall and are given up, fewer than `stuckMax` are stuck.
   * So one transfer of many blocks that hang does not stop the calls of other transfers.
   */
  get #liveCount(): number {
    const { threadsMax } = this.#options;
    const { stuckCount } = this;
    const replacedMax = Math.max(0, stuckMax - 1 - threadsMax - stuckCount);
    return this.#slots.size - stuckCount - Math.min(this.#stalls.stalledCount, replacedMax);
  }

  #newSlot(): void {
    const { setup, isBackground } = this.#options;
    const cell = new CallCell();
    const thread = takeIoThread(this.#options);
    const slot: Slot = { thread, cell, state: 'starting', onIdle: () => undefined };
    this.#slots.add(slot);
    const ready = thread.started.then(() => thread.call({ setup: { ...setup, cell: cell.memory }, isBackground }));
    ready.then(
      () => {
        slot.state = 'idle';
        slot.onIdle();
        this.#pump();
      },
      (error: Error) => this.#ended(slot, error),
    );
    void thread.gone.then((error) => this.#ended(slot, error));
  }

  #ended(slot: Slot, error: Error): void {
    if (!this.#slots.delete(slot)) return;
    this.#stalls.finish(slot);
    slot.onIdle();
    // The calls fail, because a thread that cannot start would be started repeatedly.
    if (slot.state !== 'starting') this.#pump();
    else for (const waiting of this.#queue.splice(0)) settle(waiting, () => waiting.reject(error));
  }

  #runOn(slot: Slot, waiting: Waiting<Call, Answer>): void {
    const { signal, call } = waiting;
    assert(slot.state === 'idle', `a thread that is ${slot.state} gets a call`);
    assert(!signal.aborted, 'a call that was given up is run');
    signal.removeEventListener('abort', waiting.onAbort);
    slot.state = 'busy';
    this.#stalls.begin(slot);
    slot.cell.begin();
    waiting.onAbort = () => {
      assert(slot.state === 'busy', `the call of a thread that is ${slot.state} is given up`);
      waiting.isGivenUp = true;
      // The thread ends a claimed call soon.
      if (!slot.cell.abandon()) return;
      slot.state = 'stuck';
      this.#stalls.giveUp(slot);
      slot.thread.ignore();
      slot.onIdle();
      settle(waiting, () => waiting.reject(signal.reason as Error));
      this.#pump();
    };
    signal.addEventListener('abort', waiting.onAbort, { once: true });
    slot.thread.call({ call }).then(
      (answer) => this.#returned(slot, waiting, () => waiting.resolve(answer as Answer)),
      (error: Error) =>
        this.#returned(slot, waiting, () => waiting.reject(waiting.isGivenUp ? (signal.reason as Error) : error)),
    );
  }

  #returned(slot: Slot, waiting: Waiting<Call, Answer>, answer: () => void): void {
    const wasStuck = slot.state === 'stuck';
    assert(wasStuck || slot.state === 'busy', `a thread that is ${slot.state} has returned from a call`);
    slot.state = 'idle';
    this.#stalls.finish(slot);
    if (slot.thread.hasEnded) this.#slots.delete(slot);
    if (wasStuck) slot.thread.heed();
    else settle(waiting, answer);
    // The thread was replaced meanwhile.
    if (this.#liveCount > this.#options.threadsMax || (wasStuck && this.#isClosed)) {
      this.#slots.delete(slot);
      slot.thread.end();
    }
    slot.onIdle();
    this.#pump();
  }

  /** Makes a thread spare when its call has ended. A stuck thread ends if its call ever returns. */
  async #release(slot: Slot): Promise<void> {
    if (slot.state === 'starting' || slot.state === 'busy') {
      await new Promise<void>((resolve) => {
        slot.onIdle = resolve;
      });
    }
    if (!this.#slots.has(slot)) return;
    if (slot.state === 'stuck') slot.thread.end();
    else {
      this.#slots.delete(slot);
      await keepIoThread(this.#options, slot.thread);
    }
  }

  #abortWaiting(waiting: Waiting<Call, Answer>): void {
    this.#dequeue(waiting);
    this.#stalls.watch(this.#queue.length > 0);
  }

  /** Settles a call that waits and was given up. */
  #dequeue(waiting: Waiting<Call, Answer>): void {
    assert(waiting.signal.aborted, 'a call that waits ends only at an abort');
    const at = this.#queue.indexOf(waiting);
    assert(at >= 0, 'a call that waits is in the queue');
    this.#queue.splice(at, 1);
    settle(waiting, () => waiting.reject(waiting.signal.reason as Error));
  }
}

export interface IoPoolOptions extends IoThreadKind {
  /** Plain data for the threads. The pool adds `cell`, the memory of the thread's `CallCell`. */
  readonly setup: object;
  /** Threads that are not stuck and do not stall. */
  readonly threadsMax: number;
  readonly clock: Clock;
  readonly timers: Timers;
  readonly tooManyStuck: (count: number) => Error;
}

interface Slot {
  readonly thread: IoThread;
  readonly cell: CallCell;
  state: 'starting' | 'idle' | 'busy' | 'stuck';
  /** Called when the thread becomes idle, is stuck or ends, for `close`. */
  onIdle: () => void;
}

interface Waiting<Call, Answer> {
  readonly call: Call;
  readonly memory: unknown;
  readonly signal: AbortSignal;
  readonly resolve: (answer: Answer) => void;
  readonly reject: (error: Error) => void;
  isGivenUp: boolean;
  onAbort: () => void;
}

function settle<Call, Answer>({ signal, onAbort }: Waiting<Call, Answer>, how: () => void): void {
  signal.removeEventListener('abort', onAbort);
  how();
}

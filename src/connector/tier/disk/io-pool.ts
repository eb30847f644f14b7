import { setMaxListeners } from 'node:events';
import { assertDefined } from '../../../base/assert.ts';
import { CallThread, serveCalls } from '../../../base/call-thread.ts';
import type { Clock } from '../../../base/clock.ts';
import type { Timers } from '../../timers.ts';
import { StallWatch } from '../../transfer/stall-watch.ts';

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
 * A busy thread whose call stalls (`StallWatch`) is also replaced if calls wait, within the same bound: the call may last
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
    return new Promise((resolve, reject) => {
      if (signal.aborted) {
        reject(signal.reason as Error);
        return;
      }
      const waiting: Waiting<Call, Answer> = { call, memory, resolve, reject, signal, onAbort: () => undefined };
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
    if (this.stuckCount >= this.#options.stuckMax) {
      const error = this.#options.tooManyStuck(this.stuckCount);
      for (const waiting of this.#queue.splice(0)) settle(waiting, () => waiting.reject(error));
    }
    while (this.#queue.length > 0) {
      const slot = this.#idleSlot();
      if (slot === undefined) break;
      this.#runOn(slot, this.#queue.shift()!);
    }
    this.#stalls.watch(this.#queue.length > 0);
  }

  #idleSlot(): Slot | undefined {
    for (const slot of this.#slots) if (slot.state === 'idle') return slot;
    const wanted = this.#queue.length - this.#countOf('starting');
    const missing = Math.min(wanted, this.#options.threadsMax - this.#liveCount);
    for (let i = 0; i < missing; i++) this.#newSlot();
    return undefined;
  }

  /**
   * Threads that need no replacement. If the calls of all threads stall and are given up, fewer than `stuckMax` are stuck.
   * So one transfer of many blocks that hang does not stop the calls of other transfers.
   */
  get #liveCount(): number {
    const { threadsMax, stuckMax } = this.#options;
    const { stuckCount } = this;
    const replacedMax = Math.max(0, stuckMax - 1 - threadsMax - stuckCount);
    return this.#slots.size - stuckCount - Math.min(this.#stalls.stalledCount, replacedMax);
  }

  #newSlot(): void {
    const { entry, setup } = this.#options;
    const cell = new CallCell();
    const thread = spares.pop(entry);
    const slot: Slot = { thread, cell, state: 'starting', onIdle: () => undefined };
    this.#slots.add(slot);
    const ready = thread.started.then(() => thread.call({ setup: { ...setup, cell: cell.memory } }));
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
    this.#stalls.giveUp(slot);
    slot.onIdle();
    // The calls fail, because a thread that cannot start would be started repeatedly.
    if (slot.state !== 'starting') this.#pump();
    else for (const waiting of this.#queue.splice(0)) settle(waiting, () => waiting.reject(error));
  }

  #runOn(slot: Slot, waiting: Waiting<Call, Answer>): void {
    const { signal, call } = waiting;
    signal.removeEventListener('abort', waiting.onAbort);
    slot.state = 'busy';
    this.#stalls.begin(slot);
    slot.cell.begin();
    waiting.onAbort = () => {
      // The thread ends a claimed call at once.
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
      (error: Error) => this.#returned(slot, waiting, () => waiting.reject(error)),
    );
  }

  #returned(slot: Slot, waiting: Waiting<Call, Answer>, answer: () => void): void {
    const wasStuck = slot.state === 'stuck';
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
      await spares.push(this.#options.entry, slot.thread);
    }
  }

  #abortWaiting(waiting: Waiting<Call, Answer>): void {
    this.#queue.splice(this.#queue.indexOf(waiting), 1);
    this.#stalls.watch(this.#queue.length > 0);
    settle(waiting, () => waiting.reject(waiting.signal.reason as Error));
  }
}

export interface IoPoolOptions {
  /** The built file of the threads; it calls `serveIoCalls`. */
  readonly entry: URL;
  /** Plain data for the threads. The pool adds `cell`, the memory of the thread's `CallCell`. */
  readonly setup: object;
  /** Threads that are not stuck and do not stall. */
  readonly threadsMax: number;
  /** With this many stuck threads, calls fail at once. */
  readonly stuckMax: number;
  readonly clock: Clock;
  readonly timers: Timers;
  readonly tooManyStuck: (count: number) => Error;
}

/**
 * Decides between a thread that writes a result into the caller's memory and a caller that gives up. Only one of them
 * succeeds, so a call that was given up writes nothing afterwards.
 */
export class CallCell {
  readonly memory: SharedArrayBuffer;
  readonly #state: Int32Array;

  constructor(memory = new SharedArrayBuffer(4)) {
    this.memory = memory;
    this.#state = new Int32Array(memory);
  }

  begin(): void {
    Atomics.store(this.#state, 0, cellStates.wanted);
  }

  /** For the caller. False: the thread has claimed the call, and answers at once. */
  abandon(): boolean {
    return Atomics.compareExchange(this.#state, 0, cellStates.wanted, cellStates.abandoned) === cellStates.wanted;
  }

  /** For the thread. False: the result is not needed. True: the thread may only do short work that does not block. */
  claim(): boolean {
    return Atomics.compareExchange(this.#state, 0, cellStates.wanted, cellStates.claimed) === cellStates.wanted;
  }

  get isAbandoned(): boolean {
    return Atomics.load(this.#state, 0) === cellStates.abandoned;
  }
}

const cellStates = { wanted: 0, claimed: 1, abandoned: 2 } as const;

/** A thread serves one pool after another, with a setup for each. */
type IoMessage<Setup, Call> = { readonly setup: Setup } | { readonly call: Call };

/**
 * The main function of a pool's threads. `open` gets the pool's setup and returns the function for calls, which may
 * block.
 */
export function serveIoCalls<Setup, Call, Answer>(open: (setup: Setup) => (call: Call) => Answer): void {
  serveCalls(() => {
    let answer: ((call: Call) => Answer) | undefined;
    return (message: IoMessage<Setup, Call>): Answer | undefined => {
      if ('call' in message) return assertDefined(answer, 'a call before the setup')(message.call);
      answer = open(message.setup);
      return undefined;
    };
  });
}

type IoThread = CallThread<IoMessage<object, unknown>, unknown>;

/** Threads of closed pools, for reuse: starting a thread takes a hundred times as long as a call. */
class SpareThreads {
  readonly #spares: { readonly entry: string; readonly thread: IoThread }[] = [];

  /** A spare thread, or a new one. */
  pop(entry: URL): IoThread {
    const at = this.#spares.findIndex((spare) => spare.entry === entry.href);
    const [found] = at < 0 ? [] : this.#spares.splice(at, 1);
    return found === undefined || found.thread.hasEnded ? new CallThread(entry, undefined, 'kvasir I/O') : found.thread;
  }

  async push(entry: URL, thread: IoThread): Promise<void> {
    if (this.#spares.length < sparesMax) this.#spares.push({ entry: entry.href, thread });
    else await thread.close();
  }
}

const sparesMax = 8;
const spares = new SpareThreads();

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
  onAbort: () => void;
}

function settle<Call, Answer>({ signal, onAbort }: Waiting<Call, Answer>, how: () => void): void {
  signal.removeEventListener('abort', onAbort);
  how();
}

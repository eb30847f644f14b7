import { setMaxListeners } from 'node:events';
import { AssertionError, assert } from '../../base/assert.ts';
import type { Clock } from '../../base/clock.ts';
import type { Timer, Timers } from '../../base/timers.ts';
import type { TransferId } from '../connector.ts';
import { StallWatch } from './stall-watch.ts';

/** Why the queue ends an item before its run has ended. */
export type QueueReason = 'timedOut' | 'cancelled' | 'storeFailed' | 'closed';

/** Decides when waiting items may start. Urgent items and flushed transfers start in any case. */
export interface TransferGate {
  readonly isOpen: boolean;
  /** Calls once, when it is open or may be. */
  whenOpen(callback: () => void): void;
}

export interface TransferQueueOptions<Item, Reason extends string> {
  /** How many items run at once. A few that stall or were given up do not count (`StallWatch`). */
  readonly concurrency: number;
  readonly clock: Clock;
  readonly timers: Timers;
  /** Default: always open. */
  readonly gate?: TransferGate | undefined;
  /**
   * Moves the bytes of one item. Undefined = done. Settles only when no I/O touches the item's memory, also after an
   * abort. A rejection counts as `storeFailed`.
   */
  readonly run: (item: Item, signal: AbortSignal) => Promise<Reason | undefined>;
  /** A transfer was decided or drained. */
  readonly onChange: () => void;
}

export interface QueueReport<Item, Reason extends string> {
  /** The result of every item is known. Items that failed are in `failures` of this report or an earlier one. */
  readonly decided: readonly TransferId[];
  /** No I/O touches the memory of the items. */
  readonly drained: readonly TransferId[];
  readonly failures: readonly {
    readonly transfer: TransferId;
    readonly item: Item;
    readonly reason: Reason | QueueReason;
    /** The item was given up while it ran. */
    readonly wasRunning: boolean;
    /** The item was given up and still runs: its memory is busy until the transfer is drained. */
    readonly isBusy: boolean;
  }[];
  /** Items that are done, of transfers that were not decided then. */
  readonly done: readonly { readonly transfer: TransferId; readonly item: Item }[];
}

/** The reason of the abort signal, which distinguishes a deadline from a cancellation. */
class TransferEnded extends Error {
  readonly reason: QueueReason;

  constructor(reason: QueueReason) {
    super(`the transfer has ended: ${reason}`);
    this.reason = reason;
  }
}

/**
 * Runs transfers of many items with bounded concurrency and one deadline for each transfer, counted from its submission.
 *
 *     submitted --> decided (done, failed, or given up at the deadline) --> drained
 *
 * An item that ends after it was given up is counted and changes nothing (I6). Until it ends, the transfer is not drained,
 * and its memory stays pinned (I5).
 */
export class TransferQueue<Item, Reason extends string> {
  readonly #options: TransferQueueOptions<Item, Reason>;
  readonly #open = new Map<TransferId, Transfer<Item>>();
  readonly #urgent: Waiting<Item>[] = [];
  readonly #ordinary: Waiting<Item>[] = [];
  readonly #stalls: StallWatch<number>;
  #serial = 0;
  #queued = 0;
  #late = 0;
  #isClosed: boolean = false;
  #waitsForGate: boolean = false;
  #decided: TransferId[] = [];
  #drained: TransferId[] = [];
  #done: { transfer: TransferId; item: Item }[] = [];
  #failures: { transfer: Transfer<Item>; index: number; reason: Reason | QueueReason; wasRunning: boolean }[] = [];
  #idlers: (() => void)[] = [];

  constructor(options: TransferQueueOptions<Item, Reason>) {
    assert(options.concurrency >= 1, 'a queue with a concurrency below 1');
    this.#options = options;
    const { clock, timers } = options;
    this.#stalls = new StallWatch({ clock, timers, onStall: () => this.#pump() });
  }

  /** Transfers that are not drained. */
  get openCount(): number {
    return this.#open.size;
  }

  /** Items that ended after they were given up. */
  get lateCount(): number {
    return this.#late;
  }

  /** Urgent items start before all other waiting items. */
  submit(
    id: TransferId,
    items: readonly Item[],
    options: { readonly timeoutMs: number; readonly urgent?: boolean },
  ): void {
    assert(!this.#open.has(id), `transfer ${id} is under way already`);
    const controller = new AbortController();
    // Each running item adds a listener. Node warns of a leak from the eleventh listener on.
    setMaxListeners(0, controller.signal);
    const transfer: Transfer<Item> = {
      id,
      items,
      isGivenUp: new Array<boolean>(items.length).fill(false),
      phases: new Array<Phase>(items.length).fill('waiting'),
      undecided: items.length,
      running: 0,
      controller,
      deadline: undefined,
      waiters: [],
      flushers: [],
      firstSerial: this.#serial,
    };
    this.#serial += items.length;
    this.#open.set(id, transfer);
    const queue = options.urgent === true ? this.#urgent : this.#ordinary;
    for (let index = 0; index < items.length; index++) {
      this.#queued++;
      if (this.#isClosed) this.#decide(transfer, index, 'closed');
      else queue.push({ transfer, index });
    }
    if (transfer.undecided > 0) {
      transfer.deadline = this.#options.timers.after(options.timeoutMs, () => this.#giveUp(transfer, 'timedOut'));
    }
    this.#settle(transfer);
    this.#pump();
  }

  /**
   * Starts the waiting items of the transfer at once, also beyond `concurrency`. Resolves when the transfer is drained; at
   * once for unknown ids.
   */
  flush(id: TransferId): Promise<void> {
    const transfer = this.#open.get(id);
    if (transfer === undefined) return Promise.resolve();
    for (let i = 0; i < transfer.items.length; i++) if (transfer.phases[i] === 'waiting') this.#start(transfer, i);
    return new Promise((resolve) => {
      transfer.flushers.push(resolve);
    });
  }

  /** Gives the transfer up. Unknown ids are ignored, because the transfer may have ended. */
  cancel(id: TransferId): void {
    const transfer = this.#open.get(id);
    if (transfer !== undefined) this.#giveUp(transfer, 'cancelled');
  }

  /** Resolves when the result of every item is known; at once for unknown ids. */
  whenDecided(id: TransferId): Promise<void> {
    const transfer = this.#open.get(id);
    if (transfer === undefined || transfer.undecided === 0) return Promise.resolve();
    return new Promise((resolve) => {
      transfer.waiters.push(resolve);
    });
  }

  /** Resolves when all transfers are drained, which is never if a call hangs. */
  whenDrained(): Promise<void> {
    if (this.#open.size === 0) return Promise.resolve();
    return new Promise((resolve) => {
      this.#idlers.push(resolve);
    });
  }

  /** The changes since the last call. */
  takeReport(): QueueReport<Item, Reason> {
    const failures = this.#failures.map(({ transfer, index, reason, wasRunning }) => {
      // The current phase, not the phase when the item was given up: most runs end soon after the abort.
      const isBusy = transfer.phases[index] === 'running';
      return { transfer: transfer.id, item: transfer.items[index]!, reason, wasRunning, isBusy };
    });
    const report = { decided: this.#decided, drained: this.#drained, failures, done: this.#done };
    this.#done = [];
    this.#decided = [];
    this.#drained = [];
    this.#failures = [];
    return report;
  }

  /** Gives all transfers up, also those that are submitted later. Running items are drained when they end. */
  close(): void {
    this.#isClosed = true;
    for (const transfer of [...this.#open.values()]) this.#giveUp(transfer, 'closed');
  }

  checkInvariants(): void {
    let [queued, running, stuck, stalled] = [0, 0, 0, 0];
    for (const { phases, isGivenUp, running: own, firstSerial } of this.#open.values()) {
      let ownRunning = 0;
      for (let i = 0; i < phases.length; i++) {
        if (phases[i] === 'waiting') queued++;
        if (phases[i] !== 'running') continue;
        ownRunning++;
        if (isGivenUp[i]) stuck++;
        else if (this.#stalls.isStalled(firstSerial + i)) stalled++;
      }
      assert(ownRunning === own, `a transfer runs ${ownRunning} items, its count says ${own}`);
      running += ownRunning;
    }
    assert(queued === this.#queued, `${queued} items wait, the count says ${this.#queued}`);
    const { runningCount, stuckCount, stalledCount } = this.#stalls;
    assert(running === runningCount, `${running} items run, the count says ${runningCount}`);
    assert(stuck === stuckCount, `${stuck} items are stuck, the count says ${stuckCount}`);
    assert(stalled === stalledCount, `${stalled} items stall, the count says ${stalledCount}`);
  }

  #pump(): void {
    while (this.#stalls.occupiedCount < this.#options.concurrency) {
      const next = this.#urgent.shift() ?? this.#nextOrdinary();
      if (next === undefined) break;
      if (next.transfer.phases[next.index] === 'waiting') this.#start(next.transfer, next.index);
    }
    this.#stalls.watch(this.#queued > 0);
  }

  #nextOrdinary(): Waiting<Item> | undefined {
    if (this.#ordinary.length === 0) return undefined;
    const { gate } = this.#options;
    if (gate === undefined || gate.isOpen) return this.#ordinary.shift();
    if (!this.#waitsForGate) {
      this.#waitsForGate = true;
      gate.whenOpen(() => {
        this.#waitsForGate = false;
        this.#pump();
      });
    }
    return undefined;
  }

  #start(transfer: Transfer<Item>, index: number): void {
    transfer.phases[index] = 'running';
    transfer.running++;
    this.#queued--;
    this.#stalls.begin(transfer.firstSerial + index);
    void this.#runOne(transfer.items[index]!, transfer.controller.signal).then((reason) => {
      transfer.phases[index] = 'over';
      transfer.running--;
      this.#stalls.finish(transfer.firstSerial + index);
      if (transfer.isGivenUp[index]) this.#late++;
      else this.#count(transfer, index, reason);
      this.#settle(transfer);
      this.#pump();
    });
  }

  async #runOne(item: Item, signal: AbortSignal): Promise<Reason | QueueReason | undefined> {
    try {
      return await this.#options.run(item, signal);
    } catch (error) {
      // An assertion failure is not counted as a cache miss: it ends the process as an unhandled rejection.
      if (error instanceof AssertionError) throw error;
      return 'storeFailed';
    }
  }

  #giveUp(transfer: Transfer<Item>, reason: QueueReason): void {
    for (let i = 0; i < transfer.items.length; i++) this.#decide(transfer, i, reason);
    // After the counts are updated, because the abort calls the stores.
    transfer.controller.abort(new TransferEnded(reason));
    this.#settle(transfer);
    this.#pump();
  }

  #decide(transfer: Transfer<Item>, index: number, reason: QueueReason): void {
    const phase = transfer.phases[index];
    if (phase === 'over' || transfer.isGivenUp[index]) return;
    transfer.isGivenUp[index] = true;
    if (phase === 'running') this.#stalls.giveUp(transfer.firstSerial + index);
    else {
      transfer.phases[index] = 'over';
      this.#queued--;
    }
    this.#count(transfer, index, reason);
  }

  #count(transfer: Transfer<Item>, index: number, reason: Reason | QueueReason | undefined): void {
    transfer.undecided--;
    if (reason === undefined) {
      if (transfer.undecided > 0) this.#done.push({ transfer: transfer.id, item: transfer.items[index]! });
      return;
    }
    this.#failures.push({ transfer, index, reason, wasRunning: transfer.phases[index] === 'running' });
  }

  #settle(transfer: Transfer<Item>): void {
    if (transfer.undecided > 0 || !this.#open.has(transfer.id)) return;
    if (transfer.deadline !== 'over') {
      transfer.deadline?.cancel();
      transfer.deadline = 'over';
      this.#decided.push(transfer.id);
      for (const resolve of transfer.waiters.splice(0)) resolve();
      this.#options.onChange();
    }
    if (transfer.running > 0) return;
    this.#open.delete(transfer.id);
    this.#drained.push(transfer.id);
    for (const resolve of transfer.flushers.splice(0)) resolve();
    this.#options.onChange();
    if (this.#open.size > 0) return;
    for (const resolve of this.#idlers.splice(0)) resolve();
  }
}

type Phase = 'waiting' | 'running' | 'over';

interface Transfer<Item> {
  readonly id: TransferId;
  readonly items: readonly Item[];
  readonly phases: Phase[];
  /** Whether each item was given up before its run ended. */
  readonly isGivenUp: boolean[];
  undecided: number;
  running: number;
  readonly controller: AbortController;
  /** `over`: the transfer is decided. */
  deadline: Timer | 'over' | undefined;
  readonly waiters: (() => void)[];
  readonly flushers: (() => void)[];
  /** The serial number of the first item; the other items have the numbers after it. */
  readonly firstSerial: number;
}

interface Waiting<Item> {
  readonly transfer: Transfer<Item>;
  readonly index: number;
}

/** Whether the queue itself ended the item with this reason, before or while it ran. */
export const isGivenUpBy = (reason: string): boolean => ['timedOut', 'cancelled', 'closed'].includes(reason);

/** Whether the queue aborted the signal at a deadline. */
export const hasTimedOut = ({ reason }: AbortSignal): boolean =>
  reason instanceof TransferEnded && reason.reason === 'timedOut';

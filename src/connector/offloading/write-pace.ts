import { assert } from '../../base/assert.ts';
import type { Clock } from '../../base/clock.ts';
import type { Timer, Timers } from '../../base/timers.ts';
import type { TransferGate } from '../transfer/transfer-queue.ts';

export interface WritePaceOptions {
  readonly clock: Clock;
  readonly timers: Timers;
  /** Whether all CPUs of the machine are in use. */
  readonly isBusy: () => boolean;
  /** The part of the time for writes while the machine is saturated; 1: no limit. */
  readonly busyShare: number;
}

/** After a forward pass, the engine counts as computing for this time, because the next pass usually follows. */
const forwardGapMs = 50;
/** A write that takes longer no longer delays the others, because its tier may hang. The pause after it is as long. */
const hungMs = 1_000;
/** The longest pause. */
const pauseMaxMs = 10_000;
/**
 * No write starts during the first two seconds of loads. The loads of one request have about this time by default. If blocks load
 * for longer without a gap, many requests load, and writes get their share again.
 */
const loadsAloneMs = 2_000;
/**
 * No write starts during the first seconds of forward passes without a gap. Most bursts of requests are shorter, and their blocks
 * are written at full speed in the gap after them.
 */
const burstMs = 5_000;
/** Copies to host memory wait no longer. */
export const longestHoldMs = burstMs;

/**
 * Decides when blocks may be written to the tiers below host memory. Writes need CPU time for system calls, copies and
 * sockets, and often for a server on the same machine. The threads of a forward pass wait for each other, so a write on
 * one core delays all of them.
 *
 *     the engine is idle, or a CPU is idle:          writes start at once
 *     the machine is saturated, or blocks load:      one write of all tiers at a time, and a pause after each write
 *     blocks load, for the first two seconds:        no write starts
 *     saturated, for the first five seconds:         no write starts, and no copy to host memory (`copies`)
 *
 *         write        pause        write        pause           busyShare = write / (write + pause)
 *         |###|-----------------------|###|--------------------
 */
export class WritePace {
  readonly #options: WritePaceOptions;
  /** Of tiers with blocks to write, in the order of their turns. */
  readonly #waiting = new Set<() => void>();
  /** Of the writes that have not ended. */
  readonly #startTimes = new Set<{ readonly ms: number }>();
  /** What waits to copy blocks to host memory. */
  #waitingCopies: (() => void)[] = [];
  /** Until then another server may wait for blocks. */
  #leasedUntilMs = Number.NEGATIVE_INFINITY;
  #isClosed: boolean = false;
  #isComputing: boolean = false;
  #computedAtMs = Number.NEGATIVE_INFINITY;
  /** Since when the engine computes without a gap. */
  #computingSinceMs = Number.NEGATIVE_INFINITY;
  /** In progress. */
  #loads = 0;
  /** Since when blocks load without a gap. */
  #loadingSinceMs = Number.NEGATIVE_INFINITY;
  /** While the machine is saturated, the next write starts at this time or later. */
  #nextAtMs = Number.NEGATIVE_INFINITY;
  #timer: Timer | undefined;

  constructor(options: WritePaceOptions) {
    assert(options.busyShare > 0 && options.busyShare <= 1, `a share of ${options.busyShare}`);
    this.#options = options;
  }

  /** A forward pass begins, goes on or has ended. Cheap, because it is called for each layer. */
  computing(isComputing: boolean): void {
    if (isComputing && this.#isComputing) return;
    const nowMs = this.#nowMs;
    if (isComputing && !this.#computesAt(nowMs)) this.#computingSinceMs = nowMs;
    this.#isComputing = isComputing;
    this.#computedAtMs = nowMs;
  }

  /** A load begins. A request waits for it, and writes would delay it: both use the event loop, and perhaps the same tier. */
  beginLoad(): void {
    if (this.#loads++ === 0) this.#loadingSinceMs = this.#nowMs;
  }

  endLoad(): void {
    assert(this.#loads > 0, 'a load ends that did not begin');
    this.#loads--;
  }

  get isLoading(): boolean {
    return this.#loads > 0;
  }

  /**
   * Begins a write, and returns the function to call when the write has ended or was given up. Undefined: no write may
   * start now, and `tryAgain` is called once, later.
   */
  begin(tryAgain: () => void): (() => void) | undefined {
    if (!this.#mayBegin()) {
      if (!this.#isClosed) this.#waiting.add(tryAgain);
      this.#startTimer();
      return undefined;
    }
    const start = { ms: this.#nowMs };
    this.#startTimes.add(start);
    return () => {
      if (!this.#startTimes.delete(start)) return;
      const ms = this.#nowMs - start.ms;
      const pauseMs = Math.min(ms * (1 / this.#options.busyShare - 1), ms < hungMs ? pauseMaxMs : hungMs);
      this.#nextAtMs = this.#nowMs + pauseMs;
      this.#startTimer();
    };
  }

  /**
   * Copies from the pool to host memory. In a burst they would take the time of compute threads, and the pool still has the blocks. A
   * step that overwrites a block copies it first, in any case.
   */
  readonly copies: TransferGate = ((pace: WritePace) => ({
    get isOpen() {
      return !pace.#areCopiesHeld;
    },
    whenOpen(callback: () => void) {
      pace.#waitingCopies.push(callback);
      pace.#startTimer();
    },
  }))(this);

  /** Another server waits for blocks: for this time, copies are made at once. */
  lease(forMs: number): void {
    this.#leasedUntilMs = Math.max(this.#leasedUntilMs, this.#nowMs + forMs);
    this.#callWaiting();
  }

  /** Calls no tier any more. */
  close(): void {
    this.#isClosed = true;
    this.#waitingCopies = [];
    this.#timer?.cancel();
    this.#timer = undefined;
    this.#waiting.clear();
  }

  get #nowMs(): number {
    return this.#options.clock.nowMs();
  }

  #mayBegin(): boolean {
    if (this.#isClosed) return false;
    if (!this.#isSaturated()) return true;
    return !this.#areLoadsAlone && !this.#isBurst && !this.#isWriting && this.#nowMs >= this.#nextAtMs;
  }

  get #areCopiesHeld(): boolean {
    if (this.#isClosed || this.#nowMs < this.#leasedUntilMs) return false;
    return this.#options.busyShare !== 1 && this.#isBurst && this.#options.isBusy();
  }

  get #areLoadsAlone(): boolean {
    return this.isLoading && this.#nowMs - this.#loadingSinceMs < loadsAloneMs;
  }

  get #isBurst(): boolean {
    const nowMs = this.#nowMs;
    return this.#computesAt(nowMs) && nowMs - this.#computingSinceMs < burstMs;
  }

  #computesAt(nowMs: number): boolean {
    return this.#isComputing || nowMs - this.#computedAtMs < forwardGapMs;
  }

  get #isWriting(): boolean {
    for (const { ms } of this.#startTimes) if (this.#nowMs - ms < hungMs) return true;
    return false;
  }

  #isSaturated(): boolean {
    const { isBusy, busyShare } = this.#options;
    if (busyShare === 1) return false;
    if (this.isLoading) return true;
    return this.#computesAt(this.#nowMs) && isBusy();
  }

  #startTimer(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
    if (this.#waiting.size === 0 && this.#waitingCopies.length === 0) return;
    // Not later than after a gap, because the engine may be idle by then.
    const isBlocked = this.#isWriting || this.#areLoadsAlone || this.#isBurst;
    const pauseMs = isBlocked ? forwardGapMs : Math.min(this.#nextAtMs - this.#nowMs, forwardGapMs);
    this.#timer = this.#options.timers.after(Math.max(0, pauseMs), () => {
      this.#callWaiting();
      this.#startTimer();
    });
  }

  /** A tier that has more blocks to write than it may begin waits again, behind the others. */
  #callWaiting(): void {
    if (!this.#areCopiesHeld) for (const copy of this.#waitingCopies.splice(0)) copy();
    for (const tryAgain of [...this.#waiting]) {
      if (!this.#mayBegin()) return;
      this.#waiting.delete(tryAgain);
      tryAgain();
    }
  }
}

import { assert } from '../base/assert.ts';
import type { ScheduledStep } from '../scheduler/contract.ts';

export interface WorkerWatchOptions {
  /** How long a worker may leave a ping unanswered; the other limits are multiples of it. Infinity: no limits. */
  readonly timeoutMs: number;
  readonly deadlines: StepDeadlines;
  /** Sends a ping to the worker. */
  readonly ping: () => void;
  /** `reason`: the predicate of a sentence, `did not answer for 10 s and was killed`. Called once. */
  readonly onStuck: (reason: string) => void;
}

/** Loading may block the event loop of a worker longer than a step does. */
const startTimeouts = 6;
const tickMsMax = 1_000;

/**
 * Distinguishes a worker that hangs from a slow worker.
 *
 * No answer: the event loop of a worker is free while kernels compute, so a working worker answers pings at any time. A
 * worker whose process is stopped (SIGSTOP, a frozen container) sends no answer.
 * An endless step: the worker answers pings, and has computed one step for much longer than expected.
 *
 * Time is counted in ticks of this process, and a late tick counts as two at most. So time in which this process was
 * stopped, or the machine suspended, does not count, and no worker is killed for it.
 */
export class WorkerWatch {
  readonly #options: WorkerWatchOptions;
  readonly #tickMs: number;
  #timer: NodeJS.Timeout | undefined;
  #lastTickMs = performance.now();
  #isStarting: boolean = true;
  #isPinged: boolean = false;
  #silentMs = 0;
  #hasStep: boolean = false;
  #isComputing: boolean = false;
  #computingMs = 0;
  #stepLimitMs = Infinity;
  #isStuck: boolean = false;

  constructor(options: WorkerWatchOptions) {
    this.#options = options;
    this.#tickMs = Math.min(tickMsMax, options.timeoutMs / 4);
    if (options.timeoutMs < Infinity) {
      this.#timer = setInterval(() => this.tickAt(performance.now()), this.#tickMs).unref();
    }
  }

  /** Time since a ping without an answer, if it is at least half of the timeout, or `leastMs` if that is less. */
  unansweredMs(leastMs = Infinity): number | undefined {
    return this.#silentMs >= Math.min(leastMs, this.#options.timeoutMs / 2) ? this.#silentMs : undefined;
  }

  /** The worker has sent a message of any kind. */
  messageReceived(): void {
    this.#silentMs = 0;
  }

  /** The worker has answered a ping. */
  answered(isComputing: boolean): void {
    assert(this.#isPinged, 'a worker answers a ping that was not sent');
    this.#isPinged = false;
    this.#isComputing = isComputing;
  }

  /** The worker has loaded and serves. */
  started(): void {
    assert(this.#isStarting, 'a worker starts to serve twice');
    this.#isStarting = false;
  }

  stepBegins(cost: number): void {
    assert(!this.#isStarting && !this.#hasStep, 'a step begins before its worker can compute it');
    this.#hasStep = true;
    this.#isComputing = false;
    this.#computingMs = 0;
    this.#stepLimitMs = this.#options.deadlines.limitMs(cost);
  }

  stepEnded(): void {
    assert(this.#hasStep, 'a step ends that has not begun');
    this.#hasStep = false;
    this.#stepLimitMs = Infinity;
  }

  stop(): void {
    clearInterval(this.#timer);
  }

  /** `elapsedMs`: time in which this process ran. */
  tick(elapsedMs: number): void {
    assert(elapsedMs >= 0, `a tick of ${elapsedMs} ms`);
    if (!this.#isPinged) {
      this.#isPinged = true;
      this.#silentMs = 0;
      this.#options.ping();
    } else {
      this.#silentMs += elapsedMs;
    }
    if (this.#isComputing) this.#computingMs += elapsedMs;
    const { timeoutMs } = this.#options;
    const limitMs = this.#isStarting ? startTimeouts * timeoutMs : timeoutMs;
    if (this.#silentMs >= limitMs) this.#stuck(`did not answer for ${seconds(limitMs)} s and was killed`);
    else if (this.#computingMs >= this.#stepLimitMs) {
      this.#stuck(`computed one step for ${seconds(this.#computingMs)} s and was killed`);
    }
  }

  /** `nowMs`: of a monotonic clock. The clock runs while this process is stopped, so at most two ticks of a gap count. */
  tickAt(nowMs: number): void {
    const elapsedMs = Math.min(nowMs - this.#lastTickMs, 2 * this.#tickMs);
    this.#lastTickMs = nowMs;
    this.tick(elapsedMs);
  }

  #stuck(reason: string): void {
    assert(!this.#isStuck, `a worker that was killed ${reason}`);
    this.#isStuck = true;
    this.stop();
    this.#options.onStuck(reason);
  }
}

const seconds = (ms: number): number => Math.round(ms / 100) / 10;

/** After this many steps, the speed of a rank is known. Before, a step has the deadline of a cold start. */
const stepsToLearn = 3;
const coldTimeouts = 30;
const leastTimeouts = 6;
/** A step may take this many times the expected time. */
const slack = 20;
/** The slowest rate decays slowly, so that many fast steps do not shorten the deadline of a slow one. */
const rateDecay = 0.99;

/** How long one step of a rank may compute, learned from earlier steps. Restarted processes of the rank share it. */
export class StepDeadlines {
  readonly #timeoutMs: number;
  #steps = 0;
  #msPerCost = 0;

  constructor(timeoutMs: number) {
    this.#timeoutMs = timeoutMs;
  }

  learn(cost: number, computeMs: number): void {
    assert(cost >= 0 && computeMs >= 0, `a step of cost ${cost} computed for ${computeMs} ms`);
    if (cost === 0) return;
    this.#steps++;
    this.#msPerCost = Math.max(computeMs / cost, this.#msPerCost * rateDecay);
  }

  limitMs(cost: number): number {
    if (this.#steps < stepsToLearn) return coldTimeouts * this.#timeoutMs;
    return Math.max(leastTimeouts * this.#timeoutMs, slack * this.#msPerCost * cost);
  }
}

/** A token after a context of this length takes about twice the time of a token without context. */
const contextOfOneToken = 2_048;

/** The cost of a step, in tokens without context. The estimate is rough, because deadlines have a factor of 20. */
export function stepCost({ sequences }: ScheduledStep): number {
  let cost = 0;
  for (const { spans } of sequences) {
    for (const { start, end } of spans) cost += (end - start) * (1 + (start + end) / 2 / contextOfOneToken);
  }
  return cost;
}

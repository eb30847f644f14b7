import type { Clock } from '../../base/clock.ts';
import type { Timer, Timers } from '../../base/timers.ts';
import type { RunningLookup } from './tier-lookups.ts';

/** How long a look-up that has ended waits for other look-ups: as long as it took itself, within these limits. */
const gatherMinMs = 20;
const gatherMaxMs = 100;

/**
 * Wakes an idle engine once for look-ups that are in progress together. So prompts that arrive together are admitted
 * together. Otherwise the first prompt would be computed alone, and the others in small chunks beside its decodes
 * (`scheduler/pace.ts`), which reads all weights for each chunk.
 *
 * A look-up that has ended waits for the others about as long as it took itself, so a slow look-up delays no other much.
 */
export class GatheredWakes {
  readonly #clock: Clock;
  readonly #timers: Timers;
  readonly #wake: () => void;
  #open = 0;
  #isStepInFlight: boolean = false;
  #isClosed: boolean = false;
  /** Look-ups have ended, and the engine was not woken for them. */
  #timer: Timer | undefined;

  constructor(clock: Clock, timers: Timers, wake: () => void) {
    this.#clock = clock;
    this.#timers = timers;
    this.#wake = wake;
  }

  /**
   * Starts a look-up, and wakes the engine after its end. `start`: calls `done` once, asynchronously, unless the look-up is
   * cancelled. Undefined: no look-up was started.
   */
  start(start: (done: () => void) => RunningLookup | undefined): RunningLookup | undefined {
    const beganMs = this.#clock.nowMs();
    const running = start(() => this.#done(beganMs));
    if (running === undefined) return undefined;
    this.#open++;
    return {
      deadlineMs: running.deadlineMs,
      cancel: () => {
        running.cancel();
        this.#open--;
        if (this.#open === 0 && this.#timer !== undefined) this.#wakeNow();
      },
    };
  }

  get isStepInFlight(): boolean {
    return this.#isStepInFlight;
  }

  /** The engine plans again after this step and not before, so there is nothing to wait for. */
  stepBegins(): void {
    this.#isStepInFlight = true;
    if (this.#timer !== undefined) this.#wakeNow();
  }

  stepEnds(): void {
    this.#isStepInFlight = false;
  }

  /** Wakes the engine no more. */
  close(): void {
    this.#isClosed = true;
    this.#timer?.cancel();
  }

  #done(beganMs: number): void {
    this.#open--;
    if (this.#open === 0 || this.#isStepInFlight) this.#wakeNow();
    else {
      const waitMs = Math.min(Math.max(this.#clock.nowMs() - beganMs, gatherMinMs), gatherMaxMs);
      this.#timer ??= this.#timers.after(waitMs, () => this.#wakeNow());
    }
  }

  #wakeNow(): void {
    if (this.#isClosed) return;
    this.#timer?.cancel();
    this.#timer = undefined;
    this.#wake();
  }
}

import type { Timer } from '../../src/base/timers.ts';
import type { SimulatedTime } from './simulated-time.ts';

/** The clock and the timers of a process. After its death, no timer calls, and its calls to other machines are never answered. */
export class ProcessLife {
  readonly #time: SimulatedTime;
  #isOver: boolean = false;

  constructor(time: SimulatedTime) {
    this.#time = time;
  }

  get isOver(): boolean {
    return this.#isOver;
  }

  end(): void {
    this.#isOver = true;
  }

  nowMs(): number {
    return this.#time.nowMs();
  }

  after(delayMs: number, callback: () => void): Timer {
    return this.#time.after(delayMs, () => {
      if (!this.#isOver) callback();
    });
  }

  /** Does not return if the process has died. */
  async check(): Promise<void> {
    if (this.#isOver) await new Promise<never>(() => undefined);
  }
}

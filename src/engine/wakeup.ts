import { assert } from '../base/assert.ts';

/** Wakes one sleeper. A `notify` before `sleep` is remembered, so no notification is lost before the sleep. */
export class Wakeup {
  #isNotified: boolean = false;
  #wake: (() => void) | undefined;

  notify(): void {
    this.#isNotified = true;
    this.#wake?.();
  }

  /** Resolves at the next `notify`, after `timeoutMs`, or at once if `notify` was called since the last sleep. */
  async sleep(timeoutMs?: number): Promise<void> {
    assert(this.#wake === undefined, 'one sleeper at a time');
    if (!this.#isNotified) {
      let timer: NodeJS.Timeout | undefined;
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
        if (timeoutMs !== undefined) timer = setTimeout(resolve, timeoutMs);
      });
      clearTimeout(timer);
      this.#wake = undefined;
    }
    this.#isNotified = false;
  }
}

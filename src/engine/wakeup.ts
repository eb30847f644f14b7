/** A bell for one sleeper. A ring while nobody sleeps is remembered, so that none is lost between looking and sleeping. */
export class Wakeup {
  #isNotified: boolean = false;
  #wake: (() => void) | undefined;

  notify(): void {
    this.#isNotified = true;
    this.#wake?.();
  }

  /** Resolves at the next ring, at once when it has rung since the last time, or after `timeoutMs`. */
  async sleep(timeoutMs?: number): Promise<void> {
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

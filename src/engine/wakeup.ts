/** A bell for one sleeper. A ring while nobody sleeps is remembered, so that none is lost between looking and sleeping. */
export class Wakeup {
  #hasRung: boolean = false;
  #wake: (() => void) | undefined;

  ring(): void {
    this.#hasRung = true;
    this.#wake?.();
  }

  /** Resolves at the next ring, at once when it has rung since the last time, or after `timeoutMs`. */
  async sleep(timeoutMs?: number): Promise<void> {
    if (!this.#hasRung) {
      let timer: NodeJS.Timeout | undefined;
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
        if (timeoutMs !== undefined) timer = setTimeout(resolve, timeoutMs);
      });
      clearTimeout(timer);
      this.#wake = undefined;
    }
    this.#hasRung = false;
  }
}

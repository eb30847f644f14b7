/** A bell for one sleeper. A ring while nobody sleeps is remembered, so that none is lost between looking and sleeping. */
export class Wakeup {
  #hasRung: boolean = false;
  #wake: (() => void) | undefined;

  ring(): void {
    this.#hasRung = true;
    this.#wake?.();
  }

  /** Resolves at the next ring, or at once when it has rung since the last time. */
  async sleep(): Promise<void> {
    if (!this.#hasRung) {
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
      this.#wake = undefined;
    }
    this.#hasRung = false;
  }
}

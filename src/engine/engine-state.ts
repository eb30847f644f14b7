import { engineClosed } from '../core/errors.ts';
import { reasonOf } from './broken-warning.ts';
import { engineBroken } from './errors.ts';

/** An engine runs, drains, is broken or is closed; broken and closed are final. */
export class EngineState {
  #isDraining: boolean = false;
  #isClosed: boolean = false;
  #failure: { readonly cause: unknown } | undefined;

  get isClosed(): boolean {
    return this.#isClosed;
  }

  get failure(): { readonly cause: unknown } | undefined {
    return this.#failure;
  }

  /** Steps run. */
  get isHealthy(): boolean {
    return !this.#isClosed && this.#failure === undefined;
  }

  drain(): void {
    this.#isDraining = true;
  }

  break(cause: unknown): void {
    this.#failure = { cause };
  }

  close(): void {
    this.#isClosed = true;
  }

  /** @throws KvasirError `engineClosed`. */
  checkNotClosed(): void {
    if (this.#isClosed) throw engineClosed();
  }

  /** @throws KvasirError `engineClosed` or `engineBroken`. */
  checkRunning(): void {
    this.checkNotClosed();
    if (this.#failure === undefined) return;
    const { cause } = this.#failure;
    throw engineBroken({ reason: reasonOf(cause) }, cause);
  }

  /** Whether new requests are accepted. @throws KvasirError `engineClosed` or `engineBroken`. */
  checkOpen(): void {
    if (this.#isDraining) throw engineClosed();
    this.checkRunning();
  }
}

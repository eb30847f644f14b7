import type { ServerResponse } from 'node:http';

/**
 * The responses whose last byte is not with the system yet. Node calls a connection idle as soon as its response was
 * *ended*, bytes still waiting for a slow reader or not, so whoever closes idle connections has to wait for these first.
 */
export class OpenResponses {
  readonly #open = new Set<ServerResponse>();

  add(response: ServerResponse): void {
    this.#open.add(response);
    response.once('close', () => this.#open.delete(response));
  }

  /** Resolves when all that are open now have been sent, or their readers have gone. */
  async sent(): Promise<void> {
    await Promise.all(
      Array.from(this.#open, (response) => new Promise<void>((resolve) => response.once('close', () => resolve()))),
    );
  }
}

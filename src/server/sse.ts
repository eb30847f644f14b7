import type { OutgoingHttpHeaders, ServerResponse } from 'node:http';

export interface EventStreamOptions {
  /** After this time without an event a comment is sent, so that proxies keep the connection during a long prompt. */
  readonly keepAliveMs: number;
  /** If a client reads nothing for this time, its connection is closed. */
  readonly stallTimeoutMs: number;
}

/**
 * One response of server-sent events. Nothing is sent before the first event or comment, so that an earlier error can
 * still set the HTTP status. At most one event waits beyond the socket's buffer: `send` resolves when there is room
 * again, and its caller waits.
 */
export class EventStream {
  readonly #raw: ServerResponse;
  readonly #headers: OutgoingHttpHeaders;
  readonly #stallTimeoutMs: number;
  readonly #keepAlive: NodeJS.Timeout;

  constructor(raw: ServerResponse, headers: OutgoingHttpHeaders, options: EventStreamOptions) {
    this.#raw = raw;
    this.#headers = headers;
    this.#stallTimeoutMs = options.stallTimeoutMs;
    this.#keepAlive = setInterval(() => this.#comment(), options.keepAliveMs);
  }

  /** Whether the head of the response is sent. */
  get isOpen(): boolean {
    return this.#raw.headersSent;
  }

  /** `event`: its type. Resolves when there is room for the next event, or when the connection is closed; then later events are ignored. */
  async send(data: string, event?: string): Promise<void> {
    this.#open();
    this.#keepAlive.refresh();
    if (this.#raw.destroyed || this.#raw.write(`${event === undefined ? '' : `event: ${event}\n`}data: ${data}\n\n`))
      return;
    await this.#drained();
  }

  /** Ends the response, if it was begun. Must be called on every path. */
  close(): void {
    clearInterval(this.#keepAlive);
    if (!this.isOpen) return;
    // No call waits for the reader any more; the socket's timeout closes a connection that stalls on the last events.
    this.#raw.setTimeout(this.#stallTimeoutMs);
    this.#raw.end();
  }

  #open(): void {
    if (this.isOpen) return;
    this.#raw.writeHead(200, {
      ...this.#headers,
      'content-type': 'text/event-stream; charset=utf-8',
      'cache-control': 'no-cache, no-transform',
      // Without it, nginx collects the events until its buffer is full.
      'x-accel-buffering': 'no',
    });
  }

  /** Writes no comment while the reader is slow: the buffer has unread events, and a comment would only fill it. */
  #comment(): void {
    if (this.#raw.writableNeedDrain || this.#raw.destroyed) return;
    this.#open();
    this.#raw.write(': waiting\n\n');
  }

  #drained(): Promise<void> {
    return new Promise((resolve) => {
      const stalled = setTimeout(() => this.#raw.destroy(), this.#stallTimeoutMs);
      const done = (): void => {
        clearTimeout(stalled);
        this.#raw.off('drain', done);
        this.#raw.off('close', done);
        resolve();
      };
      this.#raw.on('drain', done);
      this.#raw.on('close', done);
    });
  }
}

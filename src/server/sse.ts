import type { OutgoingHttpHeaders, ServerResponse } from 'node:http';

export interface EventStreamOptions {
  /** Silence after which a comment is sent, so that proxies keep the connection while a long prompt is computed. */
  readonly keepAliveMs: number;
  /** How long a reader may take nothing at all before its connection is cut. */
  readonly stallTimeoutMs: number;
}

/**
 * One response of server-sent events. Nothing is sent before the first event or keep-alive, so that a failure until
 * then can still be an answer with a status of its own. At most one event waits beyond the socket's own buffer: `send`
 * resolves when the reader has made room, and whoever produces events waits for it.
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

  /** Whether the head of the response is out. */
  get isOpen(): boolean {
    return this.#raw.headersSent;
  }

  /** Resolves when there is room for more, or when the reader is gone: then the rest is silently dropped. */
  async send(data: string): Promise<void> {
    this.#open();
    this.#keepAlive.refresh();
    if (this.#raw.destroyed || this.#raw.write(`data: ${data}\n\n`)) return;
    await this.#drained();
  }

  /** Ends the response, if it was begun. To be called on every path. */
  close(): void {
    clearInterval(this.#keepAlive);
    if (!this.isOpen) return;
    // From here on nobody awaits the reader; the socket's own timeout cuts one that stalls on the last events.
    this.#raw.setTimeout(this.#stallTimeoutMs);
    this.#raw.end();
  }

  #open(): void {
    if (this.isOpen) return;
    this.#raw.writeHead(200, {
      ...this.#headers,
      'content-type': 'text/event-stream; charset=utf-8',
      'cache-control': 'no-cache, no-transform',
      // nginx would otherwise gather the events until its buffer is full.
      'x-accel-buffering': 'no',
    });
  }

  /** While the reader is behind there is no silence to break, and another write would only grow the buffer. */
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

import type { OutgoingHttpHeaders, ServerResponse } from 'node:http';
import { firstOrAll, jsonPieces } from './json-pieces.ts';
import { endWithin, roomIn, writePieces } from './slow-reader.ts';

export const eventStreamDefaults = { keepAliveMs: 15_000, clientTimeoutMs: 30_000 } as const;

export interface EventStreamOptions {
  /** After this time without an event a comment is sent, so that proxies keep the connection during a long prompt. */
  readonly keepAliveMs: number;
  /** If a client reads nothing for this time, its connection is closed. */
  readonly clientTimeoutMs: number;
  /** One JSON per line instead of server-sent events. There are no comments then. */
  readonly isLines?: boolean;
}

/**
 * One response of server-sent events, or of lines. Nothing is sent before the first event or comment, so that an earlier error can
 * still set the HTTP status. At most one event waits beyond the socket's buffer: `send` resolves when there is room
 * again, and its caller waits.
 */
export class EventStream {
  readonly #raw: ServerResponse;
  readonly #headers: OutgoingHttpHeaders;
  readonly #clientTimeoutMs: number;
  readonly #keepAlive: NodeJS.Timeout | undefined;
  readonly #isLines: boolean;
  /** An event is written in part: a comment inside of it would be data. */
  #isWriting: boolean = false;

  constructor(raw: ServerResponse, headers: OutgoingHttpHeaders, options: EventStreamOptions) {
    this.#raw = raw;
    this.#headers = headers;
    this.#clientTimeoutMs = options.clientTimeoutMs;
    this.#isLines = options.isLines ?? false;
    this.#keepAlive = this.#isLines ? undefined : setInterval(() => this.#comment(), options.keepAliveMs);
  }

  /** Whether the head of the response is sent. */
  get isOpen(): boolean {
    return this.#raw.headersSent;
  }

  /** `event`: its type. Resolves when there is room for the next event, or when the connection is closed; then later events are ignored. */
  async send(data: string, event?: string): Promise<void> {
    this.#open();
    this.#keepAlive?.refresh();
    if (this.#raw.destroyed || this.#raw.write(`${this.#begin(event)}${data}${this.#end}`)) return;
    await roomIn(this.#raw, this.#clientTimeoutMs);
  }

  /** The same for the JSON of a value that may be long: it is written in pieces, with a turn of the event loop after each. */
  async sendJson(value: object, event?: string): Promise<void> {
    const written = firstOrAll(jsonPieces(value));
    if (written.only !== undefined) {
      await this.send(written.only, event);
      return;
    }
    this.#open();
    this.#isWriting = true;
    await writePieces(this.#raw, this.#framed(written.pieces, event), this.#clientTimeoutMs);
    this.#isWriting = false;
    this.#keepAlive?.refresh();
  }

  /** Ends the response, if it was begun. Must be called on every path. */
  close(): void {
    clearInterval(this.#keepAlive);
    if (!this.isOpen) return;
    // No call waits for the reader any more.
    endWithin(this.#raw, this.#clientTimeoutMs);
  }

  #begin(event: string | undefined): string {
    if (this.#isLines) return '';
    return `${event === undefined ? '' : `event: ${event}\n`}data: `;
  }

  get #end(): string {
    return this.#isLines ? '\n' : '\n\n';
  }

  *#framed(pieces: Iterable<string>, event: string | undefined): Generator<string, void, void> {
    yield this.#begin(event);
    yield* pieces;
    yield this.#end;
  }

  #open(): void {
    if (this.isOpen) return;
    this.#raw.writeHead(200, {
      ...this.#headers,
      'content-type': this.#isLines ? 'application/x-ndjson' : 'text/event-stream; charset=utf-8',
      'cache-control': 'no-cache, no-transform',
      // Without it, nginx collects the events until its buffer is full.
      'x-accel-buffering': 'no',
    });
  }

  /** Writes no comment while the reader is slow: the buffer has unread events, and a comment would only fill it. */
  #comment(): void {
    if (this.#isWriting || this.#raw.writableNeedDrain || this.#raw.destroyed) return;
    this.#open();
    this.#raw.write(': waiting\n\n');
  }
}

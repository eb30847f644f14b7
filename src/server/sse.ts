import type { OutgoingHttpHeaders, ServerResponse } from 'node:http';
import { firstOrAll, jsonPieces } from './json-pieces.ts';
import { endWithin, roomIn, writePieces } from './slow-reader.ts';

export interface EventStreamOptions {
  /** After this time without an event a comment is sent, so that proxies keep the connection during a long prompt. */
  readonly keepAliveMs: number;
  /** If a client reads nothing for this time, its connection is closed. */
  readonly clientTimeoutMs: number;
}

/**
 * One response of server-sent events. Nothing is sent before the first event or comment, so that an earlier error can
 * still set the HTTP status. At most one event waits beyond the socket's buffer: `send` resolves when there is room
 * again, and its caller waits.
 */
export class EventStream {
  readonly #raw: ServerResponse;
  readonly #headers: OutgoingHttpHeaders;
  readonly #clientTimeoutMs: number;
  readonly #keepAlive: NodeJS.Timeout;
  /** An event is written in part: a comment inside of it would be data. */
  #isWriting: boolean = false;

  constructor(raw: ServerResponse, headers: OutgoingHttpHeaders, options: EventStreamOptions) {
    this.#raw = raw;
    this.#headers = headers;
    this.#clientTimeoutMs = options.clientTimeoutMs;
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
    if (this.#raw.destroyed || this.#raw.write(`${beginOf(event)}${data}\n\n`)) return;
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
    await writePieces(this.#raw, inEvent(written.pieces, event), this.#clientTimeoutMs);
    this.#isWriting = false;
    this.#keepAlive.refresh();
  }

  /** Ends the response, if it was begun. Must be called on every path. */
  close(): void {
    clearInterval(this.#keepAlive);
    if (!this.isOpen) return;
    // No call waits for the reader any more.
    endWithin(this.#raw, this.#clientTimeoutMs);
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
    if (this.#isWriting || this.#raw.writableNeedDrain || this.#raw.destroyed) return;
    this.#open();
    this.#raw.write(': waiting\n\n');
  }
}

function* inEvent(pieces: Iterable<string>, event: string | undefined): Generator<string, void, void> {
  yield beginOf(event);
  yield* pieces;
  yield '\n\n';
}

const beginOf = (event: string | undefined): string => `${event === undefined ? '' : `event: ${event}\n`}data: `;

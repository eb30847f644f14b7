import type { ServerResponse } from 'node:http';
import type { Socket } from 'node:net';

/**
 * One request and its response, until the response is sent or the client is gone. Node tells the end of a connection only to the
 * response that it is writing. With HTTP pipelining, later responses of the connection wait for their turn, and would never know.
 *
 *     open -> sent                 every byte of the response is written
 *          -> gone                 the connection has closed
 *          -> released             another application answers
 */
export class Exchange {
  readonly response: ServerResponse;
  readonly #gone = new AbortController();
  readonly #listeners: (() => void)[] = [];
  #hasEnded: boolean = false;
  #isReleased: boolean = false;

  /** Called for every request, before the head of the response is written. */
  constructor(response: ServerResponse) {
    this.response = response;
    const { socket } = response.req;
    response.once('close', () => this.#end());
    exchangesOf(socket).add(this);
    if (socket.destroyed) this.cut();
    if (response.destroyed) this.#end();
  }

  /** Aborts when the client is gone. */
  get signal(): AbortSignal {
    return this.#gone.signal;
  }

  /** Whether the client has sent the whole request and still gets bytes of the response. */
  get isServed(): boolean {
    return !this.#hasEnded && this.response.req.complete;
  }

  /** Whether another application answers the request, with an exchange of its own. */
  get isReleased(): boolean {
    return this.#isReleased;
  }

  /** Another application answers the request from now on. Nothing of the response is written yet. */
  release(): void {
    this.#isReleased = true;
    this.#end();
  }

  /** Calls `listener` once: when the response is sent, or the client is gone. */
  onEnd(listener: () => void): void {
    if (this.#hasEnded) listener();
    else this.#listeners.push(listener);
  }

  /** The connection has closed. */
  cut(): void {
    const { response } = this;
    if (response.writableFinished || response.socket !== null) return;
    // What Node does to the response that it is writing. Others than this class listen too.
    response.destroy();
    response.emit('close');
  }

  #end(): void {
    if (this.#hasEnded) return;
    this.#hasEnded = true;
    exchangesOf(this.response.req.socket).delete(this);
    for (const listener of this.#listeners.splice(0)) listener();
    if (!this.response.writableFinished && !this.#isReleased) this.#gone.abort();
  }
}

const open = new WeakMap<Socket, Set<Exchange>>();

/** The exchanges of a connection that have not ended. */
export function exchangesOf(socket: Socket): Set<Exchange> {
  const known = open.get(socket);
  if (known !== undefined) return known;
  const exchanges = new Set<Exchange>();
  open.set(socket, exchanges);
  socket.once('close', () => {
    for (const exchange of [...exchanges]) exchange.cut();
  });
  return exchanges;
}

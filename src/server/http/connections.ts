import type { Socket } from 'node:net';
import { type Exchange, exchangesOf } from './exchange.ts';

/**
 * The connections of the server, and the responses that are not sent yet. Node's own `closeIdleConnections` is not enough.
 * It keeps a connection that never sent a byte, and it closes a connection whose response waits for a slow reader.
 */
export class Connections {
  /** `bytesRead` at the end of the last response: an equal count later means that no new request has begun. */
  readonly #sockets = new Map<Socket, { bytesRead: number }>();
  readonly #handshakes = new Set<Socket>();
  readonly #exchanges = new Set<Exchange>();
  #isDraining: boolean = false;
  #isClosed: boolean = false;

  /** Called for every connection; with TLS after the handshake. */
  watch(socket: Socket): void {
    if (this.#isClosed) {
      socket.destroy();
      return;
    }
    this.#sockets.set(socket, { bytesRead: socket.bytesRead });
    socket.once('close', () => this.#sockets.delete(socket));
  }

  /** With TLS, called before the handshake. The socket stays below the one that `watch` gets later. */
  watchHandshake(socket: Socket): void {
    if (this.#isClosed) {
      socket.destroy();
      return;
    }
    this.#handshakes.add(socket);
    socket.once('close', () => this.#handshakes.delete(socket));
  }

  /** Called for every request, before the head of its response is written. */
  add(exchange: Exchange): void {
    const { response } = exchange;
    const { socket } = response.req;
    this.#exchanges.add(exchange);
    if (this.#isDraining) response.shouldKeepAlive = false;
    exchange.onEnd(() => {
      this.#exchanges.delete(exchange);
      const known = this.#sockets.get(socket);
      if (known !== undefined) known.bytesRead = socket.bytesRead;
      if (this.#isDraining && !isBusy(socket)) socket.destroySoon();
    });
  }

  /** Requests that are received completely and whose responses are not sent completely. */
  get requestCount(): number {
    return this.#served().length;
  }

  /** Closes idle connections now, and the other connections after their responses. New connections are still accepted. */
  beginDrain(): void {
    this.#isDraining = true;
    // A response whose head is sent already says keep-alive; its connection is closed when the response ends.
    for (const { response } of this.#exchanges) {
      // The others of its connection come before it, and the client waits for all of them.
      const isLast = [...exchangesOf(response.req.socket)].at(-1)?.response === response;
      if (isLast && !response.headersSent) response.shouldKeepAlive = false;
    }
    for (const [socket, { bytesRead }] of this.#sockets) {
      if (!isBusy(socket) && socket.bytesRead === bytesRead) socket.destroySoon();
    }
  }

  /**
   * Resolves when the responses of all completely received requests are sent, or their clients are gone. It does not
   * wait for a request that is not received completely: its client may never send the rest.
   */
  async sent(): Promise<void> {
    await Promise.all(this.#served().map((exchange) => new Promise<void>((resolve) => exchange.onEnd(resolve))));
  }

  /** Closes every connection, and each later one. */
  close(): void {
    this.#isClosed = true;
    for (const socket of [...this.#sockets.keys(), ...this.#handshakes]) socket.destroy();
  }

  #served(): Exchange[] {
    return Array.from(this.#exchanges).filter(({ isServed }) => isServed);
  }
}

const isBusy = (socket: Socket): boolean => exchangesOf(socket).size > 0;

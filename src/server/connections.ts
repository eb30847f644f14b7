import type { ServerResponse } from 'node:http';
import type { Socket } from 'node:net';

/**
 * The connections of the server, and the responses that are not sent yet. Node's own `closeIdleConnections` is not enough.
 * It keeps a connection that never sent a byte, and it closes a connection whose response waits for a slow reader.
 */
export class Connections {
  /** `bytesRead` at the end of the last response: an equal count later means that no new request has begun. */
  readonly #sockets = new Map<Socket, { bytesRead: number }>();
  readonly #handshakes = new Set<Socket>();
  readonly #responses = new Set<ServerResponse>();
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

  /** Called for every response, before its head is written. */
  add(response: ServerResponse): void {
    const { socket } = response.req;
    this.#responses.add(response);
    if (this.#isDraining) response.shouldKeepAlive = false;
    response.once('close', () => {
      this.#responses.delete(response);
      const known = this.#sockets.get(socket);
      if (known !== undefined) known.bytesRead = socket.bytesRead;
      if (this.#isDraining && !this.#isBusy(socket)) socket.destroySoon();
    });
  }

  /** Requests that are received completely and whose responses are not sent completely. */
  get requestCount(): number {
    let count = 0;
    for (const { req } of this.#responses) if (req.complete) count++;
    return count;
  }

  /** Closes idle connections now, and the other connections after their responses. New connections are still accepted. */
  beginDrain(): void {
    this.#isDraining = true;
    // A response whose head is sent already says keep-alive; its connection is closed when the response ends.
    for (const response of this.#responses) if (!response.headersSent) response.shouldKeepAlive = false;
    for (const [socket, { bytesRead }] of this.#sockets) {
      if (!this.#isBusy(socket) && socket.bytesRead === bytesRead) socket.destroySoon();
    }
  }

  /**
   * Resolves when the responses of all completely received requests are sent, or their connections are closed. It does not
   * wait for a request that is not received completely: its client may never send the rest.
   */
  async sent(): Promise<void> {
    const open = Array.from(this.#responses).filter(({ req }) => req.complete);
    await Promise.all(open.map((response) => new Promise<void>((resolve) => response.once('close', () => resolve()))));
  }

  /** Closes every connection, and each later one. */
  close(): void {
    this.#isClosed = true;
    for (const socket of [...this.#sockets.keys(), ...this.#handshakes]) socket.destroy();
  }

  #isBusy(socket: Socket): boolean {
    for (const { req } of this.#responses) if (req.socket === socket) return true;
    return false;
  }
}

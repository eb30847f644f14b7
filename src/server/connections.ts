import type { Server as HttpServer, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';

/**
 * The connections of the server, and the responses that are not sent yet. Node's own `closeIdleConnections` is not enough: it
 * takes a connection that has never sent a byte for a busy one, and a response that waits for a slow reader for a sent one.
 */
export class Connections {
  /** With the bytes read when the last response ended: the same count later means that no request has begun since. */
  readonly #sockets = new Map<Socket, { bytesRead: number }>();
  readonly #responses = new Set<ServerResponse>();
  #isDraining: boolean = false;
  #isClosed: boolean = false;

  /** Call once, before the server listens. */
  watch(server: HttpServer): void {
    server.on('connection', (socket: Socket) => {
      if (this.#isClosed) {
        socket.destroy();
        return;
      }
      this.#sockets.set(socket, { bytesRead: 0 });
      socket.once('close', () => this.#sockets.delete(socket));
    });
  }

  /** Call for every response, before its head is written. */
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

  /** Requests that have come in whole and are not answered to the last byte. */
  get requestCount(): number {
    let count = 0;
    for (const { req } of this.#responses) if (req.complete) count++;
    return count;
  }

  /** Closes the connections without a request now, and every other one after its response. New ones stay possible. */
  beginDrain(): void {
    this.#isDraining = true;
    // A response whose head is out has said keep-alive: its connection is closed when the response ends.
    for (const response of this.#responses) if (!response.headersSent) response.shouldKeepAlive = false;
    for (const [socket, { bytesRead }] of this.#sockets) {
      if (!this.#isBusy(socket) && socket.bytesRead === bytesRead) socket.destroySoon();
    }
  }

  /**
   * Resolves when the requests that are whole now have been answered to the last byte, or their readers have gone. A request
   * that has not come in whole is not waited for: its client may never send the rest.
   */
  async sent(): Promise<void> {
    const open = Array.from(this.#responses).filter(({ req }) => req.complete);
    await Promise.all(open.map((response) => new Promise<void>((resolve) => response.once('close', () => resolve()))));
  }

  /** No connection is left afterwards, and none is accepted. */
  close(): void {
    this.#isClosed = true;
    for (const socket of this.#sockets.keys()) socket.destroy();
  }

  #isBusy(socket: Socket): boolean {
    for (const { req } of this.#responses) if (req.socket === socket) return true;
    return false;
  }
}

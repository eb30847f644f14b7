import { lookup } from 'node:dns/promises';
import { once } from 'node:events';
import { createServer, type Server as HttpServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';

export interface ListenerHandlers {
  onRequest(request: IncomingMessage, response: ServerResponse): void;
  /** Node's parser could not read the bytes as HTTP. */
  onBrokenRequest(error: Error & { code?: string }, socket: Socket): void;
  /** Called for each server before it listens. */
  onServer(server: HttpServer): void;
}

/** The time limit for receiving a request; it ends connections of clients that send their bytes very slowly. */
const requestTimeoutMs = 120_000;
/** How long an idle connection stays open. */
const idleTimeoutMs = 72_000;

/** The sockets of a server, apart from the application that answers: they listen before there is an engine. */
export class Listener {
  readonly #handlers: ListenerHandlers;
  readonly #servers: HttpServer[] = [];

  constructor(handlers: ListenerHandlers) {
    this.#handlers = handlers;
  }

  /**
   * Listens on all addresses of `localhost`, or on the address of another host.
   * @returns the port; the system chooses one if `port` is 0. @throws the system's error (`EADDRINUSE`, ...).
   */
  async listen(port: number, host: string): Promise<number> {
    const [first = host, ...others] = await addressesOf(host);
    const chosen = await this.#listenOn(port, first);
    // A machine may have a name for an address that it does not have.
    for (const address of others) await this.#listenOn(chosen, address).catch(() => undefined);
    return chosen;
  }

  /** Accepts no connection any more, and resolves when the last connection is closed. */
  async close(): Promise<void> {
    await Promise.all(this.#servers.map((server) => new Promise<void>((resolve) => server.close(() => resolve()))));
  }

  async #listenOn(port: number, host: string): Promise<number> {
    const { onRequest, onBrokenRequest, onServer } = this.#handlers;
    const server = createServer(
      { requestTimeout: requestTimeoutMs, keepAliveTimeout: idleTimeoutMs },
      (request, response) => onRequest(request, response),
    );
    server.on('clientError', (error, socket) => onBrokenRequest(error, socket as Socket));
    onServer(server);
    server.listen(port, host);
    await once(server, 'listening');
    this.#servers.push(server);
    return (server.address() as AddressInfo).port;
  }
}

async function addressesOf(host: string): Promise<string[]> {
  if (host !== 'localhost') return [host];
  return (await lookup(host, { all: true })).map(({ address }) => address);
}

import { lookup } from 'node:dns/promises';
import { once } from 'node:events';
import { createServer, type Server as HttpServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { createServer as createTlsServer, type Server as HttpsServer } from 'node:https';
import type { AddressInfo, Socket } from 'node:net';
import type { TLSSocket } from 'node:tls';
import type { TlsIdentity } from './tls.ts';

export interface ListenerHandlers {
  onRequest(request: IncomingMessage, response: ServerResponse): void;
  /** Node's parser could not read the bytes as HTTP. */
  onBrokenRequest(error: Error & { code?: string }, socket: Socket): void;
  /** Called when a client has connected, with TLS after the handshake. */
  onConnection(socket: Socket): void;
  /** With TLS, called before the handshake, with the socket below that of `onConnection`. */
  onHandshake(socket: Socket): void;
}

const timeouts = {
  /** The time limit for receiving a request; it ends connections of clients that send their bytes very slowly. */
  requestTimeout: 120_000,
  /** How long an idle connection stays open. */
  keepAliveTimeout: 72_000,
};

/** The sockets of a server, apart from the application that answers: they listen before there is an engine. */
export class Listener {
  readonly #handlers: ListenerHandlers;
  readonly #servers: (HttpServer | HttpsServer)[] = [];
  #tls: TlsIdentity | undefined;

  /** @param tls absent: without TLS */
  constructor(handlers: ListenerHandlers, tls?: TlsIdentity) {
    this.#handlers = handlers;
    this.#tls = tls;
  }

  get scheme(): 'http' | 'https' {
    return this.#tls === undefined ? 'http' : 'https';
  }

  /** For later handshakes. Open connections continue. */
  renewTls(identity: TlsIdentity): void {
    this.#tls = identity;
    for (const server of this.#servers) if ('setSecureContext' in server) server.setSecureContext(identity);
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

  /** Listens on a Unix socket, or on a named pipe of Windows. */
  async listenAt(path: string): Promise<void> {
    await this.#listenOn(path);
  }

  /** Accepts no connection any more, and resolves when the last connection is closed. */
  async close(): Promise<void> {
    await Promise.all(this.#servers.map((server) => new Promise<void>((resolve) => server.close(() => resolve()))));
  }

  async #listenOn(place: number | string, host?: string): Promise<number> {
    const server = this.#tls === undefined ? this.#createPlain() : this.#createTls(this.#tls);
    if (typeof place === 'number') server.listen(place, host);
    else server.listen(place);
    await once(server, 'listening');
    // A connection that cannot be accepted, for example without a free file descriptor, must not end the process.
    server.on('error', () => undefined);
    this.#servers.push(server);
    return typeof place === 'number' ? (server.address() as AddressInfo).port : 0;
  }

  #createPlain(): HttpServer {
    const { onRequest, onBrokenRequest, onConnection } = this.#handlers;
    const server = createServer(timeouts, (request, response) => onRequest(request, response));
    server.on('clientError', (error, socket) => onBrokenRequest(error, socket as Socket));
    server.on('connection', onConnection);
    return server;
  }

  #createTls(identity: TlsIdentity): HttpsServer {
    const { onRequest, onBrokenRequest, onConnection, onHandshake } = this.#handlers;
    const { clientCertificates } = identity;
    const options = {
      ...timeouts,
      ...identity,
      requestCert: clientCertificates > 0,
      rejectUnauthorized: clientCertificates === 2,
    };
    const server = createTlsServer(options, (request, response) => onRequest(request, response));
    const secured = new WeakSet<object>();
    server.on('connection', onHandshake);
    server.on('secureConnection', (socket: TLSSocket) => {
      secured.add(socket);
      if (clientCertificates === 1 && hasWrongCertificate(socket)) socket.destroy();
      else onConnection(socket);
    });
    server.on('clientError', (error, socket) => {
      // Before the end of the handshake there is no one to answer.
      if (secured.has(socket)) onBrokenRequest(error, socket as Socket);
      else socket.destroy();
    });
    return server;
  }
}

function hasWrongCertificate(socket: TLSSocket): boolean {
  return !socket.authorized && Object.keys(socket.getPeerCertificate() ?? {}).length > 0;
}

async function addressesOf(host: string): Promise<string[]> {
  if (host !== 'localhost') return [host];
  return (await lookup(host, { all: true })).map(({ address }) => address);
}

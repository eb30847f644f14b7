import { once } from 'node:events';
import { connect, createServer, type Server, type Socket } from 'node:net';

/** A connection between a client and a server that stops in the middle of an answer, for tests without timing. */
export class HoldingProxy {
  readonly port: number;
  readonly #server: Server;
  readonly #clients = new Set<Socket>();
  /** Answer bytes that still pass; undefined = all. */
  #left: number | undefined;
  #held: { readonly client: Socket; readonly bytes: Buffer }[] = [];
  #onHeld: (() => void) | undefined;
  #passed = 0;

  private constructor(server: Server, port: number) {
    this.#server = server;
    this.port = port;
  }

  static async start(targetPort: number): Promise<HoldingProxy> {
    const server = createServer();
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    const address = server.address();
    if (address === null || typeof address === 'string') throw new Error('no port');
    const proxy = new HoldingProxy(server, address.port);
    server.on('connection', (client) => proxy.#join(client, connect(targetPort, '127.0.0.1')));
    return proxy;
  }

  get endpoint(): string {
    return `http://127.0.0.1:${this.port}`;
  }

  /** Bytes of answers that clients were sent. */
  get passedBytes(): number {
    return this.#passed;
  }

  /** Lets so many bytes of answers pass. Resolves when more have arrived, which are held back. */
  holdAfter(bytes: number): Promise<void> {
    this.#left = bytes;
    return new Promise((resolve) => {
      this.#onHeld = resolve;
    });
  }

  /** Sends what was held back, and lets all later bytes pass. Resolves when the client has been sent the held bytes. */
  async release(): Promise<void> {
    this.#left = undefined;
    const held = this.#held;
    this.#held = [];
    // All are written before any later bytes, so the order stays.
    await Promise.all(
      held.map(({ client, bytes }) => new Promise<void>((resolve) => client.write(bytes, () => resolve()))),
    );
  }

  /** Ends all connections. */
  cut(): void {
    for (const client of this.#clients) client.destroy();
  }

  async close(): Promise<void> {
    this.cut();
    this.#server.close();
    await once(this.#server, 'close');
  }

  #join(client: Socket, server: Socket): void {
    this.#clients.add(client);
    client.on('data', (bytes) => void server.write(bytes));
    server.on('data', (bytes) => this.#pass(client, bytes));
    for (const [one, other] of [
      [client, server],
      [server, client],
    ] as const) {
      one.on('error', () => undefined);
      one.on('close', () => {
        this.#clients.delete(client);
        other.destroy();
      });
    }
  }

  #pass(client: Socket, bytes: Buffer): void {
    const count = Math.min(this.#left ?? bytes.length, bytes.length);
    if (this.#left !== undefined) this.#left -= count;
    if (count > 0) client.write(bytes.subarray(0, count));
    this.#passed += count;
    if (count === bytes.length) return;
    this.#held.push({ client, bytes: bytes.subarray(count) });
    this.#onHeld?.();
    this.#onHeld = undefined;
  }
}

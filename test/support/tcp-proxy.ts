/** A proxy between a client and a server, for faults of the network: answers that come late, in part, or never. */
import { once } from 'node:events';
import { type AddressInfo, createConnection, createServer, type Server, type Socket } from 'node:net';

export class TcpProxy {
  readonly port: number;
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  /** Answers that wait, in order, while they are held. */
  #held: (() => void)[] | undefined;
  #heldBytes = 0;
  /** How many more bytes of answers pass before their connection is cut. */
  #bytesLeft = Number.POSITIVE_INFINITY;

  private constructor(server: Server, targetPort: number) {
    this.#server = server;
    this.port = (server.address() as AddressInfo).port;
    server.on('connection', (client) => this.#connect(client, targetPort));
  }

  static async start(targetPort: number): Promise<TcpProxy> {
    const server = createServer().listen(0, '127.0.0.1');
    await once(server, 'listening');
    return new TcpProxy(server, targetPort);
  }

  get url(): string {
    return `redis://127.0.0.1:${this.port}`;
  }

  /** Bytes of answers that wait in the proxy. */
  get heldBytes(): number {
    return this.#heldBytes;
  }

  holdAnswers(): void {
    this.#held ??= [];
  }

  /** `first`: bytes that a client receives before its first answer. */
  releaseAnswers(first = ''): void {
    const held = this.#held ?? [];
    this.#held = undefined;
    this.#heldBytes = 0;
    if (first !== '') for (const socket of this.#sockets) socket.emit('first', first);
    for (const pass of held) pass();
  }

  /** Destroys the connection of a client after it has received this many more bytes. */
  cutAnswersAfter(bytes: number): void {
    this.#bytesLeft = bytes;
  }

  passAllAnswers(): void {
    this.#bytesLeft = Number.POSITIVE_INFINITY;
  }

  async close(): Promise<void> {
    for (const socket of this.#sockets) socket.destroy();
    this.#server.close();
    await once(this.#server, 'close');
  }

  #connect(client: Socket, targetPort: number): void {
    const server = createConnection({ port: targetPort, host: '127.0.0.1' });
    for (const socket of [client, server]) {
      this.#sockets.add(socket);
      socket.on('error', () => undefined);
      socket.on('close', () => {
        this.#sockets.delete(socket);
        client.destroy();
        server.destroy();
      });
    }
    client.on('first', (bytes: string) => client.write(bytes));
    client.on('data', (bytes) => server.write(bytes));
    server.on('data', (bytes) => {
      const pass = (): void => this.#pass(client, bytes);
      if (this.#held === undefined) pass();
      else {
        this.#held.push(pass);
        this.#heldBytes += bytes.length;
      }
    });
  }

  #pass(client: Socket, bytes: Buffer): void {
    const passed = bytes.subarray(0, this.#bytesLeft);
    this.#bytesLeft -= passed.length;
    if (passed.length === bytes.length) client.write(passed);
    else client.write(passed, () => client.destroy());
  }
}

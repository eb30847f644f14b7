/** A real Redis or Valkey server for tests: without persistence, in a temporary folder, on a free port. */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { type AddressInfo, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const program = ['redis-server', 'valkey-server'].find((name) => spawnSync(name, ['--version']).status === 0);
export const hasRedisServer = program !== undefined;
export const needsRedisServer = 'no redis-server';

const started = new Set<RedisServer>();
process.on('exit', () => {
  for (const server of started) void server.kill();
});

export class RedisServer {
  readonly port: number;
  /** Of a node of a cluster. */
  busPort: number | undefined;
  readonly #settings: readonly string[];
  readonly #folder = mkdtempSync(join(tmpdir(), 'kvasir-redis-'));
  #process: ChildProcess | undefined;

  private constructor(port: number, settings: readonly string[]) {
    this.port = port;
    this.#settings = settings;
  }

  /** `settings` as on the command line, for example `['--requirepass', 'secret']`. Without a port: a free port. */
  static async start(settings: readonly string[] = [], port?: number): Promise<RedisServer> {
    for (let attempt = 0; ; attempt++) {
      const server = new RedisServer(port ?? (await freePort()), settings);
      try {
        await server.run();
        return server;
      } catch (error) {
        // Another process may have taken the port.
        await server.stop();
        if (attempt === 5) throw error;
      }
    }
  }

  get url(): string {
    return `redis://127.0.0.1:${this.port}`;
  }

  /** Starts the process, with an empty store; resolves when it accepts connections. */
  async run(): Promise<void> {
    if (program === undefined) throw new Error(needsRedisServer);
    const fixed = ['--port', `${this.port}`, '--bind', '127.0.0.1', '--save', '', '--appendonly', 'no'];
    const args = [...fixed, '--dir', this.#folder, ...this.#settings];
    const child = spawn(program, args, { stdio: ['ignore', 'pipe', 'inherit'] });
    this.#process = child;
    started.add(this);
    let log = '';
    await new Promise<void>((resolve, reject) => {
      child.once('error', reject);
      child.once('exit', (code) => reject(new Error(`${program} ended with ${code}:\n${log}`)));
      child.stdout.on('data', (text: Buffer) => {
        log += text.toString();
        if (log.includes('eady to accept connections')) resolve();
      });
    });
  }

  /** SIGKILL. Resolves when the process has ended. */
  async kill(): Promise<void> {
    const child = this.#process;
    if (child === undefined) return;
    this.#process = undefined;
    started.delete(this);
    child.kill('SIGKILL');
    if (child.exitCode === null && child.signalCode === null) await once(child, 'exit');
  }

  /** SIGSTOP: the kernel still accepts connections and bytes, and no answer comes. */
  pause(): void {
    this.#process!.kill('SIGSTOP');
  }

  resume(): void {
    this.#process!.kill('SIGCONT');
  }

  async restart(): Promise<void> {
    await this.kill();
    await this.run();
  }

  /** Ends the process and removes its folder. */
  async stop(): Promise<void> {
    await this.kill();
    rmSync(this.#folder, { recursive: true, force: true });
  }
}

/** A port that was free a moment ago. */
export async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, 'close');
  return port;
}

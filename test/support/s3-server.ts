import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, mkdtempSync, renameSync, rmSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { setTimeout as wait } from 'node:timers/promises';
import { defaultCacheFolder } from '../../src/base/cache-folder.ts';

/** `.ci/run` installs this version; `.ci/install-versitygw` has the command. */
const version = 'v1.8.0';
const binary = findBinary();

export const hasS3Server = binary !== undefined;
export const noS3Server = 'no S3 server: run .ci/install-versitygw';

export const s3Credentials = { accessKeyId: 'kvasir-test', secretAccessKey: 'a-secret-of-the-test' };

const servers = new Set<S3Server>();
process.on('exit', () => {
  for (const server of servers) server.kill();
});

/** An S3 server of its own in a temporary directory: versitygw, whose objects are files. */
export class S3Server {
  readonly port: number;
  readonly endpoint: string;
  readonly #root: string;
  #process: ChildProcess | undefined;

  private constructor(port: number, root: string) {
    this.port = port;
    this.endpoint = `http://127.0.0.1:${port}`;
    this.#root = root;
    servers.add(this);
  }

  /** With an empty bucket of each name. */
  static async start(...buckets: readonly string[]): Promise<S3Server> {
    const server = new S3Server(await freePort(), mkdtempSync(join(tmpdir(), 'kvasir-s3-')));
    for (const bucket of buckets) server.createBucket(bucket);
    await server.startAgain();
    return server;
  }

  createBucket(name: string): void {
    mkdirSync(join(this.#root, name));
  }

  /** At one moment: a request finds the whole bucket or none. */
  removeBucket(name: string): void {
    const removed = `${this.#root}-removed-${name}`;
    renameSync(join(this.#root, name), removed);
    rmSync(removed, { recursive: true });
  }

  /** The files of a bucket. */
  pathOf(bucket: string): string {
    return join(this.#root, bucket);
  }

  /** On the same port, with the same objects. */
  async startAgain(): Promise<void> {
    const process = spawn(
      binary!,
      ['--port', `127.0.0.1:${this.port}`, '--keep-alive', '--quiet', 'posix', this.#root],
      {
        stdio: 'ignore',
        env: {
          PATH: '/usr/bin:/bin',
          ROOT_ACCESS_KEY_ID: s3Credentials.accessKeyId,
          ROOT_SECRET_ACCESS_KEY: s3Credentials.secretAccessKey,
        },
      },
    );
    this.#process = process;
    while (!(await this.#answers())) {
      if (process.exitCode !== null) throw new Error(`versitygw ended with ${process.exitCode}`);
      await wait(20);
    }
  }

  pause(): void {
    this.#process?.kill('SIGSTOP');
  }

  resume(): void {
    this.#process?.kill('SIGCONT');
  }

  /** Ends the server without a chance to clean up. Its objects stay. */
  kill(): void {
    this.#process?.kill('SIGKILL');
  }

  async killAndWait(): Promise<void> {
    const process = this.#process;
    if (process === undefined || process.exitCode !== null || process.signalCode !== null) return;
    const ended = once(process, 'exit');
    process.kill('SIGKILL');
    await ended;
  }

  /** Ends the server and removes its objects. */
  async stop(): Promise<void> {
    await this.killAndWait();
    servers.delete(this);
    rmSync(this.#root, { recursive: true, force: true });
  }

  async #answers(): Promise<boolean> {
    try {
      await fetch(this.endpoint);
      return true;
    } catch {
      return false;
    }
  }
}

/** A port that no process listens on. */
export async function freePort(): Promise<number> {
  const server = createServer();
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  server.close();
  await once(server, 'close');
  if (address === null || typeof address === 'string') throw new Error('no port');
  return address.port;
}

function findBinary(): string | undefined {
  const cache = defaultCacheFolder();
  const folders = (process.env.PATH ?? '').split(delimiter);
  if (cache !== undefined) folders.unshift(join(cache, `versitygw-${version}`));
  const paths = folders.filter((folder) => folder !== '').map((folder) => join(folder, 'versitygw'));
  return paths.find((path) => existsSync(path) && spawnSync(path, ['--version']).status === 0);
}

import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { trackChild } from '../../base/child-processes.ts';
import { KvasirError } from '../../base/errors.ts';
import { processes } from '../../base/processes.ts';
import { serverEnded } from './errors.ts';

const run = promisify(execFile);

/** The command that serves, and variables that are added to this process's environment. */
export interface ServerProgram {
  /** The built command, by default the running one. */
  readonly path?: string;
  readonly environment?: Readonly<Record<string, string>>;
}

/**
 * `kvasir serve` in its own process, on a port that the system chooses. Its worker processes are its children, so their
 * ids are known and they can be killed or stopped.
 */
export class ServerProcess {
  /** `http://127.0.0.1:<port>`. */
  readonly origin: string;
  readonly #log: ServerLog;
  readonly #child: ChildProcess;

  /** `args` follow `kvasir serve --numerics exact`: on a GPU too, texts are compared. @throws KvasirError `serverEnded` if the server ends before it serves the model. */
  static async start(
    args: readonly string[],
    signal: AbortSignal,
    { path = process.argv[1] ?? '', environment = {} }: ServerProgram = {},
  ): Promise<ServerProcess> {
    signal.throwIfAborted();
    const command = [path, 'serve', '--numerics', 'exact', ...args, '--port', '0', '--log-format', 'json'];
    const child = spawn(process.execPath, command, {
      stdio: ['ignore', 'ignore', 'pipe', 'ipc'],
      // Requests have no key.
      env: { ...process.env, KVASIR_API_KEY: undefined, ...environment },
    });
    trackChild(child);
    const kill = (): void => void child.kill('SIGKILL');
    signal.addEventListener('abort', kill, { once: true });
    const log = new ServerLog(child);
    void log.exited.then(() => signal.removeEventListener('abort', kill));
    const origin = await Promise.race([log.address, log.exited.then(() => undefined)]);
    if (origin === undefined) throw serverEnded({ reason: (await log.failure()) ?? 'it was stopped' });
    return new ServerProcess(child, origin, log);
  }

  private constructor(child: ChildProcess, origin: string, log: ServerLog) {
    this.#child = child;
    this.origin = origin;
    this.#log = log;
  }

  /** The messages of its log with level `warn` or `error`. */
  get warnings(): readonly string[] {
    return this.#log.warnings;
  }

  get processId(): number {
    return this.#child.pid ?? 0;
  }

  /** The ids of the ranks' processes, ascending; empty if the only rank is in the server's process. */
  async rankProcessIds(): Promise<number[]> {
    const isLinux = process.platform === 'linux';
    const found = isLinux ? childrenFromProc(this.processId) : await childrenFromPgrep(this.processId);
    return found.sort((a, b) => a - b);
  }

  /** Ends the server as `kill -9` does. Its ranks end when they notice that the server has ended. */
  async kill(): Promise<void> {
    this.#child.kill('SIGKILL');
    await this.#log.exited;
  }

  /** Asks the server to finish its requests and its saves. Resolves to the reason if it failed, now or before. */
  async stop(): Promise<string | undefined> {
    // Not SIGTERM, which would end it at once on Windows. If it has ended, the message is not sent.
    this.#child.send('shutdown', () => undefined);
    return this.#log.failure();
  }
}

/** Runs work on a server, and stops the server. @throws KvasirError `serverEnded` if the work failed because the server did. */
export async function withServer<T>(
  starting: Promise<ServerProcess>,
  work: (server: ServerProcess) => Promise<T>,
): Promise<T> {
  const server = await starting;
  let result: T;
  try {
    result = await work(server);
  } catch (error) {
    const reason = await server.stop();
    throw reason === undefined || error instanceof KvasirError ? error : serverEnded({ reason }, error);
  }
  await server.stop();
  return result;
}

interface LogLine {
  readonly level: number;
  readonly msg: string;
  readonly address?: string;
}

const levelOfWarnings = 40;
const lastWordsMs = 1000;
/** A server may warn for hours. */
const linesMax = 1000;

/** The standard error output of a server, read as long as it runs. */
class ServerLog {
  readonly warnings: string[] = [];
  /** Resolves when the model is served. */
  readonly address: Promise<string>;
  /** Resolves when the process has ended. */
  readonly exited: Promise<void>;
  readonly #child: ChildProcess;
  /** Lines that are not of the log, such as the error that ended the process. */
  readonly #texts: string[] = [];

  constructor(child: ChildProcess) {
    this.address = new Promise((resolve) => {
      createInterface({ input: child.stderr! }).on('line', (line) => {
        const entry = readLine(line);
        if (entry === undefined) this.#texts.push(line.replace(/^error: /, ''));
        else if (entry.msg === 'serving' && entry.address !== undefined) resolve(entry.address);
        else if (entry.level >= levelOfWarnings && this.warnings.length < linesMax) this.warnings.push(entry.msg);
        if (this.#texts.length > linesMax) this.#texts.shift();
      });
    });
    this.#child = child;
    this.exited = once(child, 'exit').then(() => undefined);
  }

  /** Why the process failed, when it has ended; undefined if it did not fail. */
  async failure(): Promise<string | undefined> {
    await this.exited;
    const { exitCode, signalCode, stderr } = this.#child;
    if (exitCode === 0) return undefined;
    // Its last words may arrive later. A worker process that is stopped keeps the pipe open.
    if (stderr?.readableEnded === false) await Promise.race([once(stderr, 'end'), sleep(lastWordsMs)]);
    return (
      [...this.warnings.slice(-5), ...this.#texts].join('\n').trim() ||
      `it ended with ${String(exitCode ?? signalCode)}`
    );
  }
}

/** Undefined: not a line of the log, but a message for people. */
function readLine(line: string): LogLine | undefined {
  try {
    return line.startsWith('{') ? (JSON.parse(line) as LogLine) : undefined;
  } catch {
    return undefined;
  }
}

const childrenFromProc = (of: number): number[] =>
  processes()
    .filter(({ parent }) => parent === of)
    .map(({ id }) => id);

async function childrenFromPgrep(parent: number): Promise<number[]> {
  const { stdout } = await run('pgrep', ['-P', String(parent)]).catch(() => ({ stdout: '' }));
  return stdout.split('\n').filter(Boolean).map(Number);
}

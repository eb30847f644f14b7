import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdir, readFile } from 'node:fs/promises';
import { createInterface } from 'node:readline';
import { promisify } from 'node:util';
import { trackChild } from '../../base/child-processes.ts';
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
  /** The messages of its log with level `warn` or `error`. */
  readonly warnings: readonly string[];
  readonly #child: ChildProcess;
  readonly #ended: Promise<void>;

  /** `args` follow `kvasir serve`. @throws KvasirError `serverEnded` if the server ends before it serves the model. */
  static async start(
    args: readonly string[],
    signal: AbortSignal,
    { path = process.argv[1] ?? '', environment = {} }: ServerProgram = {},
  ): Promise<ServerProcess> {
    signal.throwIfAborted();
    const child = spawn(process.execPath, [path, 'serve', ...args, '--port', '0', '--log-format', 'json'], {
      stdio: ['ignore', 'ignore', 'pipe'],
      // Requests have no key.
      env: { ...process.env, KVASIR_API_KEY: undefined, ...environment },
    });
    trackChild(child);
    const kill = (): void => void child.kill('SIGKILL');
    signal.addEventListener('abort', kill, { once: true });
    const ended = once(child, 'exit').then(() => signal.removeEventListener('abort', kill));
    const warnings: string[] = [];
    const origin = await addressOf(child, warnings);
    return new ServerProcess(child, origin, warnings, ended);
  }

  private constructor(child: ChildProcess, origin: string, warnings: readonly string[], ended: Promise<void>) {
    this.#child = child;
    this.origin = origin;
    this.warnings = warnings;
    this.#ended = ended;
  }

  get processId(): number {
    return this.#child.pid ?? 0;
  }

  /** The ids of the ranks' processes, ascending; empty if the only rank is in the server's process. */
  async rankProcessIds(): Promise<number[]> {
    const found = process.platform === 'linux' ? childrenFromProc(this.processId) : childrenFromPgrep(this.processId);
    return (await found).sort((a, b) => a - b);
  }

  /** Ends the server as `kill -9` does. Its ranks end when they notice that the server has ended. */
  async kill(): Promise<void> {
    this.#child.kill('SIGKILL');
    await this.#ended;
  }

  /** Asks the server to finish its requests and its saves. */
  async stop(): Promise<void> {
    this.#child.kill('SIGTERM');
    await this.#ended;
  }
}

/** Runs work on a server, and stops the server. */
export async function withServer<T>(
  starting: Promise<ServerProcess>,
  work: (server: ServerProcess) => Promise<T>,
): Promise<T> {
  const server = await starting;
  try {
    return await work(server);
  } finally {
    await server.stop();
  }
}

interface LogLine {
  readonly level: number;
  readonly msg: string;
  readonly address?: string;
}

const levelOfWarnings = 40;
/** A server may warn for hours. */
const warningsMax = 1000;

/** Reads the log of a server, as long as it runs. Resolves when the model is served. */
async function addressOf(child: ChildProcess, warnings: string[]): Promise<string> {
  const texts: string[] = [];
  const address = new Promise<string>((resolve) => {
    createInterface({ input: child.stderr! }).on('line', (line) => {
      const entry = readLine(line);
      if (entry === undefined) texts.push(line);
      else if (entry.msg === 'serving' && entry.address !== undefined) resolve(entry.address);
      else if (entry.level >= levelOfWarnings && warnings.length < warningsMax) warnings.push(entry.msg);
      if (texts.length > warningsMax) texts.shift();
    });
  });
  const end = once(child, 'close').then(([code, signal]) => {
    throw serverEnded({ reason: [...warnings, ...texts].join('\n').trim() || `exit code ${String(code ?? signal)}` });
  });
  end.catch(() => undefined);
  return Promise.race([address, end]);
}

/** Undefined: not a line of the log, but a message for people. */
function readLine(line: string): LogLine | undefined {
  try {
    return line.startsWith('{') ? (JSON.parse(line) as LogLine) : undefined;
  } catch {
    return undefined;
  }
}

async function childrenFromProc(parent: number): Promise<number[]> {
  const children: number[] = [];
  for (const name of await readdir('/proc')) {
    if (!/^\d+$/.test(name)) continue;
    // A process may end while its file is read.
    const stat = await readFile(`/proc/${name}/stat`, 'utf8').catch(() => '');
    // The command name, in parentheses, may contain spaces: the fields after it are state and parent.
    const [, parentId] = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    if (Number(parentId) === parent) children.push(Number(name));
  }
  return children;
}

async function childrenFromPgrep(parent: number): Promise<number[]> {
  const { stdout } = await run('pgrep', ['-P', String(parent)]).catch(() => ({ stdout: '' }));
  return stdout.split('\n').filter(Boolean).map(Number);
}

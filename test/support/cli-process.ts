import { type ChildProcessWithoutNullStreams, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { linkSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { text as readText } from 'node:stream/consumers';
import { setTimeout as wait } from 'node:timers/promises';

/** The built command in separate processes, with the bundled model, as in a user's shell. */
const main = join(process.cwd(), 'dist', 'src', 'main.js');
const lock = join(process.cwd(), 'dist', '.building.lock');
export const smallPool = ['--kv-cache-memory', '64MiB', '--threads', '1'];

/**
 * Test files run in parallel, and no test may start the command while the compiler of another file writes it. The lock names its
 * process, so a lock that a killed run left is removed.
 */
export async function buildCommand(): Promise<void> {
  while (!takeLock()) await wait(50);
  try {
    const { status, stdout } = spawnSync('node_modules/.bin/tsc', ['-p', 'tsconfig.build.json'], { encoding: 'utf8' });
    if (status !== 0) throw new Error(stdout);
  } finally {
    rmSync(lock, { force: true });
  }
}

function takeLock(): boolean {
  mkdirSync(dirname(lock), { recursive: true });
  // Writes a file with another name and links it: so the lock always contains its process id.
  const mine = `${lock}-${process.pid}`;
  writeFileSync(mine, String(process.pid));
  try {
    linkSync(mine, lock);
    return true;
  } catch {
    if (!isAlive(ownerOf(lock))) rmSync(lock, { force: true });
    return false;
  } finally {
    rmSync(mine);
  }
}

function isAlive(processId: number): boolean {
  try {
    return process.kill(processId, 0);
  } catch {
    return false;
  }
}

function ownerOf(path: string): number {
  try {
    return Number(readFileSync(path, 'utf8'));
  } catch {
    // The lock was released meanwhile.
    return process.pid;
  }
}

const children: ChildProcessWithoutNullStreams[] = [];

/** For `afterEach`. */
export function killCommands(): void {
  for (const child of children.splice(0)) child.kill('SIGKILL');
}

export function start(
  args: readonly string[],
  environment: Record<string, string> = {},
): ChildProcessWithoutNullStreams {
  const child = spawn(process.execPath, [main, ...args], { env: { ...process.env, ...environment } });
  children.push(child);
  return child;
}

export async function run(args: readonly string[], input = '') {
  const child = start(args);
  child.stdin.end(input);
  const [stdout, stderr, [code]] = await Promise.all([
    readText(child.stdout),
    readText(child.stderr),
    once(child, 'close') as Promise<[number | null]>,
  ]);
  return { code, stdout, stderr };
}

/** A server on a port that the system chooses, with its stderr so far. */
export async function serve(args: readonly string[] = [], environment: Record<string, string> = {}) {
  const child = start(['serve', '--port', '0', ...smallPool, ...args], environment);
  let log = '';
  child.stderr.on('data', (piece) => {
    log += piece;
  });
  const logged = async (pattern: RegExp): Promise<RegExpExecArray> => {
    for (;;) {
      const match = pattern.exec(log);
      if (match !== null) return match;
      if (child.exitCode !== null) throw new Error(`the server ended with ${child.exitCode}: ${log}`);
      await Promise.race([once(child.stderr, 'data'), once(child, 'exit')]);
    }
  };
  const origin = (await logged(/address +(http:\S+)/))[1]!;
  const post = (path: string, body: object, headers: Record<string, string> = {}) =>
    fetch(origin + path, {
      method: 'POST',
      headers: { 'content-type': 'application/json', ...headers },
      body: JSON.stringify(body),
    });
  const complete = (body: object, headers: Record<string, string> = {}) =>
    post('/v1/completions', { prompt: 'Once upon a time', ...body }, headers);
  const exited = once(child, 'exit');
  /** Sends SIGTERM, and returns the whole stderr. */
  const stop = async (): Promise<string> => {
    const closed = once(child.stderr, 'close');
    child.kill('SIGTERM');
    await Promise.all([exited, closed]);
    return log;
  };
  return { child, origin, logged, log: () => log, post, complete, exited, stop };
}

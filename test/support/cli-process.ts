import { type ChildProcessWithoutNullStreams, spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { text as readText } from 'node:stream/consumers';
import { buildOnce } from './build-once.ts';

/** The built command in separate processes, with the bundled model, as in a user's shell. */
export const main = join(process.cwd(), 'dist', 'bundle', 'src', 'main.js');
/** The same command in modules of the compiler, whose classes a preloaded module can change. */
export const mainInModules = join(process.cwd(), 'dist', 'src', 'main.js');
export const smallPool = ['--kv-cache-memory', '64MiB', '--threads', '1'];

let built: Promise<void> | undefined;

/** Once for all files of a process: no test changes the sources. */
export function buildCommand(): Promise<void> {
  built ??= buildOnce(process.cwd());
  return built;
}

const children: ChildProcessWithoutNullStreams[] = [];

/** For `afterEach`. */
export function killCommands(): void {
  for (const child of children.splice(0)) child.kill('SIGKILL');
}

interface Program {
  readonly cwd?: string;
  readonly main?: string;
}

export function start(
  args: readonly string[],
  environment: Record<string, string> = {},
  { cwd = process.cwd(), main: path = main }: Program = {},
): ChildProcessWithoutNullStreams {
  const child = spawn(process.execPath, [path, ...args], { env: { ...process.env, ...environment }, cwd });
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
export async function serve(
  args: readonly string[] = [],
  environment: Record<string, string> = {},
  program: Program = {},
) {
  const child = start(['serve', '--port', '0', ...smallPool, ...args], environment, program);
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
  const origin = (await logged(/address(?:=|":")(http:[^\s"]+)/))[1]!;
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

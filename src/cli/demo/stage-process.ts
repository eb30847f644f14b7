import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { text as readText } from 'node:stream/consumers';
import { trackChild } from '../../base/child-processes.ts';
import { stageFailed } from './errors.ts';
import type { StageAnswer, StageOrder } from './stage-run.ts';

/** The name of the hidden command that the process of a stage runs. */
export const stageCommandName = 'stage';

/**
 * Runs a stage in its own process and waits for its answer. Stages share only directories. An aborted signal kills the
 * process. `program`: the built command, by default the running one.
 * @throws KvasirError `stageFailed` with the standard error output of the process.
 */
export async function runStageProcess(
  name: string,
  order: StageOrder,
  signal: AbortSignal,
  program: { readonly path: string; readonly env: NodeJS.ProcessEnv } = { path: process.argv[1]!, env: process.env },
): Promise<StageAnswer> {
  signal.throwIfAborted();
  const child = spawn(process.execPath, [program.path, 'demo', stageCommandName], {
    stdio: ['pipe', 'pipe', 'pipe'],
    env: program.env,
  });
  trackChild(child);
  const kill = (): void => void child.kill('SIGKILL');
  signal.addEventListener('abort', kill, { once: true });
  try {
    // A child that ends early closes the pipe; its exit code and its stderr give the reason.
    child.stdin.on('error', () => {});
    child.stdin.end(JSON.stringify(order));
    const closed = once(child, 'close') as Promise<[number | null, NodeJS.Signals | null]>;
    const [stdout, stderr, [code, killedBy]] = await Promise.all([
      readText(child.stdout),
      readText(child.stderr),
      closed,
    ]);
    signal.throwIfAborted();
    if (code !== 0) throw stageFailed({ name, reason: stderr.trim() || `it ended with ${code ?? killedBy}` });
    return JSON.parse(stdout) as StageAnswer;
  } finally {
    signal.removeEventListener('abort', kill);
    kill();
  }
}

import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { trackChild } from '../../src/base/child-processes.ts';
import { cpusFlag } from '../../src/cli/args.ts';
import { pinningUnavailable } from '../errors.ts';

/** Processes that use one core each without a pause. */
export class BusyProcesses {
  readonly #children: readonly ChildProcess[];

  /** @throws KvasirError `pinningUnavailable` if the system has no `taskset`. */
  static async start(cores: readonly number[]): Promise<BusyProcesses> {
    const program = "process.stdout.write('busy'); for (;;);";
    const children = cores.map((core) => {
      const child = spawn('taskset', ['-c', String(core), process.execPath, '-e', program], {
        stdio: ['ignore', 'pipe', 'ignore'],
      });
      trackChild(child);
      return child;
    });
    const started = children.map(async (child) => {
      const failed = once(child, 'exit').then(([code]) => {
        throw pinningUnavailable({ reason: `taskset ended with exit code ${String(code)}` });
      });
      failed.catch(() => undefined);
      await Promise.race([once(child.stdout!, 'data'), failed]);
    });
    try {
      await Promise.all(started);
    } catch (error) {
      for (const child of children) child.kill('SIGKILL');
      throw error;
    }
    return new BusyProcesses(children);
  }

  private constructor(children: readonly ChildProcess[]) {
    this.#children = children;
  }

  async stop(): Promise<void> {
    const ended = this.#children.map((child) => once(child, 'exit'));
    for (const child of this.#children) child.kill('SIGKILL');
    await Promise.all(ended);
  }
}

/** The cores that this process may use. @throws KvasirError `pinningUnavailable` */
export function allowedCores(): number[] {
  const { stdout, error, status } = spawnSync('taskset', ['-cp', String(process.pid)], { encoding: 'utf8' });
  if (error !== undefined || status !== 0) {
    throw pinningUnavailable({ reason: error?.message ?? `taskset ended with exit code ${String(status)}` });
  }
  return cpusFlag(stdout.slice(stdout.lastIndexOf(':') + 1).trim());
}

import { spawnSync } from 'node:child_process';
import { setTimeout as wait } from 'node:timers/promises';

/** Every process by id, with its parent; a zombie is a process that has ended and whose parent has not read its exit code. */
function table(): Map<number, { readonly parent: number; readonly isZombie: boolean; readonly isStopped: boolean }> {
  const { stdout } = spawnSync('ps', ['-A', '-o', 'pid=,ppid=,stat='], { encoding: 'utf8' });
  const rows = stdout
    .trim()
    .split('\n')
    .map((line) => line.trim().split(/\s+/));
  return new Map(
    rows.map(([id, parent, state]) => [
      Number(id),
      { parent: Number(parent), isZombie: state?.startsWith('Z') === true, isStopped: state?.startsWith('T') === true },
    ]),
  );
}

export function isRunning(processId: number): boolean {
  const found = table().get(processId);
  return found !== undefined && !found.isZombie;
}

/** Whether SIGSTOP has stopped the process. */
export const isStopped = (processId: number): boolean => table().get(processId)?.isStopped === true;

/** The program and its arguments; empty for a process that has ended. */
export const commandOf = (processId: number): string =>
  spawnSync('ps', ['-o', 'args=', '-p', String(processId)], { encoding: 'utf8' }).stdout;

/** The children of a process, zombies included. */
export const childrenOf = (processId: number): number[] =>
  [...table()].filter(([, { parent }]) => parent === processId).map(([id]) => id);

/** Resolves when all of these processes have ended; rejects after two minutes. */
export async function allGone(processIds: readonly number[]): Promise<void> {
  for (let attempt = 0; attempt < 1200; attempt++) {
    if (!processIds.some(isRunning)) return;
    await wait(100);
  }
  throw new Error(`still running: ${processIds.filter(isRunning).join(', ')}`);
}

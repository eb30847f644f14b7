import { setImmediate as nextTurn, setTimeout as wait } from 'node:timers/promises';
import koffi from 'koffi';
import { configureKoffi } from './koffi-config.ts';
import { processes } from './processes.ts';

const WNOHANG = 1;
/** Between the end of a child process and the first look for zombies, and between two looks. */
const lookMs = 500;

/**
 * What process 1 of a container must do, and no other process: the kernel ignores signals for which it has no listener, and
 * gives it the processes whose parents have ended, whose exit codes it must read.
 *
 * @param end called at a signal for which the command has no listener, or not yet
 */
export function actAsInit(end: (signal: 'SIGINT' | 'SIGTERM') => void): void {
  for (const signal of ['SIGINT', 'SIGTERM'] as const)
    process.on(signal, () => {
      if (process.listenerCount(signal) === 1) end(signal);
    });
  if (process.platform === 'linux') reapOrphans();
}

function reapOrphans(): void {
  let isLooking = false;
  let isAskedAgain = false;
  process.on('SIGCHLD', () => {
    isAskedAgain = true;
    if (!isLooking) void look();
  });

  async function look(): Promise<void> {
    isLooking = true;
    while (isAskedAgain) {
      isAskedAgain = false;
      await wait(lookMs, undefined, { ref: false });
      const before = new Set(zombies());
      await wait(lookMs, undefined, { ref: false });
      // After two turns of the event loop, Node has read the exit codes of its own children, also after a long pause.
      await nextTurn();
      await nextTurn();
      for (const id of zombies()) if (before.has(id)) readExitCode(id);
    }
    isLooking = false;
  }
}

/** The children of this process that have ended and whose exit codes nobody has read. */
const zombies = (): number[] =>
  processes()
    .filter(({ state, parent }) => state === 'Z' && parent === process.pid)
    .map(({ id }) => id);

let waitpid: ((id: number, status: null, options: number) => number) | undefined;

function readExitCode(id: number): void {
  configureKoffi();
  waitpid ??= koffi.load(null).func('waitpid', 'int', ['int', 'int *', 'int']);
  waitpid(id, null, WNOHANG);
}

import { spawnSync } from 'node:child_process';
import { closeSync, constants, openSync, readSync, rmSync, writeSync } from 'node:fs';

/**
 * A FIFO without data. A thread that reads from it blocks in a system call that does not return until `release`, like a read
 * from a network mount without a server.
 */
export class Fifo {
  readonly path: string;
  /** Open from the start, so that `release` needs no path. Each blocked reader reads one byte of it. */
  readonly #writeEnd: number;

  private constructor(path: string) {
    this.path = path;
    this.#writeEnd = openSync(path, constants.O_RDWR | constants.O_NONBLOCK);
  }

  /** Undefined: the system has no FIFOs. Runs the command `mkfifo`, because Node has no such call. */
  static make(path: string): Fifo | undefined {
    return spawnSync('mkfifo', [path]).status === 0 ? new Fifo(path) : undefined;
  }

  /** All readers return, also those that open the FIFO before `close`. */
  release(): void {
    writeSync(this.#writeEnd, new Uint8Array(readersMax));
  }

  close(): void {
    closeSync(this.#writeEnd);
    rmSync(this.path, { force: true });
  }
}

/** Less than a FIFO holds. */
const readersMax = 4096;

/** For a thread that may block: returns when the FIFO is released. Throws if it is closed. */
export function readFifo(path: string): void {
  const file = openSync(path, 'r');
  try {
    readSync(file, new Uint8Array(1));
  } finally {
    closeSync(file);
  }
}

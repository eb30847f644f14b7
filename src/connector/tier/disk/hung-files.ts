import { spawnSync } from 'node:child_process';
import { closeSync, constants, linkSync, lstatSync, openSync, renameSync, rmSync, unlinkSync } from 'node:fs';
import { isMissing } from './disk-file.ts';

/**
 * For fault injection: block files whose reads do not return. A FIFO replaces the file. Opening a FIFO blocks in the system
 * until a process opens the FIFO for writing. A read from a network mount without a server blocks in the same way.
 *
 *     <file>        the FIFO
 *     <file>.fifo   a second name of the FIFO, because mending removes the first name
 *     <file>.whole  the block
 *
 * All calls are synchronous, so a file cannot be mended while it is being replaced. None of these calls reads a block.
 */
export class HungFiles {
  readonly #paths = new Set<string>();
  #isClosed: boolean = false;

  /** False: there is no such file, or the system or the file system cannot do this. Then nothing has changed. */
  hang(path: string): boolean {
    if (this.#isClosed) return false;
    if (this.#paths.has(path)) return true;
    const [fifo, whole] = [`${path}.fifo`, `${path}.whole`];
    try {
      const found = statOf(path);
      // The FIFO of a killed process: this process will mend the file.
      if (found?.isFIFO() === true && isThere(whole)) {
        if (!isThere(fifo)) linkSync(path, fifo);
      } else {
        if (found?.isFile() !== true || isThere(fifo) || isThere(whole) || !makeFifo(fifo)) return false;
        replace(path, fifo, whole);
      }
    } catch {
      return false;
    }
    this.#paths.add(path);
    return true;
  }

  /**
   * Puts the block back and unblocks all readers: they read the end of the FIFO. A file without a FIFO does not change.
   */
  mend(path: string): void {
    if (!this.#paths.delete(path)) return;
    try {
      renameSync(`${path}.whole`, path);
    } catch (error) {
      if (!isMissing(error)) throw error;
    }
    // Opens both ends without blocking.
    const fifo = `${path}.fifo`;
    try {
      closeSync(openSync(fifo, constants.O_RDWR | constants.O_NONBLOCK));
      unlinkSync(fifo);
    } catch (error) {
      if (!isMissing(error)) throw error;
    }
  }

  /** Mends all files. Later calls of `hang` have no effect. */
  close(): void {
    this.#isClosed = true;
    for (const path of [...this.#paths]) this.mend(path);
  }
}

/** Atomic for readers: they find the block or the FIFO. */
function replace(path: string, fifo: string, whole: string): void {
  const next = `${path}.next`;
  try {
    linkSync(path, whole);
    linkSync(fifo, next);
    renameSync(next, path);
  } catch (error) {
    for (const name of [next, whole, fifo]) rmSync(name, { force: true });
    throw error;
  }
}

const statOf = (path: string) => lstatSync(path, { throwIfNoEntry: false });
const isThere = (path: string): boolean => statOf(path) !== undefined;

/** Runs the command `mkfifo`, because Node has no such call. False if there is no such command. */
const makeFifo = (path: string): boolean => spawnSync('mkfifo', [path]).status === 0;

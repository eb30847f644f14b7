import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { noSocketFolder } from '../cli-errors.ts';

/** Longer paths of Unix sockets are cut: after 107 bytes on Linux, after 103 on other systems. */
const pathBytesMax = 103;
/** `/kvasir-XXXXXX/` and a number. */
const ownBytesMax = 24;

/** Where temporary folders may be. The first is the user's choice, and the others are short. */
const places = (): readonly string[] => [
  resolve(tmpdir()),
  ...(process.env.XDG_RUNTIME_DIR === undefined ? [] : [process.env.XDG_RUNTIME_DIR]),
  ...['/tmp', '/var/tmp', '/dev/shm'],
];

/** The sockets of the models, in a new folder that only this user can read. Sockets that other servers have left are elsewhere. */
export class SocketFolder {
  readonly #path: string | undefined;
  #count = 0;

  /** @throws noSocketFolder */
  constructor(parents = places(), platform = process.platform) {
    this.#path = platform === 'win32' ? undefined : folderIn(parents);
  }

  /** A new path for each process. */
  next(): string {
    const name = `${++this.#count}`;
    return this.#path === undefined ? `\\\\.\\pipe\\kvasir-${process.pid}-${name}` : join(this.#path, name);
  }

  remove(): void {
    if (this.#path !== undefined) rmSync(this.#path, { recursive: true, force: true });
  }
}

function folderIn(parents: readonly string[]): string {
  const problems = new Map<string, string>();
  for (const parent of parents) {
    if (Buffer.byteLength(parent) > pathBytesMax - ownBytesMax) {
      problems.set(parent, `longer than ${pathBytesMax - ownBytesMax} bytes`);
      continue;
    }
    try {
      return mkdtempSync(join(parent, 'kvasir-'));
    } catch (error) {
      problems.set(parent, (error as NodeJS.ErrnoException).code ?? 'unknown');
    }
  }
  const tried = Array.from(problems, ([parent, problem]) => `${parent} (${problem})`).join(', ');
  throw noSocketFolder({ tried });
}

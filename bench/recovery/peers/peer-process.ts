import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { trackChild } from '../../../src/base/child-processes.ts';
import type { JsonObject } from '../../../src/base/json.ts';
import { processes } from '../../../src/base/processes.ts';
import { serverEnded } from '../../../src/cli/proof/errors.ts';
import { peerNotInstalled } from '../../errors.ts';

const pollMs = 200;
const lastLinesMax = 20;

/** A Python script that serves HTTP until it is killed. It prints one line of JSON with its `address`. */
export class PeerProcess {
  readonly origin: string;
  readonly #child: ChildProcess;

  /** Resolves when `/health` has status 200. @throws KvasirError `serverEnded` */
  static async start(python: string, script: string, options: JsonObject, signal: AbortSignal): Promise<PeerProcess> {
    signal.throwIfAborted();
    const child = spawn(python, [script, JSON.stringify(options)], {
      stdio: ['ignore', 'pipe', 'pipe'],
      // A group of its own, because peers start processes that outlive them.
      detached: true,
    });
    trackChild(child);
    const abort = (): void => killGroup(child);
    signal.addEventListener('abort', abort, { once: true });
    child.once('exit', () => signal.removeEventListener('abort', abort));
    const lastLines: string[] = [];
    const keep = (line: string): void => {
      lastLines.push(line);
      if (lastLines.length > lastLinesMax) lastLines.shift();
    };
    createInterface({ input: child.stderr }).on('line', keep);
    const address = new Promise<string>((resolve) => {
      createInterface({ input: child.stdout }).on('line', (line) => {
        const found = /^\{"address": "(.+)"\}$/.exec(line)?.[1];
        if (found === undefined) keep(line);
        else resolve(found);
      });
    });
    const ended = once(child, 'close').then(() => undefined);
    const origin = await Promise.race([address, ended]);
    const server = new PeerProcess(child, origin ?? '');
    while (origin !== undefined && server.#isRunning && !(await server.isServing())) await sleep(pollMs);
    signal.throwIfAborted();
    if (origin === undefined || !server.#isRunning) throw serverEnded({ reason: lastLines.join('\n') });
    return server;
  }

  private constructor(child: ChildProcess, origin: string) {
    this.#child = child;
    this.origin = origin;
  }

  get #isRunning(): boolean {
    return this.#child.exitCode === null && this.#child.signalCode === null;
  }

  async isServing(): Promise<boolean> {
    const response = await fetch(`${this.origin}/health`).catch(() => undefined);
    return this.#isRunning && response?.ok === true;
  }

  /** Of the processes that it started, the one with the most CPU time; the process itself if it started none. */
  killComputing(): void {
    const all = processes();
    const started = new Set([this.#child.pid]);
    // A process has a higher id than its parent.
    for (const { id, parent } of all.sort((a, b) => a.id - b.id)) if (started.has(parent)) started.add(id);
    const others = all.filter(({ id }) => started.has(id) && id !== this.#child.pid);
    const busiest = others.sort((a, b) => b.ticks - a.ticks)[0];
    process.kill(busiest?.id ?? this.#child.pid!, 'SIGKILL');
  }

  async stop(): Promise<void> {
    const ended = this.#isRunning ? once(this.#child, 'exit') : undefined;
    killGroup(this.#child);
    await ended;
  }
}

function killGroup({ pid }: ChildProcess): void {
  try {
    process.kill(-pid!, 'SIGKILL');
  } catch {
    // All of them have ended.
  }
}

/** The version of a Python package. @throws KvasirError `peerNotInstalled` */
export async function packageVersion(python: string, name: string): Promise<string> {
  const program = `import importlib.metadata, sys; print(importlib.metadata.version(sys.argv[1]))`;
  try {
    return (await promisify(execFile)(python, ['-c', program, name])).stdout.trim();
  } catch (error) {
    const reason = (error as Error).message.trim().split('\n').at(-1) ?? '';
    throw peerNotInstalled({ peer: name, python, reason }, error);
  }
}

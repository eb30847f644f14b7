/** Programs of llm-d that `tools/compat/install-llm-d` builds. */
import { type ChildProcessByStdio, spawn, spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import type { Readable, Writable } from 'node:stream';
import { defaultCacheFolder } from '../../src/base/cache-folder.ts';

/** The versions of the sidecar and of the index, as in `tools/compat/install-llm-d`. */
const folder = join(defaultCacheFolder() ?? '', 'llm-d-v0.7.1-v0.9.0');

const builtSidecar = join(folder, 'pd-sidecar');
/** Or another version in `PATH`. */
export const pdSidecar = existsSync(builtSidecar) ? builtSidecar : 'pd-sidecar';
export const hasSidecar = spawnSync(pdSidecar, ['--help']).error === undefined;
export const noSidecar = 'no routing sidecar of llm-d: run tools/compat/install-llm-d';

const kvIndexer = join(folder, 'kv-indexer');
export const hasKvIndexer = existsSync(kvIndexer);
export const noKvIndexer = 'no index of KV blocks of llm-d: run tools/compat/install-llm-d';

/** `tools/compat/kv_indexer`: llm-d's index of KV blocks, which follows the events of servers. */
export class KvIndexer {
  readonly #process: ChildProcessByStdio<Writable, Readable, null>;
  readonly #lines: AsyncIterator<string>;

  /** `endpoints`: of the servers' events, by the name in their topics. */
  constructor(endpoints: Readonly<Record<string, string>>) {
    const pods = Object.entries(endpoints).map(([name, endpoint]) => `${name}=${endpoint}`);
    this.#process = spawn(kvIndexer, pods, { stdio: ['pipe', 'pipe', 'inherit'] });
    this.#lines = createInterface(this.#process.stdout)[Symbol.asyncIterator]();
  }

  /** Of each server that has the first block of the prompt. One call at a time. */
  async score(model: string, tokens: readonly number[]): Promise<Readonly<Partial<Record<string, number>>>> {
    this.#process.stdin.write(`${JSON.stringify({ model, tokens })}\n`);
    const { value, done } = await this.#lines.next();
    if (done === true) throw new Error(`the index has ended with ${this.#process.exitCode}`);
    return JSON.parse(value) as Partial<Record<string, number>>;
  }

  kill(): void {
    this.#process.kill('SIGKILL');
  }
}

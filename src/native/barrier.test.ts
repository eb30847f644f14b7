import { spawn, spawnSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { needs } from '../../test/support/needs.ts';
import { type ComputeDevice, openDevice } from '../ggml/device.ts';
import { loadNative, type RawPtr } from '../ggml/ffi.ts';
import { GraphBuilder } from '../ggml/graph.ts';
import { F32 } from '../ggml/types.ts';
import { openBarrier } from './barrier.ts';

// Before any backend is loaded.
const native = loadNative();
const barrier = await openBarrier(native);
const reason = 'no C compiler, or not Linux';

/** Adds 1 to each of 64 values, `depth` times, with a barrier after each addition. */
class Additions {
  readonly #graph: GraphBuilder;
  readonly #values = Float32Array.from({ length: 64 }, (_, i) => i);
  readonly #depth: number;
  readonly #result: ReturnType<GraphBuilder['add']>;
  readonly #inputs: readonly ReturnType<GraphBuilder['add']>[];

  constructor(device: ComputeDevice, depth: number) {
    this.#graph = new GraphBuilder(device);
    this.#depth = depth;
    this.#graph.begin(depth + 2);
    const x = this.#graph.input(F32, 1, 64);
    const one = this.#graph.input(F32, 1, 64);
    this.#inputs = [x, one];
    let sum = x;
    for (let i = 0; i < depth; i++) sum = this.#graph.add(sum, one);
    this.#graph.output(sum);
    this.#result = sum;
    this.#graph.allocate();
  }

  compute(): Promise<void> {
    this.#write();
    return this.#graph.compute();
  }

  /** On this thread instead of the device's. */
  computeNow(): void {
    this.#write();
    this.#graph.computeNow();
  }

  #write(): void {
    this.#graph.write(this.#inputs[0]!, this.#values);
    this.#graph.write(this.#inputs[1]!, new Float32Array(64).fill(1));
  }

  check(): void {
    const found = this.#graph.dataOf(this.#result, Float32Array);
    expect(found).toEqual(this.#values.map((value) => value + this.#depth));
  }

  close(): void {
    this.#graph.close();
  }
}

/** A device and its pool of threads. */
function openWatched(threads: number, cpus: readonly number[] = []) {
  const watched: RawPtr[] = [];
  const unwatched: RawPtr[] = [];
  const watcher = {
    watch(pool: RawPtr): void {
      watched.push(pool);
      barrier!.watch(pool, cpus);
    },
    unwatch(pool: RawPtr): void {
      unwatched.push(pool);
      barrier!.unwatch(pool);
    },
  };
  return { device: openDevice({ device: 'cpu', threads, exact: true, barrier: watcher }), watched, unwatched };
}

/** The list of cores of a thread of this process; empty if the thread has ended. */
function coresOf(thread: string): string {
  try {
    const status = readFileSync(`/proc/self/task/${thread}/status`, 'latin1');
    return /^Cpus_allowed_list:\s+(\S+)/m.exec(status)?.[1] ?? '';
  } catch {
    return '';
  }
}

const [SCHED_OTHER, SCHED_BATCH] = [0, 3];
/** The scheduling policy of a thread of this process. */
function policyOf(thread: string): number {
  try {
    // Field 41; the second one is a name in parentheses.
    return Number(
      readFileSync(`/proc/self/task/${thread}/stat`, 'latin1')
        .replace(/^.*\) /, '')
        .split(' ')[38],
    );
  } catch {
    return -1;
  }
}

const otherThreads = (): string[] => readdirSync('/proc/self/task').filter((thread) => thread !== String(process.pid));

/** Has no effect on a thread that has ended. */
const setCores = (thread: string, list: string): void =>
  void spawnSync('taskset', ['--cpu-list', '--pid', list, thread], { stdio: 'ignore' });

/** The cores that this process may use. */
const cores = coresOf(String(process.pid))
  .split(',')
  .flatMap((range) => {
    const [from = 0, to = from] = range.split('-').map(Number);
    return Array.from({ length: to - from + 1 }, (_, i) => from + i);
  });
const hasTaskset = spawnSync('taskset', ['--version']).status === 0;

afterEach(() => void vi.unstubAllEnvs());

describe('the barrier of compute threads', () => {
  it(
    'more threads than cores compute the right values, and threads sleep at barriers',
    needs(barrier !== undefined, reason),
    async () => {
      const { device, watched, unwatched } = openWatched(3 * availableParallelism() + 1);
      const pool = watched[0]!;
      expect(barrier!.counts(pool)).toEqual({ sleeps: 0, exchanges: 0 });
      const additions = new Additions(device, 300);
      // At most as many threads as cores run at once, so the others are late at some barrier.
      while (barrier!.counts(pool).sleeps === 0) {
        await additions.compute();
        additions.check();
      }
      additions.close();
      device.close();
      expect(unwatched).toEqual(watched);
      expect(barrier!.counts(pool)).toEqual({ sleeps: 0, exchanges: 0 });
    },
  );

  it(
    'two pools at once and pools one after another compute the right values',
    needs(barrier !== undefined, reason),
    async () => {
      for (let round = 0; round < 3; round++) {
        const opened = [2, 3].map((threads) => openWatched(threads));
        const all = opened.map(({ device }) => new Additions(device, 100));
        for (let i = 0; i < 3; i++) {
          await Promise.all(all.map((additions) => additions.compute()));
          for (const additions of all) additions.check();
        }
        for (const additions of all) additions.close();
        for (const { device } of opened) device.close();
      }
    },
  );

  it(
    'threads that are pinned to a core stay there, also a single thread',
    needs(barrier !== undefined, reason),
    async () => {
      const core = Number.parseInt(coresOf(String(process.pid)), 10);
      expect(barrier!.usableCpus([core, -1, 100_000])).toBe(1);
      for (const threads of [1, 3]) {
        const { device } = openWatched(threads, [core]);
        const additions = new Additions(device, 300);
        await additions.compute();
        additions.check();
        const pinned = readdirSync('/proc/self/task').filter((thread) => coresOf(thread) === String(core));
        expect(pinned.length).toBeGreaterThanOrEqual(threads);
        additions.close();
        device.close();
      }
    },
  );

  it(
    'two threads on one core move to two cores, wherever the thread that opened the pool has computed',
    needs(barrier !== undefined && cores.length > 1 && hasTaskset, 'no C compiler, one core, or no taskset'),
    async () => {
      const { device, watched } = openWatched(2);
      const additions = new Additions(device, 300);
      const [first, second] = cores;
      // The thread that opened the pool has computed on the second core, and does not compute any more.
      setCores(String(process.pid), String(second));
      additions.computeNow();
      await additions.compute();
      for (const thread of otherThreads()) setCores(thread, String(first));
      // As long as both are on the first core, one of them waits for the other, which does not run.
      const { exchanges } = barrier!.counts(watched[0]!);
      while (barrier!.counts(watched[0]!).exchanges === exchanges) await additions.compute();
      expect(otherThreads().map(coresOf)).not.toEqual(otherThreads().map(() => String(first)));
      additions.close();
      device.close();
      for (const thread of [String(process.pid), ...otherThreads()]) setCores(thread, cores.join(','));
    },
  );

  it(
    'compute threads do not interrupt other threads when they wake up, unless other programs are busy',
    needs(barrier !== undefined, reason),
    async () => {
      const { device } = openWatched(2);
      const additions = new Additions(device, 300);
      const batchThreads = () => otherThreads().filter((thread) => policyOf(thread) === SCHED_BATCH);
      // There may be more of them: threads of closed devices, which are kept for the next device.
      while (batchThreads().length < 2) await additions.compute();
      expect(policyOf(String(process.pid))).toBe(SCHED_OTHER);
      additions.close();
      device.close();
    },
  );

  it(
    'compute threads interrupt other threads again if other programs take their cores',
    needs(barrier !== undefined, reason),
    async () => {
      const { device } = openWatched(2);
      const additions = new Additions(device, 300);
      const others = Array.from({ length: 4 * availableParallelism() }, () =>
        spawn(process.execPath, ['--eval', 'for (;;);'], { stdio: 'ignore' }),
      );
      try {
        const batch = new Set<string>();
        const isUsualAgain = (): boolean => {
          for (const thread of otherThreads()) if (policyOf(thread) === SCHED_BATCH) batch.add(thread);
          return [...batch].some((thread) => policyOf(thread) === SCHED_OTHER);
        };
        while (!isUsualAgain()) await additions.compute();
        additions.check();
      } finally {
        for (const other of others) other.kill('SIGKILL');
        additions.close();
        device.close();
      }
    },
  );

  it('a pool that is not watched computes the right values', needs(barrier !== undefined, reason), async () => {
    const device = openDevice({ device: 'cpu', threads: 2, exact: true });
    const additions = new Additions(device, 100);
    await additions.compute();
    additions.check();
    additions.close();
    device.close();
  });

  it('is absent without a compiler', async () => {
    vi.stubEnv('XDG_CACHE_HOME', '/dev/null');
    expect(await openBarrier(native, { compiler: '/nonexistent/cc' })).toBeUndefined();
  });

  it('is absent if the environment asks for the barrier of ggml', async () => {
    vi.stubEnv('KVASIR_BARRIER', 'ggml');
    expect(await openBarrier(native)).toBeUndefined();
  });
});

import { once } from 'node:events';
import { Worker } from 'node:worker_threads';

/**
 * The program of each thread. `compare` of equal buffers is libc's `memcmp`: it reads both completely and writes nothing.
 */
const program = `
const { parentPort, workerData: { bytes, rounds } } = require('node:worker_threads');
const now = () => performance.timeOrigin + performance.now();
const [a, b] = [Buffer.alloc(bytes, 1), Buffer.alloc(bytes, 1)];
parentPort.on('message', () => {
  const startedMs = now();
  for (let i = 0; i < rounds; i++) a.compare(b);
  parentPort.postMessage({ startedMs, endedMs: now() });
});
a.compare(b);
parentPort.postMessage('ready');
`;
/** Larger than any CPU cache. */
const bytesMax = 512 * 1024 ** 2;
/** Enough for a measurable time. */
const readBytes = 1024 ** 3;

/**
 * Threads that read memory together, as fast as it delivers. They read the same `bytesInAll` bytes repeatedly, at most
 * half a gigabyte. Bytes that fit into a CPU cache are read from the cache, like a small model.
 */
export class MemoryReaders {
  readonly #workers: readonly Worker[];
  readonly #bytesPerRead: number;

  private constructor(workers: readonly Worker[], bytesPerRead: number) {
    this.#workers = workers;
    this.#bytesPerRead = bytesPerRead;
  }

  /** Resolves when all threads have their memory. */
  static async open(threads: number, bytesInAll: number): Promise<MemoryReaders> {
    const bytes = Math.ceil(Math.min(bytesInAll, bytesMax) / threads / 2);
    const rounds = Math.ceil(readBytes / (2 * bytes * threads));
    const workers = Array.from({ length: threads }, () => {
      return new Worker(program, { eval: true, workerData: { bytes, rounds } });
    });
    const readers = new MemoryReaders(workers, 2 * bytes * threads * rounds);
    try {
      await Promise.all(workers.map((worker) => once(worker, 'message')));
    } catch (error) {
      await readers.close();
      throw error;
    }
    return readers;
  }

  /** Bytes per second that the threads read together now. */
  async bandwidth(): Promise<number> {
    const answers = this.#workers.map((worker) => once(worker, 'message') as Promise<[Reading]>);
    for (const worker of this.#workers) worker.postMessage('go');
    const readings = (await Promise.all(answers)).map(([reading]) => reading);
    const started = Math.min(...readings.map(({ startedMs }) => startedMs));
    const ended = Math.max(...readings.map(({ endedMs }) => endedMs));
    return (this.#bytesPerRead * 1000) / (ended - started);
  }

  async close(): Promise<void> {
    await Promise.all(this.#workers.map((worker) => worker.terminate()));
  }
}

interface Reading {
  readonly startedMs: number;
  readonly endedMs: number;
}

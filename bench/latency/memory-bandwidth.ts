import { once } from 'node:events';
import { Worker } from 'node:worker_threads';

/**
 * The program of each thread. `compare` of equal buffers is libc's `memcmp`: it reads both completely and writes nothing.
 * The threads start when all have their memory.
 */
const program = `
const { parentPort, workerData: { bytes, rounds } } = require('node:worker_threads');
const now = () => performance.timeOrigin + performance.now();
const [a, b] = [Buffer.alloc(bytes, 1), Buffer.alloc(bytes, 1)];
parentPort.once('message', () => {
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
 * Bytes per second that `threads` threads read together. They read the same `bytesInAll` bytes repeatedly, at most half a
 * gigabyte. Bytes that fit into a CPU cache are read from the cache, like a small model.
 */
export async function readBandwidth(threads: number, bytesInAll: number): Promise<number> {
  const bytes = Math.ceil(Math.min(bytesInAll, bytesMax) / threads / 2);
  const rounds = Math.ceil(readBytes / (2 * bytes * threads));
  const workers = Array.from({ length: threads }, () => {
    return new Worker(program, { eval: true, workerData: { bytes, rounds } });
  });
  try {
    await Promise.all(workers.map((worker) => once(worker, 'message')));
    const answers = workers.map((worker) => once(worker, 'message') as Promise<[Reading]>);
    for (const worker of workers) worker.postMessage('go');
    const readings = (await Promise.all(answers)).map(([reading]) => reading);
    const started = Math.min(...readings.map(({ startedMs }) => startedMs));
    const ended = Math.max(...readings.map(({ endedMs }) => endedMs));
    return (2 * bytes * threads * rounds * 1000) / (ended - started);
  } finally {
    await Promise.all(workers.map((worker) => worker.terminate()));
  }
}

interface Reading {
  readonly startedMs: number;
  readonly endedMs: number;
}

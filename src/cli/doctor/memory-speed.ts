import { Worker } from 'node:worker_threads';

/** How long each thread reads. */
const readMs = 300;
/** Of all threads together: more than the caches of most CPUs. */
const totalBytes = 512 << 20;

/**
 * A thread compares two equal areas, which reads both at the speed of memory. Text, because a build of the package and the
 * tests load different files.
 */
const reader = `
const { parentPort, workerData } = require('node:worker_threads');
const { areaBytes, readMs } = workerData;
const [a, b] = [Buffer.alloc(areaBytes, 1), Buffer.alloc(areaBytes, 1)];
parentPort.once('message', () => {
  let bytes = 0;
  const begin = performance.now();
  let ms = 0;
  do {
    if (a.compare(b) !== 0) throw new Error('equal areas differ');
    bytes += 2 * areaBytes;
    ms = performance.now() - begin;
  } while (ms < readMs);
  parentPort.postMessage({ bytesPerSecond: bytes / ms * 1000 });
});
parentPort.postMessage('ready');
`;

/** Bytes per second at which this many threads read memory together. */
export async function measureMemorySpeed(threads: number): Promise<number> {
  const areaBytes = Math.max(4 << 20, Math.floor(totalBytes / threads / 2));
  const workers = Array.from(
    { length: threads },
    () => new Worker(reader, { eval: true, workerData: { areaBytes, readMs } }),
  );
  try {
    await Promise.all(workers.map((worker) => nextMessage(worker)));
    const speeds = workers.map((worker) => nextMessage(worker) as Promise<{ readonly bytesPerSecond: number }>);
    for (const worker of workers) worker.postMessage('read');
    return (await Promise.all(speeds)).reduce((sum, { bytesPerSecond }) => sum + bytesPerSecond, 0);
  } finally {
    await Promise.all(workers.map((worker) => worker.terminate()));
  }
}

const nextMessage = (worker: Worker): Promise<unknown> =>
  new Promise((resolve, reject) => {
    worker.once('message', resolve);
    worker.once('error', reject);
  });

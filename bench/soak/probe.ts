/**
 * Loaded into the server and its worker processes by `NODE_OPTIONS=--import`. At SIGUSR2 it writes the memory and the open files of the
 * process as a line of JSON. Only the process itself can count its reachable objects and its native memory.
 */
import { appendFileSync, readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { Session } from 'node:inspector/promises';
import { join } from 'node:path';
import { setImmediate as nextTurn, setTimeout as sleep } from 'node:timers/promises';
import { getHeapCodeStatistics } from 'node:v8';
import { BroadcastChannel, isMainThread } from 'node:worker_threads';
import koffi from 'koffi';
import { configureKoffi } from '../../src/base/koffi-config.ts';
import { type PlantedBug, plant } from './planted-bugs.ts';

const { KVASIR_SOAK_PROBE: folder, KVASIR_SOAK_COLLECT: collect, KVASIR_SOAK_PLANT: planted } = process.env;

const channelName = 'kvasir-soak';

/** The bytes that `malloc` has given out, large ones by `mmap` included. Undefined without glibc 2.33. */
function nativeCounter(): () => number | undefined {
  const names = [
    'arena',
    'ordblks',
    'smblks',
    'hblks',
    'hblkhd',
    'usmblks',
    'fsmblks',
    'uordblks',
    'fordblks',
    'keepcost',
  ];
  try {
    configureKoffi();
    const counts = koffi.struct(Object.fromEntries(names.map((name) => [name, 'size_t'])));
    const mallinfo = koffi.load('libc.so.6').func('mallinfo2', counts, []);
    return () => {
      const { uordblks, hblkhd } = mallinfo() as { readonly uordblks: number; readonly hblkhd: number };
      return uordblks + hblkhd;
    };
  } catch {
    return () => undefined;
  }
}

/** Sockets are counted apart: idle connections come and go. */
function openFiles(): { readonly files?: number; readonly sockets?: number } {
  try {
    const targets = readdirSync('/proc/self/fd').map((name) => {
      try {
        return readlinkSync(`/proc/self/fd/${name}`);
      } catch {
        // The folder itself, which is closed.
        return undefined;
      }
    });
    const known = targets.filter((target) => target !== undefined);
    const sockets = known.filter((target) => target.startsWith('socket:')).length;
    return { files: known.length - sockets, sockets };
  } catch {
    return {};
  }
}

/** Memory without the pages of files, and threads. */
function systemCounts(): { readonly resident?: number; readonly threads?: number } {
  try {
    const status = readFileSync('/proc/self/status', 'utf8');
    const field = (name: string): number => Number(new RegExp(`^${name}:\\s+(\\d+)`, 'm').exec(status)![1]);
    return { resident: 1024 * field('RssAnon'), threads: field('Threads') };
  } catch {
    return {};
  }
}

/** Waits until the other threads, which have heaps of their own, have collected their garbage. */
async function collectInThreads(channel: BroadcastChannel): Promise<void> {
  let [answers, before] = [0, -1];
  channel.onmessage = () => answers++;
  channel.postMessage('collect');
  // A thread that is blocked does not answer.
  while (answers > before) {
    before = answers;
    await sleep(200);
  }
}

/**
 * The collection for a system with little memory: it moves objects together and gives free pages back to the system. After `gc()`, V8 keeps
 * up to 32 MiB of pages for young objects, and pages of old objects with gaps.
 */
async function collectGarbage(): Promise<void> {
  const session = new Session();
  session.connect();
  await session.post('HeapProfiler.collectGarbage');
  session.disconnect();
}

/** Gives the free pages of `malloc` back to the system; nothing without glibc. */
function trimmer(): () => void {
  try {
    const trim = koffi.load('libc.so.6').func('int malloc_trim(size_t)') as (pad: number) => number;
    return () => void trim(0);
  } catch {
    return () => undefined;
  }
}

/** V8 gives pages back on its own threads. */
async function whileFalling(value: () => number | undefined): Promise<void> {
  let [before, now] = [Number.POSITIVE_INFINITY, value() ?? 0];
  while (now < before) {
    await sleep(50);
    [before, now] = [now, value() ?? 0];
  }
}

if (folder !== undefined && !isMainThread) {
  const channel = new BroadcastChannel(channelName);
  channel.onmessage = ({ data }: { data: unknown }) => {
    if (data !== 'collect') return;
    void collectGarbage().then(() => channel.postMessage('collected'));
  };
  channel.unref();
}

if (folder !== undefined && isMainThread) {
  const channel = new BroadcastChannel(channelName);
  channel.unref();
  const nativeBytes = nativeCounter();
  const trim = trimmer();
  const write = (line: object): void => {
    try {
      appendFileSync(join(folder, `${process.pid}.jsonl`), `${JSON.stringify(line)}\n`);
    } catch {
      // The soak has ended and removed the folder.
    }
  };
  const sample = async (): Promise<void> => {
    const { resident: busy } = systemCounts();
    const resources = process.getActiveResourcesInfo().length;
    if (collect === 'no') {
      write({ busy, threads: systemCounts().threads, ...openFiles(), resources });
      return;
    }
    await collectInThreads(channel);
    // Finalizers run between collections, and free memory for the next collection.
    for (let i = 0; i < 3; i++) {
      await collectGarbage();
      await nextTurn();
    }
    trim();
    await whileFalling(() => systemCounts().resident);
    const { heapUsed, external } = process.memoryUsage();
    const { code_and_metadata_size: compiled, bytecode_and_metadata_size: bytecode } = getHeapCodeStatistics();
    const code = compiled + bytecode;
    const heap = heapUsed + external - code;
    write({ heap, code, native: nativeBytes(), busy, ...systemCounts(), ...openFiles(), resources });
  };
  process.on('SIGUSR2', () => void sample());
  // Node warns of emitters with many listeners.
  process.on('warning', ({ name, message }) => write({ warning: `${name}: ${message}` }));
  // The process can be asked now.
  write({});
  if (planted !== undefined) plant(planted.split(',') as PlantedBug[]);
}

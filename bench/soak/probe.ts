/**
 * Loaded into the server and its worker processes by `NODE_OPTIONS=--import`: writes the memory and the open files of the process as
 * lines of JSON. Only the process itself can count its reachable objects and its native memory.
 */
import { appendFileSync, openSync, readdirSync } from 'node:fs';
import { ServerResponse } from 'node:http';
import { join } from 'node:path';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { isMainThread } from 'node:worker_threads';
import koffi from 'koffi';
import { configureKoffi } from '../../src/base/koffi-config.ts';

const { KVASIR_SOAK_PROBE: folder, KVASIR_SOAK_EVERY_MS: everyMs, KVASIR_SOAK_PLANT: plants = '' } = process.env;

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

function openFiles(): number | undefined {
  try {
    return readdirSync('/proc/self/fd').length;
  } catch {
    return undefined;
  }
}

if (folder !== undefined && isMainThread) {
  setFlagsFromString('--expose-gc');
  const collectGarbage = runInNewContext('gc') as () => void;
  const nativeBytes = nativeCounter();
  const path = join(folder, `${process.pid}.jsonl`);
  const sample = (): void => {
    const startMs = performance.now();
    collectGarbage();
    const { heapUsed, external, rss } = process.memoryUsage();
    const line = { ms: Date.now(), heap: heapUsed + external, native: nativeBytes(), rss, files: openFiles() };
    try {
      appendFileSync(path, `${JSON.stringify(line)}\n`);
    } catch {
      // The soak has ended and removed the folder.
    }
    plantLeak();
    // On a busy machine a garbage collection takes long: the probe takes at most a twentieth of the time.
    setTimeout(sample, Math.max(Number(everyMs), 20 * (performance.now() - startMs))).unref();
  };
  setTimeout(sample, Number(everyMs)).unref();
  if (plants.includes('wrong')) plantWrongText();
}

const kept: unknown[] = [];

/** Tests of the soak itself. */
function plantLeak(): void {
  if (plants.includes('heap')) kept.push(Array.from({ length: 1 << 20 }, (_, i) => i + 0.5));
  if (plants.includes('files')) for (let i = 0; i < 20; i++) kept.push(openSync('/dev/null', 'r'));
}

/** Changes one token in twenty. */
function plantWrongText(): void {
  const { write } = ServerResponse.prototype;
  let count = 0;
  const changed = (chunk: unknown): unknown => {
    if (typeof chunk !== 'string' || !chunk.includes('"token_ids":[') || ++count % 20 !== 0) return chunk;
    return chunk.replace(/"token_ids":\[(\d+)/, (_, token: string) => `"token_ids":[${Number(token) ^ 1}`);
  };
  ServerResponse.prototype.write = function (this: ServerResponse, chunk: unknown, ...rest: unknown[]) {
    return Reflect.apply(write, this, [changed(chunk), ...rest]) as boolean;
  };
}

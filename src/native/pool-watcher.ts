import type { PoolWatcher } from '../ggml/device.ts';
import { cpusUnavailable } from '../ggml/errors.ts';
import { loadNative } from '../ggml/ffi.ts';
import { openBarrier } from './barrier.ts';
import type { CompileOptions } from './compiler.ts';

export interface ThreadOptions {
  readonly threads: number;
  /** The cores of the compute threads; default: all that the process may use. */
  readonly cpus?: readonly number[] | undefined;
}

/**
 * Kvasir's barrier, which also pins threads (ADR 14). Must be called before ggml's CPU libraries are loaded. Undefined if a single
 * thread waits for no other, or if there is no barrier. `KVASIR_BARRIER=ggml` keeps ggml's. Throws `cpusUnavailable`.
 */
export async function openPoolWatcher(
  { threads, cpus = [] }: ThreadOptions,
  options: CompileOptions,
): Promise<PoolWatcher | undefined> {
  if (threads === 1 && cpus.length === 0) return undefined;
  const barrier = await openBarrier(loadNative(), options);
  if (cpus.length > 0 && (barrier === undefined || barrier.usableCpus(cpus) < cpus.length)) {
    const problem =
      barrier === undefined
        ? 'Pinning needs Linux, a C compiler and the barrier of Kvasir.'
        : `The process may use ${barrier.usableCpus(cpus)} of these ${cpus.length}.`;
    throw cpusUnavailable({ cpus: cpus.join(','), problem });
  }
  return barrier && { watch: (pool) => barrier.watch(pool, cpus), unwatch: (pool) => barrier.unwatch(pool) };
}

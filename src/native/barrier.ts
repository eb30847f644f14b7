import type { NativeApi, RawPtr } from '../ggml/ffi.ts';
import { type CompileOptions, doWithout, type NativeSource, openNative } from './compiler.ts';

/**
 * The barrier of `barrier.c`: threads of watched pools give their cores to interrupted threads instead of spinning. Pools
 * are pointers to `struct ggml_threadpool`.
 */
export interface NativeBarrier {
  /** How many of these cores the process may use. */
  usableCpus(cpus: readonly number[]): number;
  /** Before the pool's first graph. `cpus`: cores to which the threads are pinned in turn; none: no pinning. */
  watch(pool: RawPtr, cpus?: readonly number[]): void;
  /** After the pool was freed. */
  unwatch(pool: RawPtr): void;
  counts(pool: RawPtr): BarrierCounts;
}

/** Since the pool is watched. */
export interface BarrierCounts {
  /** How often a thread slept at a barrier. */
  readonly sleeps: number;
  /** How often a thread exchanged cores with an interrupted thread. */
  readonly exchanges: number;
}

/** For Linux only. */
export const barrierSource: NativeSource = { file: 'native/barrier.c', headers: [], definitions: {} };

/**
 * Has an effect only if it is called before ggml's CPU libraries are loaded. Undefined without a compiler and on systems
 * other than Linux; ggml's own barrier is used then. `KVASIR_BARRIER=ggml` keeps ggml's barrier too, for comparisons.
 */
export async function openBarrier(native: NativeApi, options: CompileOptions = {}): Promise<NativeBarrier | undefined> {
  if (process.platform !== 'linux' || process.env.KVASIR_BARRIER === 'ggml') return undefined;
  try {
    return await openNative(barrierSource, options, ({ path }) => {
      native.functionIn(path, 'kvasir_make_global', 'i32')();
      const usable = native.functionIn(path, 'kvasir_usable_cpus', 'i64', 'data', 'i64');
      const watch = native.functionIn(path, 'kvasir_watch', 'void', 'raw', 'data', 'i64');
      const sleeps = native.functionIn(path, 'kvasir_sleeps', 'i64', 'raw');
      const exchanges = native.functionIn(path, 'kvasir_exchanges', 'i64', 'raw');
      return {
        usableCpus: (cpus) => Number(usable(Int32Array.from(cpus), cpus.length)),
        watch: (pool, cpus = []) => watch(pool, Int32Array.from(cpus), cpus.length),
        unwatch: native.functionIn(path, 'kvasir_unwatch', 'void', 'raw'),
        counts: (pool) => ({ sleeps: Number(sleeps(pool)), exchanges: Number(exchanges(pool)) }),
      };
    });
  } catch (error) {
    const instead = "ggml's barrier is used instead, which slows down on busy machines.";
    return doWithout(error, 'The barrier of the compute threads', instead, options);
  }
}

import type { NativeApi } from '../../ggml/ffi.ts';
import { cpuFeatures } from '../../native/cpu-features.ts';

/** Whether a kernel uses AMX, and why not. `no form`: the CPU has no AMX, or the library has no form for it, as for F16. */
export type AmxOutcome = 'used' | 'no form' | 'not permitted' | 'other bits';

export const cpuHasAmx = async (): Promise<boolean> => (await cpuFeatures()).split(' ').includes('amx_int8');

/** The library at `path` uses AMX from now on if it can. */
export function useAmx(native: NativeApi, path: string, hasAmx: boolean): AmxOutcome {
  const outcome = Number(native.functionIn(path, 'kvasir_use_amx', 'i64', 'i64')(hasAmx ? 1 : 0));
  return outcomes[outcome]!;
}

/** By the result of `kvasir_use_amx`. */
const outcomes: readonly AmxOutcome[] = ['no form', 'used', 'not permitted', 'other bits'];

export const amxRefusals: Readonly<Record<'not permitted' | 'other bits', string>> = {
  'not permitted': 'the system does not permit it to this process',
  'other bits': 'in a test at the start it computed other bits than the other kernels',
};

/** The instructions that the library at `path` uses: `FORM` in C. */
export const formOf = (native: NativeApi, path: string): string => native.functionIn(path, 'kvasir_form', 'str')();

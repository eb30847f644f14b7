import { type AmxOutcome, amxRefusals } from '../../runner/matmul/tile-forms.ts';
import type { KernelReport } from './kernels.ts';

/** Whether matmuls of prompts use AMX. */
export interface AmxReport {
  /**
   * `absent`: the CPU has no AMX; `used`: by all kernels that have a form for it; `not permitted`: by the system; `other bits`: a test
   * of a kernel found other bits; `no form`: no kernel that runs has a form for AMX.
   */
  readonly state: 'absent' | AmxOutcome;
  /** The instructions that multiply prompts, by the kernels that run. */
  readonly forms: readonly string[];
}

/** A kernel with other bits is reported before the others, because it may concern one type of weights only. */
const order = ['other bits', 'not permitted', 'used'] as const;

export function amxReportOf(hasAmx: boolean, kernels: readonly KernelReport[]): AmxReport {
  const forms = [...new Set(kernels.flatMap(({ form }) => form ?? []))];
  const state = order.find((outcome) => kernels.some(({ amx }) => amx === outcome));
  return { state: state ?? (hasAmx ? 'no form' : 'absent'), forms };
}

/** One line for people. It names kernels only if others use AMX. */
export function describeAmx({ state, forms }: AmxReport, kernels: readonly KernelReport[]): string {
  const instead =
    forms.length === 0 ? "ggml's kernels multiply prompts" : `prompts are multiplied with ${forms.join(' and ')}`;
  if (state === 'used') return `used: ${instead}`;
  if (state === 'absent') return `the CPU has none: ${instead}`;
  if (state === 'no form') return `not used, because no kernel that runs has a form for it: ${instead}`;
  const refused = kernels.filter(({ amx }) => amx === state).map(({ name }) => name);
  const who = kernels.some(({ amx }) => amx === 'used') ? ` by ${refused.join(', ')}` : '';
  return `not used${who}, because ${amxRefusals[state]}: ${instead}`;
}

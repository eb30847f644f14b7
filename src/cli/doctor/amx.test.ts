import { describe, expect, it } from 'vitest';
import type { AmxOutcome } from '../../runner/matmul/tile-forms.ts';
import { amxReportOf, describeAmx } from './amx.ts';
import type { KernelReport } from './kernels.ts';

const kernel = (name: string, amx: AmxOutcome, form: string): KernelReport => ({ name, state: 'prebuilt', form, amx });
const sampling: KernelReport = { name: 'sampling', state: 'prebuilt' };
const f16 = kernel('matmuls in F16', 'no form', 'AVX-512 VNNI');

describe('the report on AMX', () => {
  it.each<[string, boolean, KernelReport[], string]>([
    [
      'a CPU without it',
      false,
      [kernel('matmuls in Q8_0', 'no form', 'AVX2'), sampling],
      'absent: the CPU has none: prompts are multiplied with AVX2',
    ],
    ['a CPU without it and without kernels', false, [], "absent: the CPU has none: ggml's kernels multiply prompts"],
    [
      'kernels that use it, but for F16',
      true,
      [f16, kernel('matmuls in Q8_0', 'used', 'AMX')],
      'used: used: prompts are multiplied with AVX-512 VNNI and AMX',
    ],
    [
      'a system that does not permit it',
      true,
      [f16, kernel('matmuls in Q8_0', 'not permitted', 'AVX-512 VNNI')],
      'not permitted: not used, because the system does not permit it to this process: prompts are multiplied with AVX-512 VNNI',
    ],
    [
      'one kernel with other bits',
      true,
      [kernel('matmuls in Q8_0', 'used', 'AMX'), kernel('matmuls in Q6_K', 'other bits', 'AVX-512 VNNI')],
      'other bits: not used by matmuls in Q6_K, because in a test at the start it computed other bits than the other kernels: prompts are multiplied with AMX and AVX-512 VNNI',
    ],
    [
      'a CPU that has it and a compiler that does not',
      true,
      [kernel('matmuls in Q8_0', 'no form', 'AVX-512 VNNI')],
      'no form: not used, because no kernel that runs has a form for it: prompts are multiplied with AVX-512 VNNI',
    ],
  ])('is about %s', (_, hasAmx, kernels, line) => {
    const report = amxReportOf(hasAmx, kernels);
    expect(`${report.state}: ${describeAmx(report, kernels)}`).toBe(line);
  });
});

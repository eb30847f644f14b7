/** `kvasir demo` and a small `kvasir bench recovery` with real models: whatever fails, the texts and the computed tokens are right. */
import { beforeAll, describe, expect, it } from 'vitest';
import type { CaseRow } from '../../bench/recovery/case-run.ts';
import type { StageRow } from '../../src/cli/demo/report.ts';
import { buildCommand, run } from '../support/cli-process.ts';
import { inLongForm } from '../support/long-form.ts';
import { testsNeed } from '../support/needs.ts';
import { realModel, timeoutMs } from '../support/real-models.ts';

const limits = ['--threads', '1', '--kv-cache-memory', '128MiB', '--json'];
const small = '--requests 3 --prefixes 1 --prefix-len 48 --prompt-len 12 --gen-len 4 --part 0.4 --down-seconds 1'.split(
  ' ',
);

/** Each model has one stage and one fault; other tests have all of them with the bundled models. */
const models = [
  { ...realModel('smollm2'), stages: ['a hole in the middle'], fault: 'truncated', mode: 'sync' },
  { ...realModel('gemma3'), stages: ['the last window'], fault: 'bit flip', mode: 'async' },
  {
    ...realModel('qwen2.5-coder'),
    stages: ['corrupt bytes'],
    fault: 'missing',
    mode: 'async',
  },
];

describe.each(inLongForm(models, []))('$name', ({ path, isThere, reason, stages, fault, mode }) => {
  testsNeed(isThere, reason);
  beforeAll(buildCommand);

  it(
    'shows the same texts in the demo, and computes the minimum',
    async () => {
      const { code, stdout, stderr } = await run(['demo', '--model', path, ...limits, '--stages', ...stages]);
      expect(code, stderr).toBe(0);
      const { stages: rows, isProven } = JSON.parse(stdout) as { stages: StageRow[]; isProven: boolean };
      expect(isProven).toBe(true);
      expect(rows.map(({ name }) => name)).toEqual(expect.arrayContaining(stages));
      for (const row of rows) {
        expect(row).toMatchObject({ isTextEqual: true, computed: row.minimum, recomputed: row.repairMinimum });
      }
    },
    timeoutMs,
  );

  it(
    'keeps its texts in the fault benchmark, and computes the minimum',
    async () => {
      const shape = ['--ranks', '1', '--mode', mode, '--sampling', 'greedy', '--only', fault];
      const { code, stdout, stderr } = await run(['bench', 'recovery', '--model', path, ...limits, ...small, ...shape]);
      expect(code, stderr).toBe(0);
      const { rows } = JSON.parse(stdout) as { rows: CaseRow[] };
      expect(rows.map((row) => row.fault)).toEqual(['none', fault]);
      for (const row of rows)
        expect(row).toMatchObject({ textsEqual: 3, requests: 3, requestsLost: 0, overMinimum: 0, givenUpTokens: 0 });
    },
    timeoutMs,
  );
});

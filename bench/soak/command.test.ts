import { writeFileSync } from 'node:fs';
import { afterAll, expect, it } from 'vitest';
import { runBench } from '../../test/support/run-bench.ts';
import { temporaryFolder } from '../../test/support/tiny-model.ts';

const folder = temporaryFolder();
afterAll(() => folder.remove());

it('kvasir bench soak ends before it starts a server if its result cannot be written', async () => {
  writeFileSync(folder.file('file'), '');
  const { code, out, err } = await runBench('soak', '--out', folder.file('file/below/soak.json'));
  expect({ code, out }).toEqual({ code: 1, out: '' });
  expect(err).toMatch(/^error: The result cannot be written to .*soak\.json: ENOTDIR.* another file with --out\.$/m);
  expect(err).not.toContain('without tiers');
});

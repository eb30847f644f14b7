/** `kvasir bench recovery` as a user's shell sees it, in a small form: its killed writer is a process of its own. */
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import type { RecoveryRow } from '../../src/cli/bench/recovery.ts';
import { buildCommand } from '../support/cli-process.ts';

const folder = mkdtempSync(join(tmpdir(), 'kvasir-bench-test-'));
afterAll(() => rmSync(folder, { recursive: true }));
beforeAll(buildCommand);

const small = ['--requests', '4', '--prefixes', '2', '--prefix-len', '64', '--prompt-len', '20', '--gen-len', '4'];

it('has the same texts under every fault, loses no request, and computes again only what was lost', () => {
  const main = join(process.cwd(), 'dist', 'src', 'main.js');
  const args = [
    'bench',
    'recovery',
    '--threads',
    '1',
    '--repetitions',
    '1',
    '--probability',
    '0.4',
    '--json',
    ...small,
  ];
  const { status, stdout, stderr } = spawnSync(process.execPath, [main, ...args], {
    encoding: 'utf8',
    env: { ...process.env, TMPDIR: folder },
  });
  expect(status, stderr).toBe(0);
  const { rows } = JSON.parse(stdout) as { rows: RecoveryRow[] };
  expect(rows).toHaveLength(9);
  for (const { name, textsEqual, requests, requestsLost, overMinimum, computedTokens, minimumTokens } of rows) {
    expect(computedTokens, name).toBe(minimumTokens);
    // Of each prompt at least the last token, and all generated tokens but the last.
    expect(minimumTokens, name).toBeGreaterThanOrEqual(4 * (1 + 3));
    expect({ name, textsEqual, requestsLost, overMinimum }).toEqual({
      name,
      textsEqual: requests,
      requestsLost: 0,
      overMinimum: 0,
    });
  }
  const named = (name: string) => rows.find((row) => row.name.startsWith(name));
  expect(named('no fault')?.loadedTokens).toBeGreaterThan(0);
  for (const fault of ['missing', 'bit flip', 'hang', 'store down']) {
    expect(named(fault)?.failedTokens, fault).toBeGreaterThan(0);
  }
  expect(stderr).toContain('over minimum');
  expect(readdirSync(folder)).toEqual([]);
});

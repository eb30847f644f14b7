import { join } from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { isLongForm } from '../../test/support/long-form.ts';
import { CompiledCopies } from '../compiled-copies.ts';
import { clusterMutants } from './mutants-of-clusters.ts';
import type * as RunClusters from './run-clusters.ts';

const copies = new CompiledCopies(clusterMutants);
afterAll(() => copies.remove());

const worldsMax = 200;
const planted = clusterMutants.map((mutant, index) => ({ ...mutant, index }));

test.each(planted.filter(({ index }) => isLongForm || index % 12 === 0))('$bug', async ({ breaks, index }) => {
  const { failures } = (await import(
    join(copies.folderOf(index), 'sim/cluster/run-clusters.js')
  )) as typeof RunClusters;
  const found = new Set<string>();
  for await (const failure of failures(1, worldsMax)) {
    if (breaks.some((what) => failure.includes(/^I\d+$/.test(what) ? `${what}:` : what))) return;
    found.add(failure);
  }
  expect.unreachable(`no cluster reports one of ${breaks.join(', ')}; found: ${[...found].join('; ') || 'nothing'}`);
});

test('a failure is shrunk, and the printed command repeats it', async () => {
  const index = clusterMutants.findIndex(({ bug }) => bug.startsWith('the client of a repeated request'));
  const { randomClusters } = (await import(
    join(copies.folderOf(index), 'sim/cluster/run-clusters.js')
  )) as typeof RunClusters;
  const messageOf = async (seed: number, worlds: number, off: readonly string[], conversations?: number) => {
    try {
      for await (const _ of randomClusters(seed, worlds, { off: new Set(off), conversations }));
      return 'nothing failed';
    } catch (error) {
      return error instanceof Error ? error.message : String(error);
    }
  };
  const failure = await messageOf(1, worldsMax, []);
  const line =
    /shrunk: (\d+) conversations: .*(I2: .*)\nrerun: npx kvasir sim --cluster --worlds 1 --seed (\d+) --off (\S+)(?: --first (\d+))?$/.exec(
      failure,
    );
  expect(line, failure).not.toBeNull();
  const [, conversations, what, seed, off, first] = line!;
  expect(Number(conversations)).toBeLessThan(10);
  const again = await messageOf(Number(seed), 1, off!.split(','), first === undefined ? undefined : Number(first));
  expect(again.split('\n')[0]).toContain(what);
});

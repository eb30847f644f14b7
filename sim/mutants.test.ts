import { join } from 'node:path';
import { afterAll, describe, expect, test } from 'vitest';
import { inLongForm, isLongForm } from '../test/support/long-form.ts';
import { CompiledCopies } from './compiled-copies.ts';
import { noFaults } from './faults.ts';
import { mutants } from './mutants.ts';
import type * as Run from './run.ts';
import type { Scenario, World, WorldOptions } from './world.ts';

const copies = new CompiledCopies(mutants);
afterAll(() => copies.remove());

async function worldOf(index?: number): Promise<typeof World> {
  const module = (await import(join(copies.folderOf(index), 'sim/world.js'))) as { World: typeof World };
  return module.World;
}

/** The failures of these worlds, in order. */
async function* failuresOf(
  AnyWorld: typeof World,
  firstSeed: number,
  worlds: number,
  options: WorldOptions = {},
): AsyncGenerator<string> {
  for (let seed = firstSeed; seed < firstSeed + worlds; seed++) {
    try {
      await new AnyWorld(seed, options).run(60);
    } catch (error) {
      yield String(error);
    }
  }
}

async function messageOf(run: () => Promise<unknown>): Promise<string> {
  try {
    await run();
    return 'nothing failed';
  } catch (error) {
    return String(error);
  }
}

describe('the simulator finds planted bugs', () => {
  /** The default form has an eighth of the bugs. Each bug costs the import of a whole simulator. */
  const planted = mutants
    .map((mutant, index) => ({ ...mutant, index }))
    .filter(({ index }) => isLongForm || index % 8 === 0);
  test.each(planted)('$bug', async ({ breaks, seed, scenario = 'mixed', faults, checks = true, index }) => {
    const Mutated = await worldOf(index);
    const options = { scenario, checks, ...(faults === undefined ? {} : { faults: { ...noFaults, ...faults } }) };
    // A bug may break several invariants. It does not matter which of them a world finds first.
    const failures = failuresOf(Mutated, seed, 400, options);
    const isNamed = (failure: string): boolean =>
      breaks.some((what) => failure.includes(/^I\d+$/.test(what) ? `${what}:` : what));
    const others = new Set<string>();
    for await (const failure of failures) {
      const [line = ''] = failure.split('\n');
      if (isNamed(line)) return;
      others.add(line);
    }
    expect.unreachable(`no world reports one of ${breaks.join(', ')}; found: ${[...others].join('; ') || 'nothing'}`);
  });

  test('a failure is shrunk, and the printed command repeats the shrunk failure', async () => {
    const index = mutants.findIndex(({ bug }) => bug.startsWith('the planner overlooks'));
    const { simulate } = (await import(join(copies.folderOf(index), 'sim/run.js'))) as typeof Run;
    const failure = /shrunk: (\d+) turns of chaos, (\d+) requests: .*(I\d+: .*)\nrerun: npx kvasir sim (.*)$/.exec(
      await messageOf(() => simulate(1, 100_000)),
    );
    const [, turns, requests, what, line] = failure!;
    expect(Number(turns)).toBeLessThan(60);
    expect(Number(requests)).toBeLessThan(6);
    const flag = (name: string): string => new RegExp(`--${name} (\\S+)`).exec(line!)?.[1] ?? '';
    const again = await messageOf(() =>
      simulate(Number(flag('seed')), 1, {
        scenario: flag('scenario') as Scenario,
        turns: Number(flag('turns')),
        off: new Set(flag('off').split(',')),
        without: new Set(flag('without').split(',')),
      }),
    );
    expect(again.split('\n')[0]).toContain(what);
  });

  test('worlds with unchanged sources do not fail', async () => {
    const Same = await worldOf();
    const failures: string[] = [];
    for await (const failure of failuresOf(Same, 1, inLongForm(20, 6))) failures.push(failure);
    expect(failures).toEqual([]);
  });
});

import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, test } from 'vitest';
import { noFaults } from './faults.ts';
import { mutants } from './mutants.ts';
import type * as Run from './run.ts';
import type { Scenario, World, WorldOptions } from './world.ts';

const root = join(import.meta.dirname, '..');
const workshop = mkdtempSync(join(tmpdir(), 'kvasir-mutants-'));
afterAll(() => rmSync(workshop, { recursive: true }));

/** A copy of the simulator's world over changed sources. */
async function copyOf(name: string, change: (path: string) => void): Promise<string> {
  const copy = join(workshop, name);
  for (const folder of ['src/base', 'src/core', 'src/kv', 'src/connector', 'src/scheduler', 'sim'])
    cpSync(join(root, folder), join(copy, folder), {
      recursive: true,
      filter: (path) => !/\.(test|fuzz|bench)\.ts$/.test(path),
    });
  change(copy);
  return copy;
}

async function worldOf(name: string, change: (path: string) => void): Promise<typeof World> {
  const module = (await import(join(await copyOf(name, change), 'sim/world.ts'))) as { World: typeof World };
  return module.World;
}

/** What goes wrong in these worlds, one after the other. */
function* failuresOf(
  AnyWorld: typeof World,
  firstSeed: number,
  worlds: number,
  options: WorldOptions = {},
): Generator<string> {
  for (let seed = firstSeed; seed < firstSeed + worlds; seed++) {
    try {
      new AnyWorld(seed, options).run(60);
    } catch (error) {
      yield String(error);
    }
  }
}

function messageOf(run: () => unknown): string {
  try {
    run();
    return 'nothing failed';
  } catch (error) {
    return String(error);
  }
}

describe('planted bugs are found', () => {
  test.each(mutants.map((mutant, index) => ({ ...mutant, index })))(
    '$bug',
    async ({ breaks, seed, scenario = 'mixed', faults, checks = true, file, find, replace, index }) => {
      const Mutated = await worldOf(`mutant-${index}`, (copy) => {
        const path = join(copy, file);
        const source = readFileSync(path, 'utf8');
        expect(source.split(find), `the piece must be found once in ${file}`).toHaveLength(2);
        writeFileSync(path, source.replace(find, replace));
      });
      const options = { scenario, checks, ...(faults === undefined ? {} : { faults: { ...noFaults, ...faults } }) };
      // A bug may break several invariants, and which one a world meets first is no matter.
      const failures = failuresOf(Mutated, seed, 400, options);
      const isNamed = (failure: string): boolean =>
        breaks.some((what) => failure.includes(/^I\d+$/.test(what) ? `${what}:` : what));
      const others = new Set<string>();
      for (const failure of failures) {
        const [line = ''] = failure.split('\n');
        if (isNamed(line)) return;
        others.add(line);
      }
      expect.unreachable(`no world names one of ${breaks.join(', ')}; found: ${[...others].join('; ') || 'nothing'}`);
    },
  );

  test('a failure is shrunk, and the line that it prints runs just that again', async () => {
    const { file, find, replace } = mutants.find(({ bug }) => bug.startsWith('the planner overlooks'))!;
    const copy = await copyOf('shrunk', (path) => {
      const source = readFileSync(join(path, file), 'utf8');
      writeFileSync(join(path, file), source.replace(find, replace));
    });
    const { simulate } = (await import(join(copy, 'sim/run.ts'))) as typeof Run;
    const failure = /shrunk: (\d+) turns of chaos, (\d+) requests: .*(I\d+: .*)\nrerun: npx kvasir sim (.*)$/.exec(
      messageOf(() => simulate(1, 100_000)),
    );
    const [, turns, requests, what, line] = failure!;
    expect(Number(turns)).toBeLessThan(60);
    expect(Number(requests)).toBeLessThan(6);
    const flag = (name: string): string => new RegExp(`--${name} (\\S+)`).exec(line!)?.[1] ?? '';
    const again = messageOf(() =>
      simulate(Number(flag('seed')), 1, {
        scenario: flag('scenario') as Scenario,
        turns: Number(flag('turns')),
        off: new Set(flag('off').split(',')),
        without: new Set(flag('without').split(',')),
      }),
    );
    expect(again.split('\n')[0]).toContain(what);
  });

  test('and unchanged sources pass', async () => {
    const Same = await worldOf('unchanged', () => undefined);
    expect([...failuresOf(Same, 1, 20)]).toEqual([]);
  });
});

import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, test } from 'vitest';
import { mutants } from './mutants.ts';
import type { Scenario, World } from './world.ts';

const root = join(import.meta.dirname, '..');
const workshop = mkdtempSync(join(tmpdir(), 'kvasir-mutants-'));
afterAll(() => rmSync(workshop, { recursive: true }));

/** A copy of the simulator's world over changed sources. */
async function worldOf(name: string, change: (path: string) => void): Promise<typeof World> {
  const copy = join(workshop, name);
  for (const folder of ['src/base', 'src/core', 'src/kv', 'src/connector', 'src/scheduler', 'sim'])
    cpSync(join(root, folder), join(copy, folder), {
      recursive: true,
      filter: (path) => !/\.(test|fuzz|bench)\.ts$/.test(path),
    });
  change(copy);
  const module = (await import(join(copy, 'sim/world.ts'))) as { World: typeof World };
  return module.World;
}

function firstFailure(
  AnyWorld: typeof World,
  firstSeed: number,
  worlds: number,
  scenario: Scenario = 'mixed',
): string | undefined {
  for (let seed = firstSeed; seed < firstSeed + worlds; seed++) {
    try {
      new AnyWorld(seed, { scenario }).run(60);
    } catch (error) {
      return String(error);
    }
  }
  return undefined;
}

describe('planted bugs are found', () => {
  test.each(mutants.map((mutant, index) => ({ ...mutant, index })))(
    '$bug',
    async ({ seed, scenario, file, find, replace, index }) => {
      const Mutated = await worldOf(`mutant-${index}`, (copy) => {
        const path = join(copy, file);
        const source = readFileSync(path, 'utf8');
        expect(source.split(find), `the piece must be found once in ${file}`).toHaveLength(2);
        writeFileSync(path, source.replace(find, replace));
      });
      expect(firstFailure(Mutated, seed, 400, scenario)).toBeDefined();
    },
  );

  test('and unchanged sources pass', async () => {
    const Same = await worldOf('unchanged', () => undefined);
    expect(firstFailure(Same, 1, 20)).toBeUndefined();
  });
});

import { expect, test } from 'vitest';
import { World } from '../../sim/world.ts';

/** More: KVASIR_FUZZ_RUNS worlds; another start: KVASIR_FUZZ_SEED. A failure names its seed. */
const worlds = Number(process.env.KVASIR_FUZZ_RUNS ?? 300);
const firstSeed = Number(process.env.KVASIR_FUZZ_SEED ?? 1);

test(`${worlds} random worlds say what the reference says, and end`, () => {
  let finished = 0;
  for (let seed = firstSeed; seed < firstSeed + worlds; seed++) {
    const world = new World(seed);
    world.run(60);
    finished += world.finished;
  }
  expect(finished).toBeGreaterThan(0);
});

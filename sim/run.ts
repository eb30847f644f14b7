/**
 * Runs random worlds until so many steps are simulated. A failure names its seed and the shortest chaos that still
 * shows it, and the line that runs just that again.
 *
 *   node dist/sim/run.js --seed 1 --steps 1000000
 */
import { parseArgs } from 'node:util';
import { World } from './world.ts';

/** Chaos before the calm in each world: long enough for queues, evictions and preemptions to build up. */
export const chaosSteps = 60;

export interface SimulationReport {
  readonly steps: number;
  readonly worlds: number;
  readonly finished: number;
  /** Blocks that were loaded, and loads of blocks that failed. */
  readonly loaded: number;
  readonly failedLoads: number;
}

/** Worlds from `seed` on, until `steps` steps are done. Throws at the first failure. */
export function simulate(seed: number, steps: number): SimulationReport {
  let done = 0;
  let finished = 0;
  let worlds = 0;
  let loaded = 0;
  let failedLoads = 0;
  while (done < steps) {
    const world = new World(seed + worlds);
    try {
      world.run(chaosSteps);
    } catch (error) {
      throw new Error(`${String(error)}\n${shortestChaos(seed + worlds)}`, { cause: error });
    }
    done += world.steps;
    finished += world.finished;
    loaded += world.loads.arrived;
    failedLoads += world.loads.failed;
    worlds++;
  }
  return { steps: done, worlds, finished, loaded, failedLoads };
}

/** The same seed with less chaos makes the same world up to where the calm begins. */
function shortestChaos(seed: number): string {
  for (let chaos = 1; chaos <= chaosSteps; chaos++) {
    try {
      new World(seed).run(chaos);
    } catch (error) {
      return `shortest: ${chaos} steps of chaos: ${String(error).split('\n')[0]}\nrerun: node dist/sim/run.js --seed ${seed} --steps 1`;
    }
  }
  return 'it does not happen again: the world is not deterministic';
}

if (process.argv[1] !== undefined && /run\.[jt]s$/.test(process.argv[1])) {
  const { values } = parseArgs({
    options: { seed: { type: 'string', default: '1' }, steps: { type: 'string', default: '1000000' } },
  });
  const { steps, worlds, finished, loaded, failedLoads } = simulate(Number(values.seed), Number(values.steps));
  console.log(
    `${steps} steps in ${worlds} worlds, ${finished} requests finished, ${loaded} blocks loaded, ${failedLoads} loads failed: all invariants held`,
  );
}

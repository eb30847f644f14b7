/**
 * Runs random worlds until so many steps are simulated. A failure names its seed and the shortest chaos that still
 * shows it, and the line that runs just that again.
 *
 *   npx kvasir sim --seed 1 --steps 1000000
 */
import { type Scenario, World } from './world.ts';

/** Chaos before the calm in each world: long enough for queues, evictions and preemptions to build up. */
export const chaosSteps = 60;

export interface SimulationOptions {
  readonly scenario?: Scenario;
  /** Called now and then with the steps that are done. */
  readonly onProgress?: (steps: number) => void;
}

export interface SimulationReport {
  readonly steps: number;
  readonly worlds: number;
  readonly finished: number;
  /** Blocks that were loaded, and loads of blocks that failed. */
  readonly loaded: number;
  readonly failedLoads: number;
}

/** Worlds from `seed` on, until `steps` steps are done. Throws at the first failure. */
export function simulate(
  seed: number,
  steps: number,
  { scenario = 'mixed', onProgress }: SimulationOptions = {},
): SimulationReport {
  let done = 0;
  let finished = 0;
  let worlds = 0;
  let loaded = 0;
  let failedLoads = 0;
  while (done < steps) {
    const world = new World(seed + worlds, { scenario });
    try {
      world.run(chaosSteps);
    } catch (error) {
      throw new Error(`${String(error)}\n${shortestChaos(seed + worlds, scenario)}`, { cause: error });
    }
    done += world.steps;
    finished += world.finished;
    loaded += world.loads.arrived;
    failedLoads += world.loads.failed;
    worlds++;
    if (worlds % 100 === 0) onProgress?.(done);
  }
  return { steps: done, worlds, finished, loaded, failedLoads };
}

/** The same seed with less chaos makes the same world up to where the calm begins. */
function shortestChaos(seed: number, scenario: Scenario): string {
  for (let chaos = 1; chaos <= chaosSteps; chaos++) {
    try {
      new World(seed, { scenario }).run(chaos);
    } catch (error) {
      return `shortest: ${chaos} steps of chaos: ${String(error).split('\n')[0]}\nrerun: npx kvasir sim --seed ${seed} --steps 1 --scenario ${scenario}`;
    }
  }
  return 'it does not happen again: the world is not deterministic';
}

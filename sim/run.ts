/**
 * Runs random worlds until the given number of steps is simulated. A failure names its seed, the smallest part of the world that still
 * fails, and the command that runs this part again.
 *
 *   npx kvasir sim --seed 1 --steps 1000000
 */
import { faultNames } from './faults.ts';
import { type Scenario, World, type WorldOptions, worldFaultNames } from './world.ts';

/** Turns of chaos before the calm in each world: enough for queues, evictions and preemptions. */
export const chaosTurns = 60;

export interface SimulationOptions {
  readonly scenario?: Scenario;
  /** Default `chaosTurns`. */
  readonly turns?: number;
  /** Faults that are off, by name, and requests that are not sent, by id. */
  readonly off?: ReadonlySet<string>;
  readonly without?: ReadonlySet<string>;
}

export interface SimulationReport {
  /** Pairs of `plan` and `apply`; all invariants are checked after each pair. */
  readonly steps: number;
  readonly worlds: number;
  readonly finished: number;
  /** Blocks that were loaded, and blocks whose load failed. */
  readonly loaded: number;
  readonly failedLoads: number;
  /** Saves that a step flushed, because it overwrote their blocks. */
  readonly flushedSaves: number;
}

/** The parts of a world that shrinking can leave out. */
interface Scene {
  readonly turns: number;
  readonly off: ReadonlySet<string>;
  readonly without: ReadonlySet<string>;
}

/** Runs worlds from `seed` on, until `steps` steps are done, and yields the report after each world. Throws at the first failure. */
export async function* worlds(
  seed: number,
  steps: number,
  { scenario = 'mixed', turns = chaosTurns, off = new Set(), without = new Set() }: SimulationOptions = {},
): AsyncGenerator<SimulationReport, void> {
  let report: SimulationReport = { steps: 0, worlds: 0, finished: 0, loaded: 0, failedLoads: 0, flushedSaves: 0 };
  while (report.steps < steps) {
    const current = seed + report.worlds;
    const world = new World(current, { scenario, off, without });
    try {
      await world.run(turns);
    } catch (error) {
      const scene = await shrink(current, scenario, { turns, off, without }, world.sent);
      throw new Error(`${String(error)}\n${scene}`, { cause: error });
    }
    report = {
      // A world without arrivals has no step, but the loop must end.
      steps: report.steps + Math.max(world.steps, 1),
      worlds: report.worlds + 1,
      finished: report.finished + world.finished,
      loaded: report.loaded + world.loads.arrived,
      failedLoads: report.failedLoads + world.loads.failed,
      flushedSaves: report.flushedSaves + world.flushedSaves,
    };
    yield report;
  }
}

/** Runs all worlds and returns the last report. */
export async function simulate(
  seed: number,
  steps: number,
  options: SimulationOptions = {},
): Promise<SimulationReport> {
  let last: SimulationReport | undefined;
  for await (const report of worlds(seed, steps, options)) last = report;
  if (last === undefined) throw new RangeError(`the number of steps must be positive, but is ${steps}`);
  return last;
}

/**
 * Leaves out parts of a failing world that the failure does not need. It tries turns from the end of the chaos, then kinds of
 * faults, then requests. Random draws for these parts are still made, so the rest of the world changes little. A smaller world
 * counts if it fails, for any reason.
 */
export async function shrink(seed: number, scenario: Scenario, from: Scene, sent: readonly string[]): Promise<string> {
  const whole = await failureOf(seed, scenario, from);
  if (whole === undefined) return 'the failure does not repeat: the world is not deterministic';
  let scene = from;
  let failure = whole;
  const attempt = async (smaller: Scene): Promise<boolean> => {
    const found = await failureOf(seed, scenario, smaller);
    if (found === undefined) return false;
    scene = smaller;
    failure = found;
    return true;
  };
  for (let turns = 1; turns < from.turns; turns++) if (await attempt({ ...scene, turns })) break;
  for (const name of [...faultNames, ...worldFaultNames])
    if (!scene.off.has(name)) await attempt({ ...scene, off: new Set([...scene.off, name]) });
  // Half of the requests at a time first, then ever smaller parts.
  for (let size = Math.ceil(sent.length / 2); size >= 1; size = size === 1 ? 0 : Math.ceil(size / 2))
    for (let at = 0; at < sent.length; at += size) {
      const chunk = sent.slice(at, at + size).filter((id) => !scene.without.has(id));
      if (chunk.length > 0) await attempt({ ...scene, without: new Set([...scene.without, ...chunk]) });
    }
  return `shrunk: ${scene.turns} turns of chaos, ${sent.length - scene.without.size} requests: ${failure}\nrerun: ${rerunLine(seed, scenario, scene)}`;
}

async function failureOf(seed: number, scenario: Scenario, { turns, ...parts }: Scene): Promise<string | undefined> {
  const options: WorldOptions = { scenario, ...parts };
  try {
    await new World(seed, options).run(turns);
    return undefined;
  } catch (error) {
    return String(error).split('\n')[0];
  }
}

function rerunLine(seed: number, scenario: Scenario, { turns, off, without }: Scene): string {
  const list = (flag: string, names: ReadonlySet<string>): string =>
    names.size === 0 ? '' : ` ${flag} ${[...names].join(',')}`;
  return `npx kvasir sim --seed ${seed} --steps 1 --scenario ${scenario} --turns ${turns}${list('--off', off)}${list('--without', without)}`;
}

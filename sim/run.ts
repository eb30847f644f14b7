/**
 * Runs random worlds until so many steps are simulated. A failure names its seed, what is left of the world when
 * everything that does not matter is taken out of it, and the line that runs just that again.
 *
 *   npx kvasir sim --seed 1 --steps 1000000
 */
import { faultNames } from './faults.ts';
import { type Scenario, World, type WorldOptions, worldFaultNames } from './world.ts';

/** Turns of chaos before the calm in each world: long enough for queues, evictions and preemptions to build up. */
export const chaosTurns = 60;

export interface SimulationOptions {
  readonly scenario?: Scenario;
  /** Default `chaosTurns`. */
  readonly turns?: number;
  /** Faults that do not happen and requests that are not sent, by name. */
  readonly off?: ReadonlySet<string>;
  readonly without?: ReadonlySet<string>;
}

export interface SimulationReport {
  /** Pairs of `plan` and `apply`, after each of which all invariants were checked. */
  readonly steps: number;
  readonly worlds: number;
  readonly finished: number;
  /** Blocks that were loaded, and loads of blocks that failed. */
  readonly loaded: number;
  readonly failedLoads: number;
}

/** What can be left out of a world. */
interface Scene {
  readonly turns: number;
  readonly off: ReadonlySet<string>;
  readonly without: ReadonlySet<string>;
}

/** Worlds from `seed` on, until `steps` steps are done; the report so far after each world. Throws at the first failure. */
export function* worlds(
  seed: number,
  steps: number,
  { scenario = 'mixed', turns = chaosTurns, off = new Set(), without = new Set() }: SimulationOptions = {},
): Generator<SimulationReport, void> {
  let report: SimulationReport = { steps: 0, worlds: 0, finished: 0, loaded: 0, failedLoads: 0 };
  while (report.steps < steps) {
    const current = seed + report.worlds;
    const world = new World(current, { scenario, off, without });
    try {
      world.run(turns);
    } catch (error) {
      const scene = shrink(current, scenario, { turns, off, without }, world.sent);
      throw new Error(`${String(error)}\n${scene}`, { cause: error });
    }
    report = {
      // A world in which nothing ever arrives has no step, and yet must not be run for ever.
      steps: report.steps + Math.max(world.steps, 1),
      worlds: report.worlds + 1,
      finished: report.finished + world.finished,
      loaded: report.loaded + world.loads.arrived,
      failedLoads: report.failedLoads + world.loads.failed,
    };
    yield report;
  }
}

/** All worlds of a run at once. */
export function simulate(seed: number, steps: number, options: SimulationOptions = {}): SimulationReport {
  let last: SimulationReport | undefined;
  for (const report of worlds(seed, steps, options)) last = report;
  if (last === undefined) throw new RangeError(`${steps} steps are none`);
  return last;
}

/**
 * Takes out of a failing world what it can do without: turns from the end of the chaos, then sorts of faults, then
 * requests. The draws for what is left out are made still, so the rest stays what it was, more or less; whether it
 * fails, for whatever reason, is all that counts.
 */
export function shrink(seed: number, scenario: Scenario, from: Scene, sent: readonly string[]): string {
  const whole = failureOf(seed, scenario, from);
  if (whole === undefined) return 'it does not happen again: the world is not deterministic';
  let scene = from;
  let failure = whole;
  const attempt = (smaller: Scene): boolean => {
    const found = failureOf(seed, scenario, smaller);
    if (found === undefined) return false;
    scene = smaller;
    failure = found;
    return true;
  };
  for (let turns = 1; turns < from.turns; turns++) if (attempt({ ...scene, turns })) break;
  for (const name of [...faultNames, ...worldFaultNames])
    if (!scene.off.has(name)) attempt({ ...scene, off: new Set([...scene.off, name]) });
  // Halves first, then fewer and fewer at a time.
  for (let size = Math.ceil(sent.length / 2); size >= 1; size = size === 1 ? 0 : Math.ceil(size / 2))
    for (let at = 0; at < sent.length; at += size) {
      const chunk = sent.slice(at, at + size).filter((id) => !scene.without.has(id));
      if (chunk.length > 0) attempt({ ...scene, without: new Set([...scene.without, ...chunk]) });
    }
  return `shrunk: ${scene.turns} turns of chaos, ${sent.length - scene.without.size} requests: ${failure}\nrerun: ${rerunLine(seed, scenario, scene)}`;
}

function failureOf(seed: number, scenario: Scenario, { turns, ...parts }: Scene): string | undefined {
  const options: WorldOptions = { scenario, ...parts };
  try {
    new World(seed, options).run(turns);
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

import { Cluster, type ClusterReport } from './cluster.ts';
import { clusterFaultNames } from './cluster-faults.ts';
import { type FaultCounts, noFaultCounts, timedFaults } from './fault-times.ts';
import { randomCluster, type SceneParts } from './random-cluster.ts';

export interface ClustersReport {
  readonly worlds: number;
  readonly steps: number;
  /** Requests that have ended with the right text, and clients that have left. */
  readonly finished: number;
  readonly left: number;
  readonly retries: number;
  /** Blocks that the tier was asked for, and those that were damaged or missing. */
  readonly loads: number;
  readonly loadFailures: number;
  readonly faults: FaultCounts;
}

const whole: SceneParts = { off: new Set(), conversations: undefined };

/** Runs so many random clusters from `seed` on, and yields the report after each. Rejects at the first failure, with its smallest form. */
export async function* randomClusters(
  seed: number,
  worlds: number,
  parts: SceneParts = whole,
  signal?: AbortSignal,
): AsyncGenerator<ClustersReport, void> {
  let report: ClustersReport = {
    worlds: 0,
    steps: 0,
    finished: 0,
    left: 0,
    retries: 0,
    loads: 0,
    loadFailures: 0,
    faults: noFaultCounts,
  };
  for (let current = seed; current < seed + worlds; current++) {
    let of: ClusterReport;
    try {
      of = await new Cluster(current, randomCluster(current, parts)).run(signal);
    } catch (error) {
      signal?.throwIfAborted();
      throw new Error(`seed ${current}: ${String(error)}\n${await shrunk(current, parts)}`, { cause: error });
    }
    const faults = { ...report.faults };
    for (const name of timedFaults) faults[name] += of.faults[name];
    report = {
      worlds: report.worlds + 1,
      steps: report.steps + of.steps,
      finished: report.finished + of.finished,
      left: report.left + of.left,
      retries: report.retries + of.retries,
      loads: report.loads + of.tier.loads,
      loadFailures: report.loadFailures + of.tier.loadFailures,
      faults,
    };
    yield report;
  }
}

/** The first lines of the failures of these clusters. */
export async function* failures(seed: number, worlds: number): AsyncGenerator<string, void> {
  for (let current = seed; current < seed + worlds; current++) {
    const failure = await failureOf(current, whole);
    if (failure !== undefined) yield failure;
  }
}

/** Leaves out faults and conversations that the failure does not need. A smaller cluster counts if it fails for any reason. */
export async function shrunk(seed: number, from: SceneParts): Promise<string> {
  const found = await failureOf(seed, from);
  if (found === undefined) return 'the failure does not repeat: the simulation is not deterministic';
  let [parts, failure] = [from, found];
  const attempt = async (smaller: SceneParts): Promise<boolean> => {
    const again = await failureOf(seed, smaller);
    if (again === undefined) return false;
    [parts, failure] = [smaller, again];
    return true;
  };
  for (const name of clusterFaultNames)
    if (!parts.off.has(name)) await attempt({ ...parts, off: new Set([...parts.off, name]) });
  const { conversations } = randomCluster(seed, parts).workload;
  for (let count = 1; count < conversations; count++) if (await attempt({ ...parts, conversations: count })) break;
  return `shrunk: ${randomCluster(seed, parts).workload.conversations} conversations: ${failure}\nrerun: ${rerunLine(seed, parts)}`;
}

async function failureOf(seed: number, parts: SceneParts): Promise<string | undefined> {
  try {
    await new Cluster(seed, randomCluster(seed, parts)).run();
    return undefined;
  } catch (error) {
    return String(error).split('\n')[0];
  }
}

function rerunLine(seed: number, { off, conversations }: SceneParts): string {
  const without = off.size === 0 ? '' : ` --off ${[...off].join(',')}`;
  const first = conversations === undefined ? '' : ` --first ${conversations}`;
  return `npx kvasir sim --cluster --worlds 1 --seed ${seed}${without}${first}`;
}

/** For `nth-failure.test.ts`: runs a scenario once for each system call that can fail in it. */
import { Prng } from '../../src/base/prng.ts';
import type { FaultPoints } from './fault-points.ts';
import { inLongForm } from './long-form.ts';

export interface Fault {
  readonly site: string;
  /** Counted from 1. */
  readonly nth: number;
  /** The index of the error that the system reports. */
  readonly errno: number;
}

/** One run of a scenario, with its checks. Throws if a check fails. */
export type Run = (fault?: Fault) => Promise<void>;

export interface RunOptions {
  readonly points: FaultPoints;
  /** Distinguishes scenarios: the same seed chooses other calls in each. */
  readonly seed: number;
  /** Sites that other scenarios have covered. */
  readonly covered: Set<string>;
}

/** `KVASIR_TEST_EVERY_FAILURE=1 npx vitest run test/nth-failure.test.ts` fails every call, which takes about 300 s of CPU time. */
export const isEvery = process.env.KVASIR_TEST_EVERY_FAILURE === '1';
/** `KVASIR_TEST_FAILURE='writevSync in' npx vitest run ...` fails only calls whose description contains this. */
const only = process.env.KVASIR_TEST_FAILURE;
/** The default form fails calls of every third site. The long form fails a call of each site. */
const siteStep = isEvery || only !== undefined ? 1 : inLongForm(1, 3);

/**
 * Fails one call of each site (or of every third one) that no other scenario has covered, or every call of every site. The calls of a site are counted again
 * in each run, because a fault may change later calls. Returns descriptions of the failed runs.
 */
export async function failEach(run: Run, { points, seed, covered }: RunOptions): Promise<string[]> {
  await run();
  const failures: string[] = [];
  const prng = new Prng(seed);
  for (const { name, calls } of points.sites()) {
    const first = isEvery ? 1 : prng.between(1, calls);
    if (!isEvery && only === undefined && covered.has(name)) continue;
    covered.add(name);
    if (covered.size % siteStep !== 0) continue;
    for (let nth = first; ; nth++) {
      const fault = { site: name, nth, errno: prng.between(0, 99) };
      const described = `${name} #${nth}`;
      if (only !== undefined && !described.includes(only)) break;
      let problem: unknown;
      await run(fault).catch((error: unknown) => {
        problem = error;
      });
      if (problem !== undefined) failures.push(`${described}: ${textOf(problem)}`);
      if (!points.hasFailed || !isEvery) break;
    }
  }
  return failures;
}

const textOf = (error: unknown): string => (error instanceof Error ? (error.stack ?? error.message) : String(error));

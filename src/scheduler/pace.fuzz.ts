import { describe, expect, test } from 'vitest';
import { fuzzRuns } from '../../test/support/long-form.ts';
import { Prng } from '../base/prng.ts';
import { AUTO_FACTOR, Pace } from './pace.ts';
import { emptyLoad, type StepLoad, withPrompt } from './step-load.ts';

/**
 * Random machines: costs of weights, tokens and contexts, noise and pauses. Streams decode while prompts arrive. The
 * naive reference knows the exact costs and computes the largest chunk that meets the target.
 *
 * Not covered: several prompts in one step, a changing number of streams, and pauses in two consecutive steps of a kind. Such pauses
 * look like a slower machine. More runs: KVASIR_FUZZ_RUNS; another first seed: KVASIR_FUZZ_SEED.
 */
const runs = fuzzRuns(300);
const firstSeed = Number(process.env.KVASIR_FUZZ_SEED ?? 1);
/** Seeds that failed once: a pause in the first step, and weights of similar steps that grew without bound. */
const knownSeeds = [549, 958];
const budget = 512;
/** Chunks may be too long until steps of each kind have been measured a few times. */
const warmUpSteps = 12;

interface Machine {
  readonly fixedMs: number;
  /** The time to read the weights: the shortest duration of a step. */
  readonly memoryMs: number;
  readonly tokenMs: number;
  /** For one scheduled token and one token of its context. */
  readonly contextMs: number;
  /** For one token of a request's context and all scheduled tokens of the request. */
  readonly reachMs: number;
  readonly noise: number;
  readonly pauseRate: number;
}

function randomMachine(prng: Prng): Machine {
  const speed = 10 ** (3 * prng.unit() - 1.5);
  const tokenMs = speed * (0.5 + prng.unit());
  return {
    tokenMs,
    fixedMs: tokenMs * (2 + 12 * prng.unit()),
    memoryMs: prng.chance(0.5) ? tokenMs * (2 + 18 * prng.unit()) : 0,
    contextMs: (tokenMs * prng.unit()) / 1000,
    reachMs: (tokenMs * prng.unit()) / 200,
    noise: prng.pick([0, 0.03, 0.1]),
    pauseRate: prng.pick([0, 0, 0.02]),
  };
}

const exactMs = ({ fixedMs, memoryMs, tokenMs, contextMs, reachMs }: Machine, load: StepLoad): number =>
  Math.max(fixedMs + tokenMs * (load.decodes + load.promptTokens), memoryMs) +
  contextMs * (load.promptContext + load.decodeContext) +
  reachMs * (load.promptReach + load.decodeContext);

/** The largest chunk within the limit, found token by token. */
function naiveTokensAllowed(machine: Machine, load: StepLoad, start: number, limitMs: number): number {
  let count = 0;
  while (count < budget && exactMs(machine, withPrompt(load, start, count + 1)) <= limitMs) count++;
  return count;
}

interface Outcome {
  readonly over: number;
  readonly steps: number;
  readonly tokens: number;
  readonly naiveTokens: number;
}

/** Computes prompts one after another while some streams decode. */
function simulate(seed: number): Outcome {
  const prng = new Prng(seed);
  const machine = randomMachine(prng);
  const decodes = prng.between(1, 8);
  const streamContext = prng.between(1, 2000);
  const isAuto = prng.chance(0.5);
  const target = isAuto ? 'auto' : machine.tokenMs * prng.between(30, 200);
  const pace = new Pace(target);
  const load = (): StepLoad => ({ ...emptyLoad(), decodes, streams: decodes, decodeContext: decodes * streamContext });
  const hasPaused = { withPrompts: false, decodesOnly: false };
  const run = (work: StepLoad): void => {
    const ms = exactMs(machine, work) * (1 + machine.noise * (2 * prng.unit() - 1));
    const kind = work.promptTokens > 0 ? 'withPrompts' : 'decodesOnly';
    hasPaused[kind] = !hasPaused[kind] && prng.chance(machine.pauseRate);
    pace.observe(work, hasPaused[kind] ? ms * prng.between(3, 1000) : ms);
    pace.checkInvariants();
  };
  const [cold, alone] = [withPrompt(emptyLoad(), 0, prng.between(1, budget)), load()];
  run(cold);
  for (let i = 0; i < 4; i++) run(load());
  const limitMs = isAuto ? AUTO_FACTOR * exactMs(machine, alone) : (target as number);
  let [over, steps, tokens, naiveTokens] = [0, 0, 0, 0];
  for (let prompt = 0; prompt < 4; prompt++) {
    const length = prng.between(300, 3000);
    for (let start = 0, idle = 0; start < length; ) {
      const work = load();
      const count = Math.min(pace.promptTokensAllowed(work, start), length - start, budget);
      idle = count === 0 ? idle + 1 : 0;
      if (idle > 1) throw new Error(`seed ${seed}: two consecutive steps have no prompt tokens`);
      if (count > 0) {
        const ms = exactMs(machine, withPrompt(work, start, count));
        const naive = naiveTokensAllowed(machine, work, start, limitMs);
        if (++steps > warmUpSteps) {
          if (ms > limitMs * 1.25 && count > 16) over++;
          tokens += count;
          naiveTokens += Math.min(Math.max(naive, 4), length - start);
        }
      }
      run(count === 0 ? work : withPrompt(work, start, count));
      start += count;
    }
  }
  return { over, steps, tokens, naiveTokens };
}

describe('pace', () => {
  test(`steps on ${runs} random machines meet the target, and prompts need few more steps than the naive reference`, () => {
    let [over, steps, tokens, naiveTokens] = [0, 0, 0, 0];
    const seeds = [...knownSeeds, ...Array.from({ length: runs }, (_, index) => firstSeed + index)];
    for (const seed of seeds) {
      const outcome = simulate(seed);
      if (outcome.over > Math.max(2, 0.03 * outcome.steps))
        throw new Error(
          `${outcome.over} of ${outcome.steps} steps were too long: KVASIR_FUZZ_SEED=${seed} KVASIR_FUZZ_RUNS=1`,
        );
      if (outcome.tokens < 0.5 * outcome.naiveTokens)
        throw new Error(
          `${outcome.tokens} of ${outcome.naiveTokens} tokens: KVASIR_FUZZ_SEED=${seed} KVASIR_FUZZ_RUNS=1`,
        );
      over += outcome.over;
      steps += outcome.steps;
      tokens += outcome.tokens;
      naiveTokens += outcome.naiveTokens;
    }
    expect(over / steps).toBeLessThan(0.01);
    expect(tokens / naiveTokens).toBeGreaterThan(0.75);
  });
});

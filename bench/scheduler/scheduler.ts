import { sha256 } from '../../src/base/sha256.ts';
import type { EngineRequest } from '../../src/core/request.ts';
import { type GroupValidity, planSpans } from '../../src/kv/planner.ts';
import { SpanList } from '../../src/kv/span-list.ts';
import { median, rounded } from '../statistics.ts';
import { StepTimes, type TimesSummary, workMs } from '../step-times.ts';
import { type LoadOptions, SchedulerLoad } from './scheduler-load.ts';

export interface SchedulerBenchOptions {
  /** Running requests. */
  readonly requests: number;
  /** Blocks of the pool. */
  readonly blocks: number;
  readonly blockSize: number;
  readonly promptLengths: readonly number[];
  /** Steps of each measurement. */
  readonly steps: number;
  /** Tokens of the long prompt that is planned and admitted. */
  readonly longPrompt: number;
  readonly repetitions: number;
  readonly onProgress: (text: string) => void;
}

export interface Budget {
  readonly p50Ms?: number;
  readonly p99Ms: number;
  readonly kibPerStep?: number;
}

export interface SchedulerRow extends TimesSummary {
  readonly what: string;
  /** KiB that `plan` and `apply` of one step allocate, in the heap and in typed arrays. */
  readonly kibPerStep?: number;
  /** Absent if the case has no budget. */
  readonly budget?: Budget;
  readonly verdict?: Verdict;
}

export type Verdict = 'met' | 'missed';

interface Measured extends TimesSummary {
  readonly kibPerStep?: number;
}

interface Case {
  readonly what: string;
  readonly budget?: Budget;
  readonly measure: () => Measured;
}

/** For 256 requests and 100,000 blocks. */
const decodeBudget: Budget = { p50Ms: 0.3, p99Ms: 0.5, kibPerStep: 10 };
const turnoverBudget: Budget = { p50Ms: 0.3, p99Ms: 1 };
/** For 100,000 tokens. */
const planningBudget: Budget = { p99Ms: 1 };

/** The number of blocks with which no measurement preempts a request. */
export function blocksNeeded(options: SchedulerBenchOptions): number {
  const { requests, blockSize, promptLengths, steps, longPrompt } = options;
  const tokens = Math.max(...promptLengths) + tokensDecoded(steps, blockSize);
  return Math.max(requests * (Math.ceil(tokens / blockSize) + 1), Math.ceil(longPrompt / blockSize) + 1);
}

/** Measures the control plane: one row per case, with medians over repetitions of all cases in turn. */
export function measureScheduler(options: SchedulerBenchOptions): SchedulerRow[] {
  const cases = [...stepCases(options), ...longPromptCases(options)];
  const results = cases.map((): Measured[] => []);
  for (let round = 1; round <= options.repetitions; round++) {
    cases.forEach(({ what, measure }, i) => {
      options.onProgress(`repetition ${round} of ${options.repetitions}: ${what}`);
      results[i]?.push(measure());
    });
  }
  return cases.map(({ what, budget }, i) => {
    const row = { what, ...medians(results[i] ?? []) };
    return budget === undefined ? row : { ...row, budget, verdict: verdictOn(row, budget) };
  });
}

export function verdictOn({ p50Ms, p99Ms, kibPerStep = 0 }: Measured, budget: Budget): Verdict {
  const isMet = p50Ms <= (budget.p50Ms ?? Infinity) && p99Ms <= budget.p99Ms;
  return isMet && kibPerStep <= (budget.kibPerStep ?? Infinity) ? 'met' : 'missed';
}

function stepCases(options: SchedulerBenchOptions): Case[] {
  const { requests, promptLengths, blockSize } = options;
  const middle = promptLengths[promptLengths.length >> 1] ?? blockSize;
  const decodes = (tokens: number, how: string, more: Partial<DecodeOptions>): Case => ({
    what: `${requests} decodes, prompts of ${tokens}${how}`,
    budget: decodeBudget,
    measure: () => measureDecodes({ ...options, promptLength: tokens, isAligned: false, ...more }),
  });
  return [
    ...promptLengths.map((tokens) => decodes(tokens, '', {})),
    decodes(middle, ', blocks filled in one step', { isAligned: true }),
    decodes(middle, ', a connector that finds nothing', { connector: 'idle' }),
    {
      what: `${requests} running, prompts of ${middle}, each replaced after ${turnover} tokens`,
      budget: turnoverBudget,
      measure: () => measureTurnover(options, middle),
    },
    {
      what: `${requests} running, prompts of ${middle} from a store, each replaced after ${turnover} tokens`,
      budget: turnoverBudget,
      measure: () => measureTurnover({ ...options, connector: 'loads' }, middle),
    },
    {
      what: 'of these loads, one block of each fails',
      budget: turnoverBudget,
      measure: () => measureTurnover({ ...options, connector: 'failing' }, middle),
    },
  ];
}

interface DecodeOptions extends LoadOptions {
  readonly steps: number;
  readonly promptLength: number;
  /** All requests fill a block in the same step; else an equal number of requests in each step. */
  readonly isAligned: boolean;
}

function measureDecodes(options: DecodeOptions): Measured {
  const { requests, promptLength, blockSize, isAligned, steps } = options;
  const load = new SchedulerLoad(options);
  const counted = Math.min(steps, stepsCounted);
  const maxTokens = tokensDecoded(steps, blockSize);
  for (let i = 0; i < requests; i++)
    load.scheduler.add(load.request(promptLength + (isAligned ? 0 : i % blockSize), maxTokens));
  load.prefill();
  for (let i = 0; i < warmUpSteps; i++) load.step();
  const times = new StepTimes(steps);
  for (let i = 0; i < steps; i++) timeStep(load, times);
  return { ...times.summary(), kibPerStep: rounded(bytesPerStep(load, counted) / 1024) };
}

/** The largest number of output tokens of a request, with two blocks more for the different lengths of prompts. */
const tokensDecoded = (steps: number, blockSize: number): number =>
  warmUpSteps + steps + Math.min(steps, stepsCounted) + 2 * blockSize;

/** Steps before the measurement, so that the JIT compiler has compiled the code. */
const warmUpSteps = 400;
const stepsCounted = 200;

function timeStep(load: SchedulerLoad, times: StepTimes, arriving: readonly EngineRequest[] = []): void {
  const started = workMs();
  for (const request of arriving) load.scheduler.add(request);
  const plan = load.plan();
  const planned = workMs();
  const result = load.resultOf(plan);
  const executed = workMs();
  load.scheduler.apply(plan, result, 0);
  times.add(planned - started + (workMs() - executed));
}

/** Replaces each ended request by a new one, whose whole prompt is admitted and computed in the next step. */
function measureTurnover(options: LoadOptions & { readonly steps: number }, promptLength: number): Measured {
  const { requests, steps } = options;
  const load = new SchedulerLoad(options);
  // The first requests end one after the other, so that later an equal number ends in each step.
  for (let i = 0; i < requests; i++)
    load.scheduler.add(load.request(promptLength, 1 + Math.floor((i * turnover) / requests)));
  load.prefill();
  const warmUp = new StepTimes(warmUpSteps);
  const times = new StepTimes(steps);
  const arriving = (): EngineRequest[] => {
    const { running, waiting, waitingForRemoteKv } = load.scheduler.stats();
    const missing = requests - running - waiting - waitingForRemoteKv;
    return Array.from({ length: missing }, () => load.request(promptLength, turnover));
  };
  for (let i = -warmUpSteps; i < steps; i++) timeStep(load, i < 0 ? warmUp : times, arriving());
  const bytes = bytesPerStep(load, Math.min(steps, stepsCounted), () => {
    for (const request of arriving()) load.scheduler.add(request);
  });
  return { ...times.summary(), kibPerStep: rounded(bytes / 1024) };
}

const turnover = 256;

/**
 * Bytes that `plan` and `apply` of one step allocate: the growth of the heap and of typed arrays. Steps in which the
 * garbage collector ran are left out, and the bytes of reading the counters are subtracted.
 */
function bytesPerStep(load: SchedulerLoad, steps: number, addArriving: () => void = () => undefined): number {
  const used = (): number => {
    const { heapUsed, arrayBuffers } = process.memoryUsage();
    return heapUsed + arrayBuffers;
  };
  const grown: number[] = [];
  const readings: number[] = [];
  for (let i = 0; i < steps; i++) {
    addArriving();
    const nothing = used();
    const before = used();
    const plan = load.plan();
    const planned = used();
    const result = load.resultOf(plan);
    const executed = used();
    load.scheduler.apply(plan, result, 0);
    const after = used();
    const parts = [before - nothing, planned - before, executed - planned, after - executed];
    // The garbage collector ran.
    if (parts.some((part) => part < 0)) continue;
    grown.push(planned - before + (after - executed));
    readings.push(before - nothing);
  }
  if (grown.length === 0) return 0;
  // Some readings are large, because other threads of V8 allocate too.
  return grown.reduce((sum, bytes) => sum + bytes, 0) / grown.length - 2 * median(readings);
}

function longPromptCases(options: SchedulerBenchOptions): Case[] {
  const { longPrompt, blockSize } = options;
  const admit = (what: string, measured: 'cold' | 'warm'): Case => ({
    what: `admitting ${longPrompt} tokens, ${what}`,
    measure: () => measureAdmission(options)[measured].summary(),
  });
  return [
    {
      what: `planning ${longPrompt} tokens, holes in one full group`,
      budget: planningBudget,
      measure: () => measurePlanner(longPrompt, blockSize, ['full']),
    },
    {
      what: `planning ${longPrompt} tokens, holes in full + window + state`,
      budget: planningBudget,
      measure: () => measurePlanner(longPrompt, blockSize, ['full', 'window', 'state']),
    },
    admit('nothing cached', 'cold'),
    admit('all cached', 'warm'),
    {
      what: `of that, sha256 of ${Math.floor(longPrompt / blockSize)} blocks`,
      measure: () => measureHashing(longPrompt, blockSize),
    },
  ];
}

function measurePlanner(tokenCount: number, blockSize: number, kinds: readonly GroupValidity['kind'][]): Measured {
  const indexCount = Math.ceil(tokenCount / blockSize);
  const validTokens = Int32Array.from({ length: indexCount }, (_, index) => (index % 97 === 0 ? 0 : blockSize));
  const groups = kinds.map((kind) => {
    const window = kind === 'window' ? 4096 : Infinity;
    return { kind, blockSize, window, indexCount, validTokens };
  });
  const spans = new SpanList();
  return timeMany(1000, () => planSpans(tokenCount, groups, spans));
}

/** Measures `add` and the `plan` that admits the request. The requests end with their first output token. */
function measureAdmission(options: SchedulerBenchOptions): Record<'cold' | 'warm', StepTimes> {
  const load = new SchedulerLoad({ ...options, requests: 1 });
  const times = { cold: new StepTimes(admissions), warm: new StepTimes(admissions) };
  for (let run = -1; run < admissions; run++) {
    for (const kind of ['cold', 'warm'] as const) {
      const request = load.request(options.longPrompt, 1, run);
      const started = workMs();
      load.scheduler.add(request);
      const plan = load.plan();
      const ms = workMs() - started;
      if (run >= 0) times[kind].add(ms);
      load.scheduler.apply(plan, load.resultOf(plan), 0);
    }
  }
  return times;
}

const admissions = 12;

/** The hashed message of a block is the digest of the block before it and its tokens, 32 bits each. */
function measureHashing(tokenCount: number, blockSize: number): Measured {
  const message = new Uint8Array(32 + blockSize * 4);
  return timeMany(admissions, () => {
    for (let block = 0; block < Math.floor(tokenCount / blockSize); block++) message.set(sha256(message));
  });
}

function timeMany(runs: number, work: () => void): Measured {
  for (let i = 0; i < Math.ceil(runs / 10); i++) work();
  const times = new StepTimes(runs);
  for (let i = 0; i < runs; i++) {
    const started = workMs();
    work();
    times.add(workMs() - started);
  }
  return times.summary();
}

function medians(results: readonly Measured[]): Measured {
  const of = (pick: (result: Measured) => number | undefined): number | undefined => {
    const values = results.map(pick).filter((value) => value !== undefined);
    return values.length === 0 ? undefined : rounded(median(values));
  };
  const kibPerStep = of((result) => result.kibPerStep);
  return {
    p50Ms: of(({ p50Ms }) => p50Ms) ?? 0,
    p99Ms: of(({ p99Ms }) => p99Ms) ?? 0,
    maxMs: of(({ maxMs }) => maxMs) ?? 0,
    runs: of(({ runs }) => runs) ?? 0,
    ...(kibPerStep === undefined ? {} : { kibPerStep }),
  };
}

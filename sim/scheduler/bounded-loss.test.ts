/**
 * What speculation gains and loses, simulated with the step times of machines: at most 3 % are lost on texts that cannot be predicted,
 * also if the machine is busy, and texts that repeat are much faster.
 */
import { describe, expect, test } from 'vitest';
import { Prng } from '../../src/base/prng.ts';
import type { TokenId } from '../../src/core/ids.ts';
import { keptGraphsMax } from '../../src/core/kept-graphs.ts';
import { TokenBuffer } from '../../src/core/tokens.ts';
import type { KvRequest } from '../../src/kv/kv-request.ts';
import { RequestState } from '../../src/scheduler/request-state.ts';
import { DraftModelSpeculator } from '../../src/scheduler/speculation/draft-model-speculator.ts';
import type { Speculator } from '../../src/scheduler/speculation/speculator.ts';
import { TextSpeculator } from '../../src/scheduler/speculation/text-speculator.ts';
import { emptyLoad } from '../../src/scheduler/step-load.ts';
import { isLongForm } from '../../test/support/long-form.ts';
import { makeRequest } from '../workload.ts';

/** Milliseconds of a step by its drafts, and of a new graph if no recent step had as many rows. */
interface Machine {
  readonly steps: readonly (readonly [drafts: number, ms: number])[];
  readonly newGraphMs: number;
  /** Makes the noise of the measured durations: factors. */
  readonly noise?: (prng: Prng) => () => number;
}

/** Other processes make most steps a little longer, and some much longer. */
const busy = (prng: Prng) => () => (1 + prng.unit()) * (prng.chance(0.03) ? 20 : 1);

/** The speed changes about every thirty steps. */
function changing(prng: Prng): () => number {
  let factor = 1;
  return () => {
    if (prng.chance(0.03)) factor = prng.chance(0.5) ? 1 : 1 + 3 * prng.unit();
    return factor * (1 + 0.3 * prng.unit());
  };
}

/** Single measurements say almost nothing. */
const heavy = (prng: Prng) => () =>
  Math.exp(prng.unit() + prng.unit() + prng.unit() - 1.5) * (prng.chance(0.1) ? 5 : 1);

/** Measured with the demo model on one and on two threads, and with a model of 0.6B weights. */
const tiny: Machine = { steps: [[0, 0.14], [1, 0.23], [2, 0.27], [4, 0.33], [7, 0.48], [12, 0.7]], newGraphMs: 0.13 }; // biome-ignore format: a table
const small: Machine = { steps: [[0, 0.29], [1, 0.41], [2, 0.45], [4, 0.48], [8, 0.58], [12, 0.7]], newGraphMs: 0.18 }; // biome-ignore format: a table
const large: Machine = { steps: [[0, 20], [1, 21.5], [3, 24], [7, 31], [12, 41]], newGraphMs: 0.8 }; // biome-ignore format: a table
const machines: readonly (readonly [string, Machine])[] = [
  ['a very small model', tiny],
  ['a very small model on a machine whose speed changes', { ...tiny, noise: changing }],
  ['a very small model with heavy noise', { ...tiny, noise: heavy }],
  ['a small model', small],
  ['a small model on a busy machine', { ...small, noise: busy }],
  ['a large model', large],
  ['a large model on a busy machine', { ...large, noise: busy }],
  [
    'a machine on which rows cost as much as steps',
    {
      steps: [
        [0, 10],
        [12, 130],
      ],
      newGraphMs: 0,
    },
  ],
];

function msOf({ steps }: Machine, drafts: number): number {
  const next = steps.findIndex(([count]) => count >= drafts);
  const [count, ms] = steps[next]!;
  const [countBefore, msBefore] = steps[Math.max(next - 1, 0)]!;
  return count === drafts ? ms : msBefore + ((ms - msBefore) * (drafts - countBefore)) / (count - countBefore);
}

/** The token that follows a text. */
type Text = (before: TokenBuffer, prng: Prng) => number;

const texts: readonly (readonly [string, Text])[] = [
  ['whose last tokens often occurred before', (_, prng) => prng.between(0, 11)],
  ['whose last tokens sometimes occurred before', (_, prng) => prng.between(0, 60)],
  ['whose words repeat, but not their order', (before, prng) => wordsAt(before, prng)],
];

function wordsAt(before: TokenBuffer, prng: Prng): number {
  const last = before.at(before.length - 1);
  return last >= 100 && last < 400 ? last + 100 : 100 + prng.between(0, 30);
}

const repeating: Text = (before) => before.at(before.length - 150);

interface Simulated {
  readonly ms: number;
  readonly plainMs: number;
}

/** Computes requests one after the other. `draft`: what a draft model drafts, and how long it takes for each token. */
function simulate(
  speculator: Speculator,
  machine: Machine,
  requests: readonly (readonly [text: Text, tokens: number])[],
  draft?: { readonly of: (right: readonly number[], prng: Prng) => number[]; readonly ms: number },
): Simulated[] {
  const prng = new Prng(7);
  const noiseOf = machine.noise?.(new Prng(8)) ?? (() => 1);
  const kept: number[] = [];
  const hasGraph = (drafts: number): boolean => {
    const index = kept.indexOf(drafts);
    if (index >= 0) kept.splice(index, 1);
    else if (kept.length === keptGraphsMax) kept.shift();
    kept.push(drafts);
    return index >= 0;
  };
  return requests.map(([text, count]) => {
    const tokens = new TokenBuffer(Array.from({ length: 200 }, (_, i) => i % 150));
    const kv = { scheduled: { all: [] }, tables: [] } as unknown as KvRequest;
    const state = new RequestState(makeRequest('a', [1]), tokens, kv, 0);
    const whole = new TokenBuffer([...tokens.view()]);
    while (whole.length < 200 + count + 64) whole.push(text(whole, prng) as TokenId);
    let ms = 0;
    let plainMs = 0;
    while (tokens.length < 200 + count) {
      const { length } = tokens;
      const right = [...whole.view(length, length + 20)];
      const order = speculator.orderDrafts?.([state]);
      if (order !== undefined) {
        const drafts = draft!.of(right, prng).slice(0, order.count);
        ms += order.count * draft!.ms;
        speculator.takeDrafts!([Int32Array.from(drafts)], order.count * draft!.ms);
      }
      const drafts = speculator.draft([state], 100)[0] ?? new Int32Array(0);
      let accepted = 0;
      while (accepted < drafts.length && drafts[accepted] === right[accepted]) accepted++;
      const noise = noiseOf();
      const stepMs = noise * (msOf(machine, drafts.length) + (hasGraph(drafts.length) ? 0 : machine.newGraphMs));
      // Noise makes both longer, so that only the drafts matter.
      ms += stepMs / noise;
      plainMs += (1 + accepted) * msOf(machine, 0);
      const load = { ...emptyLoad(), decodes: 1, streams: 1, decodeContext: length, draftTokens: drafts.length };
      speculator.observe({ ...load, draftContext: drafts.length * length }, stepMs);
      const newTokens = right.slice(0, 1 + accepted).map((token) => ({ token: token as TokenId }));
      for (const { token } of newTokens) state.append(token);
      if (drafts.length > 0) speculator.verified(state, drafts, newTokens);
    }
    speculator.ended?.(state);
    return { ms, plainMs };
  });
}

const ratioOf = (runs: readonly Simulated[]): number =>
  runs.reduce((sum, { plainMs }) => sum + plainMs, 0) / runs.reduce((sum, { ms }) => sum + ms, 0);
const ownText = (): TextSpeculator =>
  new TextSpeculator({ method: 'ngram', numSpeculativeTokens: 12, promptLookupMin: 2, promptLookupMax: 8 });
const suffixes = (): TextSpeculator =>
  new TextSpeculator({
    method: 'suffix',
    numSpeculativeTokens: 12,
    suffixDecodingMaxTreeDepth: 24,
    suffixDecodingMaxCachedRequests: 100,
    suffixDecodingMaxSpecFactor: 1,
    suffixDecodingMinTokenProb: 0.1,
  });
const methods = [
  ['the own text', ownText],
  ['suffixes', suffixes],
] as const;
const long = 2000;
const times = <T>(count: number, item: T): T[] => Array.from({ length: count }, () => item);

const methodsOnMachines = methods.flatMap(([method, speculator]) =>
  machines.map(([name, machine]) => [method, name, speculator, machine] as const),
);

describe.each(methodsOnMachines)('drafts from %s, with %s', (_method, _machine, speculatorOf, machine) => {
  test.each(texts.filter((_, i) => isLongForm || i % 2 === 0))('lose less than 3 %% on a text %s', (_name, text) => {
    expect(ratioOf(simulate(speculatorOf(), machine, [[text, long]]))).toBeGreaterThan(0.97);
    // Requests of 192 tokens, after one that has gained much.
    const [, ...after] = simulate(speculatorOf(), machine, [[repeating, 500], ...times(12, [text, 192] as const)]);
    expect(ratioOf(after)).toBeGreaterThan(0.97);
  });

  test('gain on texts that repeat', () => {
    const isCheap = machine.newGraphMs > 0;
    const alone = simulate(speculatorOf(), machine, times(4, [repeating, 192] as const));
    expect(ratioOf(alone)).toBeGreaterThan(isCheap ? 2.3 : 0.97);
    const requests = times(6, [texts[0]![1], 192] as const).flatMap((other) => [other, [repeating, 192] as const]);
    const mixed = simulate(speculatorOf(), machine, requests).filter((_run, i) => i % 2 === 1);
    expect(ratioOf(mixed)).toBeGreaterThan(isCheap ? 1.7 : 0.97);
  });
});

/** The words are those of an earlier request, but neither the prompt nor the text before has them. */
const likeEarlier: Text = (before) => 1000 + before.length;

test.each(machines)('an output that repeats an earlier output is faster, with %s', (_, machine) => {
  const [first, ...later] = simulate(suffixes(), machine, times(6, [likeEarlier, 192] as const));
  expect(ratioOf([first!])).toBeGreaterThan(0.97);
  expect(ratioOf(later)).toBeGreaterThan(machine.newGraphMs > 0 ? 1.7 : 0.97);
});

describe.each(machines)('drafts from a model, with %s', (_, machine) => {
  const ms = machine.steps[0]![1] / 8;

  test('lose less than 3 % if they are wrong', () => {
    const wrong = { of: (right: readonly number[]) => right.map((token) => token + 1), ms };
    expect(ratioOf(simulate(new DraftModelSpeculator(5), machine, [[texts[0]![1], long]], wrong))).toBeGreaterThan(
      0.97,
    );
  });

  test('gain if they are mostly right', () => {
    const good = {
      of: (right: readonly number[], prng: Prng) => right.map((token) => (prng.chance(0.9) ? token : 1)),
      ms,
    };
    const ratio = ratioOf(simulate(new DraftModelSpeculator(5), machine, [[texts[0]![1], long]], good));
    expect(ratio).toBeGreaterThan(machine.newGraphMs > 0 ? 1.2 : 0.97);
  });
});

import { assert } from '../src/base/assert.ts';
import { Prng } from '../src/base/prng.ts';
import { costOf } from '../src/scheduler/short-first.ts';
import { harness } from './harness.ts';
import { makeRequest } from './workload.ts';

interface Waiting {
  readonly id: string;
  readonly arrival: number;
  readonly promptLength: number;
  /** The most that prompts may cost that arrive later and are computed first. */
  readonly limit: number;
  passedBy: number;
}

const vocabSize = 1000;
const longMax = 400;
const shortMax = 40;
const liveMax = 40;
/** The prompts that pass another prompt cost at most so many times as much, and one step (`scheduler/short-first.ts`). */
const passingCost = 1.25;

/**
 * A crowd of short prompts beside long prompts, in random steps and slots, with room for all in the pool. No prompt waits without a bound: from its
 * arrival until it is computed, prompts that arrived later cost at most 1.25 times as much as the prompts that were there, and a step for each of
 * these (I8). Counts only computed tokens of prompts.
 */
export function runCrowd(seed: number, arrivalSteps = 150): void {
  const prng = new Prng(seed);
  const maxNumBatchedTokens = prng.pick([8, 16, 64]);
  const { scheduler, step } = harness(
    4000,
    { maxNumBatchedTokens, maxNumSeqs: prng.pick([4, 16, 64]), maxModelLen: 1000 },
    16,
  );
  const stepCost = costOf(longMax, longMax + maxNumBatchedTokens);
  const [longRate, shortRate, outputMax] = [prng.pick([0.02, 0.1]), prng.pick([0.5, 1]), prng.pick([1, 4])];
  const open = new Map<string, Waiting>();
  let arrivals = 0;
  const add = (promptLength: number): void => {
    if (open.size >= liveMax) return;
    const id = `r${++arrivals}`;
    const prompt = Array.from({ length: promptLength }, () => prng.between(0, vocabSize - 1));
    let ahead = costOf(0, promptLength);
    for (const other of open.values()) ahead += costOf(0, other.promptLength);
    const limit = passingCost * ahead + (open.size + 2) * stepCost;
    open.set(id, { id, arrival: arrivals, promptLength, limit, passedBy: 0 });
    scheduler.add(makeRequest(id, prompt, { params: { maxTokens: prng.between(1, outputMax) } }));
  };
  const arrivalOf = (id: string): number => Number(id.slice(1));
  for (let turn = 0; turn < arrivalSteps || scheduler.hasWork(); turn++) {
    if (turn < arrivalSteps) {
      if (prng.chance(longRate)) add(prng.between(longMax / 2, longMax));
      for (let i = prng.between(1, 3); i > 0; i--) if (prng.chance(shortRate)) add(prng.between(1, shortMax));
    }
    if (!scheduler.hasWork()) continue;
    const computed: string[] = [];
    for (const { requestId, spans, tokens } of step().sequences) {
      // The prompt is a part of the tokens: what is computed while the request is open belongs to it.
      const { promptLength } = open.get(requestId) ?? { promptLength: 0 };
      if (promptLength === 0) continue;
      const cost = spans.reduce((sum, { start, end }) => sum + costOf(start, end), 0);
      for (const waiting of open.values()) if (waiting.arrival < arrivalOf(requestId)) waiting.passedBy += cost;
      if (spans.at(-1)!.end >= Math.min(promptLength, tokens.length)) computed.push(requestId);
    }
    for (const id of computed) open.delete(id);
    for (const { id, passedBy, limit } of open.values())
      if (passedBy > limit)
        assert(
          false,
          `I8: seed ${seed}: prompts that came after ${id} cost ${passedBy}, and at most ${limit} may pass it`,
        );
  }
  assert(open.size === 0, `I8: seed ${seed}: ${open.size} prompts were never computed`);
}

import { deserialize, serialize } from 'node:v8';
import { describe, expect, test } from 'vitest';
import { fuzzRuns } from '../../test/support/long-form.ts';
import { Prng } from '../base/prng.ts';
import { type RequestId, requestId, stepId, type TokenCount, type TokenId, tokenCount } from '../core/ids.ts';
import { parseSamplingParams } from '../core/sampling-parse.ts';
import type { BlockTable, Drafts, SampleRequest, SequencePlan } from '../core/step.ts';
import { TokenBuffer } from '../core/tokens.ts';
import type { ScheduledStep } from '../scheduler/contract.ts';
import { StepDecoder, StepEncoder } from './step-codec.ts';

/**
 * Random steps through the codec; the reference is a clone of the whole plan. Requests start and end, grow, and are
 * preempted and resumed in one step. They release blocks of a window, have other write tables, and reuse the ids of ended
 * requests. Workers die. KVASIR_FUZZ_RUNS sets the number of runs, KVASIR_FUZZ_SEED the first seed.
 */
const runs = fuzzRuns(200);
const firstSeed = Number(process.env.KVASIR_FUZZ_SEED ?? 1);

interface Actor {
  readonly id: RequestId;
  readonly tokens: TokenBuffer;
  readonly sample: SampleRequest;
  tables: number[][];
  readonly adapter: string | undefined;
}

describe('the step codec', () => {
  test(`a decoded step equals a clone of the plan, in ${runs} random runs`, () => {
    for (let seed = firstSeed; seed < firstSeed + runs; seed++) {
      try {
        runOnce(new Prng(seed));
      } catch (error) {
        throw new Error(`rerun with KVASIR_FUZZ_SEED=${seed} KVASIR_FUZZ_RUNS=1`, { cause: error });
      }
    }
  });
});

function runOnce(prng: Prng): void {
  const groups = prng.between(1, 3);
  let actors: Actor[] = [];
  let encoder = new StepEncoder();
  let decoder = new StepDecoder();
  for (let step = 1; step <= 30; step++) {
    const released: RequestId[] = [];
    // These requests end: their ids may be used again at once.
    actors = actors.filter(({ id }) => !prng.chance(0.1) || released.push(id) < 0);
    while (actors.length < 6 && prng.chance(0.5)) actors.push(makeActor(prng, actors, groups));
    for (const actor of actors) {
      if (prng.chance(0.1)) {
        released.push(actor.id);
        for (const table of actor.tables) table.length = 0;
      }
      grow(prng, actor);
    }
    const sequences = actors.filter(() => prng.chance(0.7)).map((actor) => sequenceOf(prng, actor));
    const plan: ScheduledStep = { stepId: stepId(step), sequences, tokenCount: tokenCount(step), released };
    const message = deserialize(serialize(encoder.encode(plan)));
    expect(plain(decoder.decode(message))).toEqual(structuredClone(plain(plan)));
    expect(decoder.requestCount).toBe(encoder.requestCount);
    if (prng.chance(0.05)) {
      encoder = new StepEncoder();
      decoder = new StepDecoder();
    }
  }
}

function makeActor(prng: Prng, others: readonly Actor[], groups: number): Actor {
  const free = ['a', 'b', 'c', 'd', 'e', 'f', 'g'].filter((name) => others.every(({ id }) => id !== name));
  const options = { temperature: prng.unit(), seed: prng.uint32(), maxTokens: 9, logitBias: { 3: prng.unit() } };
  const params = parseSamplingParams(options, { vocabSize: 100, maxTokensDefault: 9, drawSeed: () => 1n });
  return {
    id: requestId(prng.pick(free)),
    tokens: new TokenBuffer(Array.from({ length: prng.between(1, 40) }, () => prng.between(0, 99))),
    sample: { params, promptLength: tokenCount(prng.between(1, 9)), eosTokenIds: [2 as TokenId] },
    tables: Array.from({ length: groups }, () => []),
    adapter: prng.pick([undefined, undefined, 'digest a', 'digest b']),
  };
}

function grow(prng: Prng, { tokens, tables }: Actor): void {
  for (let count = prng.pick([0, 1, 1, 1, 20]); count > 0; count--) tokens.push(prng.between(0, 99) as TokenId);
  for (const table of tables) {
    for (let count = prng.pick([0, 0, 0, 1, 7]); count > 0; count--) table.push(prng.between(1, 1000));
    if (table.length > 0 && prng.chance(0.2)) table[prng.between(0, table.length - 1)] = 0;
    if (prng.chance(0.05)) table.length = prng.between(0, table.length);
  }
}

function sequenceOf(prng: Prng, { id, tokens, sample, tables, adapter }: Actor): SequencePlan {
  const spans: { start: TokenCount; end: TokenCount }[] = [];
  for (let at = prng.between(0, 5); at < tokens.length && spans.length < 3; at += prng.between(1, 9)) {
    const start = at;
    at = Math.min(tokens.length, at + prng.between(1, 9));
    spans.push({ start: tokenCount(start), end: tokenCount(at) });
  }
  const rows = spans.at(-1) ?? { start: tokenCount(0), end: tokenCount(0) };
  const blockTables = tables.map((table) => tableOf(prng, table));
  const elsewhere = tables.map((table) =>
    tableOf(
      prng,
      table.map((block) => (prng.chance(0.3) ? 0 : block)),
    ),
  );
  return {
    requestId: id,
    tokens,
    spans,
    blockTables,
    ...(adapter === undefined ? {} : { adapter }),
    ...(prng.chance(0.2) ? { writeTables: elsewhere } : {}),
    ...(prng.chance(0.5) ? { sample } : {}),
    ...(prng.chance(0.3) ? { allowed: prng.pick(masks) } : {}),
    ...(prng.chance(0.3) ? { drafts: draftsOf(prng) } : {}),
    ...(prng.chance(0.2) ? { layers: { first: prng.between(0, 5), end: prng.between(6, 9) } } : {}),
    ...(prng.chance(0.2) ? { prompt: { ...rows, ...prng.pick([{}, { topCount: 0 }, { topCount: 20 }]) } } : {}),
  };
}

const masks = [Uint32Array.of(7, 0xffffffff), Uint32Array.of(0, 1), new Uint32Array(3)];

function draftsOf(prng: Prng): Drafts {
  const tokens = Int32Array.from({ length: prng.between(1, 5) }, () => prng.between(0, 99));
  return prng.chance(0.5) ? { tokens } : { tokens, allowed: Array.from(tokens, () => prng.pick(masks)) };
}

/** The ids after `length` are random, because they are unused. */
const tableOf = (prng: Prng, blocks: readonly number[]): BlockTable => ({
  ids: Int32Array.from([...blocks, prng.between(0, 99), prng.between(0, 99)]),
  length: blocks.length,
});

/** A step as data that can be compared. */
function plain({ sequences, ...step }: ScheduledStep) {
  const idsOf = ({ ids, length }: BlockTable): number[] => [...ids.subarray(0, length)];
  return {
    ...step,
    sequences: sequences.map(({ tokens, blockTables, writeTables, ...sequence }) => ({
      ...sequence,
      tokens: [...tokens.view()],
      blockTables: blockTables.map(idsOf),
      ...(writeTables === undefined ? {} : { writeTables: writeTables.map(idsOf) }),
    })),
  };
}

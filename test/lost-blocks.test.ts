/**
 * `cache.loseBlocks` with real weights: the lost blocks are overwritten, and the text, tokens and logprobs stay the same bits. Only
 * tokens of lost blocks are computed again.
 */
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from 'vitest';
import { createEngine } from '../src/compose.ts';
import type { LossChoice } from '../src/engine/cache-contract.ts';
import type { AsyncEngine, OutputDelta } from '../src/engine/contract.ts';
import { Scheduler } from '../src/scheduler/scheduler.ts';
import { promptOf } from './support/drive.ts';
import { inLongForm } from './support/long-form.ts';
import { smallDemo } from './support/small-demo.ts';

const blockSize = 16;
const prompt = promptOf(100, 3, 250);
const maxTokens = 60;
afterEach(() => vi.restoreAllMocks());

let engine: AsyncEngine;
beforeAll(async () => {
  engine = await createEngine({ ...smallDemo, enablePrefixCaching: false });
});
afterAll(() => engine.close());

interface Run {
  readonly tokens: readonly number[];
  readonly text: string;
  readonly logprobs: readonly unknown[];
}

/** Loses blocks after these numbers of output tokens. `choose` gets the block tables of the request at that time. */
interface Loss {
  readonly after: number;
  choose(tables: readonly (readonly number[])[]): LossChoice;
}

async function run(engine: AsyncEngine, temperature: number, losses: readonly Loss[] = []) {
  const { cache } = engine;
  const watch = cache!.watch();
  const params = { temperature, seed: 11n, maxTokens, ignoreEos: true, logprobs: 2 };
  const deltas: OutputDelta[] = [];
  let lostTokens = 0;
  for await (const delta of engine.generate({ prompt, params, requestId: 'one' })) {
    deltas.push(delta);
    const id = watch.timelines().at(-1)!.id;
    for (const { after, choose } of losses)
      if (delta.stats.outputTokens === after)
        lostTokens += (await cache!.loseBlocks(choose(watch.tablesOf(id)!))).tokens;
  }
  const phases = watch
    .timelines()
    .at(-1)!
    .phases.map(({ phase }) => phase);
  watch.close();
  const output: Run = {
    tokens: deltas.flatMap(({ tokenIds }) => [...tokenIds]),
    text: deltas.map(({ text }) => text).join(''),
    logprobs: deltas.flatMap(({ logprobs = [] }) => [...logprobs]),
  };
  return { output, stats: deltas.at(-1)!.stats, phases, lostTokens };
}

const inFull =
  (...indices: number[]) =>
  (tables: readonly (readonly number[])[]) => ({
    blocks: indices.map((index) => tables[0]!.at(index)!),
  });
const everything = (tables: readonly (readonly number[])[]) => ({
  blocks: tables.flat().filter((block) => block !== 0),
});

/** `recomputed`: the tokens that are computed again, where the number is certain. */
const cases: readonly { what: string; losses: readonly Loss[]; recomputed?: number }[] = [
  { what: 'the first block', losses: [{ after: 5, choose: inFull(0) }], recomputed: blockSize },
  { what: 'two blocks in the middle', losses: [{ after: 9, choose: inFull(2, 4) }], recomputed: 2 * blockSize },
  { what: 'the block that is being filled', losses: [{ after: 20, choose: inFull(-1) }] },
  { what: 'every block', losses: [{ after: 30, choose: everything }] },
  { what: 'four random blocks', losses: [{ after: 12, choose: () => ({ count: 4, request: 'one', seed: 7 }) }] },
  {
    what: 'a block, and the same block again',
    losses: [3, 4, 40].map((after) => ({ after, choose: inFull(1) })),
    recomputed: 3 * blockSize,
  },
];

const samplings: readonly (readonly [name: string, temperature: number])[] = [
  ['greedy', 0],
  ['seeded', 0.9],
];
describe.each(inLongForm(samplings, samplings.slice(1)))(
  'a %s request of the bundled model loses',
  (_, temperature) => {
    it.each(cases)('$what: the output is the same', async ({ losses, recomputed }) => {
      const undisturbed = await run(engine, temperature);
      const disturbed = await run(engine, temperature, losses);
      expect(disturbed.output).toEqual(undisturbed.output);
      expect(undisturbed.stats.recomputedTokens).toBe(0);
      expect(disturbed.stats.recomputedTokens).toBeGreaterThan(0);
      expect(disturbed.stats.recomputedTokens).toBeLessThanOrEqual(disturbed.lostTokens);
      if (recomputed !== undefined) expect(disturbed.stats.recomputedTokens).toBe(recomputed);
      expect(disturbed.phases).toContain('recovering');
      expect(undisturbed.phases).not.toContain('recovering');
    });

    it('random blocks of three groups in the hybrid model: the output is the same', async () => {
      const hybrid = await createEngine({
        ...smallDemo,
        enablePrefixCaching: false,
        model: 'models/kvasir-hybrid.gguf',
      });
      const undisturbed = await run(hybrid, temperature);
      for (const seed of [1, 2, 3]) {
        const choose = () => ({ count: 3, request: 'one', seed });
        const { output, stats } = await run(
          hybrid,
          temperature,
          [8, 33].map((after) => ({ after, choose })),
        );
        expect(output).toEqual(undisturbed.output);
        expect(stats.recomputedTokens).toBeGreaterThan(0);
      }
      await hybrid.close();
    });

    it('overwritten blocks that are not reported, and the output is another one', async () => {
      const undisturbed = await run(engine, temperature);
      vi.spyOn(Scheduler.prototype, 'invalidate').mockReturnValue([]);
      const disturbed = await run(engine, temperature, [{ after: 9, choose: inFull(2, 4) }]);
      expect(disturbed.output).not.toEqual(undisturbed.output);
    });
  },
);

describe('other requests', () => {
  it('get the same output when the pool loses random blocks, the prefix cache included', async () => {
    const cached = await createEngine(smallDemo);
    const texts = async (lose: boolean): Promise<string[]> => {
      const requests = Array.from({ length: 4 }, async (_, i) => {
        const params = { temperature: 0.8, seed: BigInt(i), maxTokens: 40, ignoreEos: true };
        let text = '';
        for await (const delta of cached.generate({ prompt: [...prompt, i], params })) {
          text += delta.text;
          const isDue = lose && delta.stats.outputTokens % 10 === 5;
          if (isDue) await cached.cache!.loseBlocks({ count: 3, seed: 100 * i + delta.stats.outputTokens });
        }
        return text;
      });
      return Promise.all(requests);
    };
    const undisturbed = await texts(false);
    expect(await texts(true)).toEqual(undisturbed);
    expect(cached.stats().transfers.recoveries).toBeGreaterThan(0);
    await cached.close();
  });
});

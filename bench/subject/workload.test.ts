import { describe, expect, it } from 'vitest';
import { shareGptLimits } from '../../sim/cluster/sharegpt-lengths.ts';
import { RandomTokens } from '../random-tokens.ts';
import { converse } from './conversations.ts';
import { RunTimes } from './run-times.ts';
import { fillWorkload, type WorkloadShape, withShortAnswers, workloadShape, workloadTotals } from './workload.ts';

const mean = (values: readonly number[]): number => values.reduce((sum, value) => sum + value, 0) / values.length;

describe('workloads', () => {
  it('sharegpt have the means and the limits of vLLM’s reports', () => {
    const { promptMean, generateMean, min, promptMax, totalMax } = shareGptLimits;
    const turns = workloadShape('sharegpt', 20_000).conversations.flat();
    const prompts = turns.map(({ promptLength }) => promptLength);
    const answers = turns.map(({ generateLength }) => generateLength);
    expect(Math.abs(mean(prompts) / promptMean - 1)).toBeLessThan(0.03);
    expect(Math.abs(mean(answers) / generateMean - 1)).toBeLessThan(0.03);
    expect(Math.min(...prompts, ...answers)).toBeGreaterThanOrEqual(min);
    expect(Math.max(...prompts)).toBeLessThanOrEqual(promptMax);
    expect(Math.max(...turns.map((turn) => turn.promptLength + turn.generateLength))).toBeLessThanOrEqual(totalMax);
  });

  it('have equal lengths each time; a longer list starts with the shorter one', () => {
    expect(workloadShape('sharegpt', 64)).toEqual(workloadShape('sharegpt', 64));
    expect(workloadShape('sharegpt', 64).conversations.slice(0, 8)).toEqual(workloadShape('sharegpt', 8).conversations);
  });

  it('count prompt tokens, generated tokens, and the KV at the end', () => {
    const turn = { promptLength: 5, generateLength: 2 };
    const shape: WorkloadShape = { prefixLength: 10, conversations: [[turn, turn], [turn]] };
    expect(workloadTotals(shape)).toEqual({
      promptTokens: 10 + 5 + (17 + 5) + (10 + 5),
      generatedTokens: 6,
      keptTokens: 10 + 14 + 7,
      longest: 24,
    });
    const cut = { promptLength: 5, generateLength: 1 };
    expect(withShortAnswers(shape, 1)).toEqual({ prefixLength: 10, conversations: [[cut, cut], [cut]] });
    expect(withShortAnswers(shape, 3)).toEqual(shape);
    const filled = fillWorkload(shape, new RandomTokens(1, 100));
    expect(filled.prefix).toHaveLength(10);
    expect(filled.conversations.map((turns) => turns.map(({ prompt }) => prompt.length))).toEqual([[5, 5], [5]]);
  });
});

describe('conversations', () => {
  it('send all earlier turns in each prompt', async () => {
    const asked: number[][] = [];
    const turns = [
      { prompt: Int32Array.of(2, 3), generateLength: 2 },
      { prompt: Int32Array.of(4), generateLength: 1 },
    ];
    async function* answer(prompt: Int32Array, maxTokens: number) {
      asked.push(Array.from(prompt));
      for (let i = 0; i < maxTokens; i++) yield [90 + i];
    }
    await converse({ prefix: Int32Array.of(1), conversations: [turns] }, answer, new RunTimes());
    expect(asked).toEqual([
      [1, 2, 3],
      [1, 2, 3, 90, 91, 4],
    ]);
  });

  it('throw if an answer is too short', async () => {
    const turns = [{ prompt: Int32Array.of(2), generateLength: 2 }];
    async function* answer() {
      yield [7];
    }
    const workload = { prefix: new Int32Array(), conversations: [turns] };
    await expect(converse(workload, answer, new RunTimes())).rejects.toThrow('after 1 of 2 tokens');
  });
});

describe('times of a run', () => {
  it('record times to first tokens and between tokens; tokens that come together have 0 ms between them', () => {
    const times = new RunTimes();
    const turn = times.beginTurn(100);
    turn.add(1, 130);
    turn.add(2, 150);
    turn.add(1, 160);
    times.beginTurn(200).add(1, 210);
    expect(turn.tokenCount).toBe(4);
    expect(times.first()).toEqual({ p50: 10, p99: 30 });
    // 20, 0, 10.
    expect(times.between()).toEqual({ p50: 10, p99: 20 });
  });
});

import type { Clock } from '../../src/base/clock.ts';
import { openMeasuredEngine } from '../../src/compose.ts';
import type { SamplingOptions } from '../../src/core/sampling.ts';
import type { AsyncEngine } from '../../src/engine/contract.ts';
import type { EngineOptions } from '../../src/engine/options.ts';

const prompts = ['Once upon a time', 'The little dog', 'A', 'She said'];
const samplings: SamplingOptions[] = [
  { maxTokens: 40, temperature: 0, ignoreEos: true },
  { maxTokens: 40, temperature: 0.8, seed: 3n },
  { maxTokens: 30, temperature: 0.7, seed: 4n, repetitionPenalty: 1.2, presencePenalty: 0.4 },
  { maxTokens: 30, temperature: 0.5, seed: 5n, structuredOutputs: { regex: '[a-z ]{20,60}' } },
];

/** The text of one of four requests: greedy, sampled, with penalties, and with a grammar. */
export async function textOf(engine: AsyncEngine, index: number): Promise<string> {
  let text = '';
  const request = { prompt: prompts[index]!, params: samplings[index]! };
  for await (const output of engine.generate(request)) text += output.text;
  return text;
}

/** The texts of all four, in one batch or one after the other. */
export async function textsOf(engine: AsyncEngine, isTogether: boolean): Promise<string[]> {
  if (isTogether) return Promise.all(prompts.map((_, i) => textOf(engine, i)));
  const texts: string[] = [];
  for (const i of prompts.keys()) texts.push(await textOf(engine, i));
  return texts;
}

/** For this clock, all steps and drafts have about the same duration on every machine, so drafts are always worth their time. */
export function countingClock(): Clock {
  let ms = 0;
  return { nowMs: () => ms++ };
}

/** With `countingClock`. */
export async function withDraftingEngine<T>(
  options: EngineOptions,
  use: (engine: AsyncEngine) => Promise<T>,
): Promise<T> {
  const all = { threads: 1, maxModelLen: 128, ...options };
  const { engine } = await openMeasuredEngine(all, undefined, countingClock());
  try {
    return await use(engine);
  } finally {
    await engine.close();
  }
}

/**
 * What choosing one token costs with a vocabulary of 151,936 (Qwen3) and logits of a bell curve with a few that stand out.
 * Build, then: node dist/src/runner/sampler.bench.js
 */
import { uniform } from '../base/philox.ts';
import { tokenCount } from '../core/ids.ts';
import type { SamplingOptions } from '../core/sampling.ts';
import { parseSamplingParams } from '../core/sampling-parse.ts';
import { TokenBuffer } from '../core/tokens.ts';
import { Sampler } from './sampler.ts';

const vocabSize = 151_936;
const runs = 100;

const logits = Float32Array.from({ length: vocabSize }, (_, token) => {
  let sum = -6;
  for (let term = 0; term < 12; term++) sum += uniform(1n, token * 12 + term);
  return sum * 2.5;
});
logits.set([18, 17, 16], 777);

const cases: readonly SamplingOptions[] = [
  { temperature: 0 },
  { temperature: 0, repetitionPenalty: 1.1 },
  { temperature: 0, logprobs: 5 },
  { temperature: 1 },
  { minP: 0.05 },
  { topK: 50 },
  { topK: 20_000 },
  { topP: 0.95 },
  { temperature: 0.7, topK: 20, topP: 0.8, presencePenalty: 1.5 },
];

const sampler = new Sampler(vocabSize);
for (const raw of cases) {
  const params = parseSamplingParams(raw, { vocabSize, maxTokensDefault: runs, drawSeed: () => 4n });
  const tokens = new TokenBuffer(Array.from({ length: 2000 }, (_, position) => (position * 37) % vocabSize));
  const request = { params, promptLength: tokenCount(1000), eosTokenIds: [] };
  const times: number[] = [];
  for (let run = 0; run < runs; run++) {
    const started = performance.now();
    tokens.push(sampler.sample(logits, request, tokens).token);
    times.push(performance.now() - started);
  }
  times.sort((a, b) => a - b);
  const at = (share: number) => times[Math.floor(runs * share)]!.toFixed(3);
  console.log(`${JSON.stringify(raw).padEnd(72)} p50 ${at(0.5)} ms  p90 ${at(0.9)} ms`);
}

/**
 * The time of choosing one token, for a vocabulary of 151,936 tokens (Qwen3) and normally distributed logits with a few
 * greater ones.
 * Build, then: node dist/src/runner/sampling/sampler.bench.js
 */
import { uniform } from '../../base/philox.ts';
import { tokenCount } from '../../core/ids.ts';
import type { SamplingOptions } from '../../core/sampling.ts';
import { parseSamplingParams } from '../../core/sampling-parse.ts';
import { TokenBuffer } from '../../core/tokens.ts';
import { loadNative } from '../../ggml/ffi.ts';
import { openLogitsPasses } from './logits-passes.ts';
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

const samplers = { script: new Sampler(vocabSize), C: new Sampler(vocabSize, await openLogitsPasses(loadNative())) };
for (const raw of cases) {
  const params = parseSamplingParams(raw, { vocabSize, maxTokensDefault: runs, drawSeed: () => 4n });
  const found = Object.entries(samplers).map(([name, sampler]) => {
    const tokens = new TokenBuffer(Array.from({ length: 2000 }, (_, position) => (position * 37) % vocabSize));
    const request = { params, promptLength: tokenCount(1000), eosTokenIds: [] };
    const times: number[] = [];
    for (let run = 0; run < runs; run++) {
      const started = performance.now();
      tokens.push(sampler.sample(logits, request, tokens).token);
      times.push(performance.now() - started);
    }
    times.sort((a, b) => a - b);
    return `${name} ${times[runs / 2]!.toFixed(3)} ms`;
  });
  console.log(`${JSON.stringify(raw).padEnd(72)} ${found.join('  ')}`);
}

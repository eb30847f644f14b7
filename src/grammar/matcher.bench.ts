/**
 * The CPU time of a mask, and of choosing a token with and without a grammar, for a vocabulary of 151,936 tokens: bytes and random
 * words. "First" is the time of states that no output has reached before, "later" that of the same output again.
 * Build, then: node dist/src/grammar/matcher.bench.js
 */
import { buildsHere } from '../../test/support/grammar-builder.ts';
import { uniform } from '../base/philox.ts';
import { isAllowed, type OutputConstraint } from '../core/constraint.ts';
import { tokenCount } from '../core/ids.ts';
import { parseSamplingParams } from '../core/sampling-parse.ts';
import { readStructuredOutputs, type StructuredOutputs } from '../core/structured-outputs.ts';
import { TokenBuffer } from '../core/tokens.ts';
import { Sampler } from '../runner/sampling/sampler.ts';
import { Grammars } from './grammars.ts';
import { structuredSource } from './structured-grammar.ts';
import { utf8Of } from './utf8.ts';
import type { VocabularySource } from './vocabulary.ts';

const vocabSize = 151_936;
const eos = vocabSize - 1;
const steps = 200;
let drawn = 0;
const below = (limit: number): number => Math.floor(uniform(7n, drawn++) * limit);

const signs = '"{}[]:,.0123456789\\-é漢я';
const tokens = Array.from({ length: eos }, (_, id) => {
  if (id < 256) return Uint8Array.of(id);
  const letters = Array.from({ length: 1 + below(8) }, () =>
    below(30) === 0 ? signs[below(signs.length)]! : String.fromCharCode(97 + below(26)),
  );
  return utf8Of((below(2) === 0 ? ' ' : '') + letters.join(''));
});
const source: VocabularySource = {
  vocabSize,
  tokenBytesMax: 40,
  eosTokenIds: [eos],
  tokenBytes: (id) => tokens[id] ?? new Uint8Array(0),
  isControl: (id) => id === eos,
};

const string = { type: 'string' };
const cases: Readonly<Record<string, StructuredOutputs>> = {
  'any JSON object': { jsonObject: true },
  'a schema': {
    json: {
      type: 'object',
      properties: {
        name: string,
        age: { type: 'integer', minimum: 0 },
        notes: { type: 'array', items: string, minItems: 9 },
      },
      required: ['name', 'age', 'notes'],
    },
  },
  'a string of up to 500 characters': { json: { type: 'string', minLength: 400, maxLength: 500 } },
};

const cpuMs = (run: () => void): number => {
  const before = process.cpuUsage();
  run();
  const { user, system } = process.cpuUsage(before);
  return (user + system) / 1000;
};

const grammars = new Grammars(source, buildsHere);
const before = process.cpuUsage();
await grammars.compile(structuredSource(readStructuredOutputs({ choice: ['a'] })));
console.log(`reading the vocabulary: ${(process.cpuUsage(before).user / 1000).toFixed(0)} ms`);

const logits = Float32Array.from({ length: vocabSize }, (_, token) => uniform(1n, token) * 8);
const sampler = new Sampler(vocabSize);
for (const [name, outputs] of Object.entries(cases)) {
  const compiled: OutputConstraint[] = [];
  const compileMs = cpuMs(() =>
    compiled.push(grammars.compileAtOnce(structuredSource(readStructuredOutputs(outputs)))!),
  );
  const constraint = compiled[0]!;
  const params = parseSamplingParams({ seed: 5 }, { vocabSize, maxTokensDefault: steps, drawSeed: () => 4n });
  const request = { params, promptLength: tokenCount(1), eosTokenIds: [] };
  const walk = (): { masks: number; samples: number; count: number } => {
    const output = new TokenBuffer([0]);
    let state = constraint.start;
    const sum = { masks: 0, samples: 0, count: 0 };
    for (; sum.count < steps; sum.count++) {
      sum.masks += cpuMs(() => constraint.allowedTokens(state, true));
      const mask = constraint.allowedTokens(state, true);
      if (isAllowed(mask, eos)) break;
      sum.samples += cpuMs(() => output.push(sampler.sample(logits, request, output, { allowed: mask }).token));
      state = constraint.advance(state, output.at(output.length - 1))!;
    }
    return sum;
  };
  const [first, later] = [walk(), walk()];
  const perToken = (ms: number): string => (ms / first.count).toFixed(3);
  console.log(
    `${name}: ${first.count} tokens; a mask, first ${perToken(first.masks)} ms, later ${perToken(later.masks)} ms; ` +
      `sampling with the mask ${perToken(later.samples)} ms; compiling and the first mask ${compileMs.toFixed(1)} ms`,
  );
}
const free = new TokenBuffer([0]);
const params = parseSamplingParams({ seed: 5 }, { vocabSize, maxTokensDefault: steps, drawSeed: () => 4n });
const freeMs = cpuMs(() => {
  for (let i = 0; i < steps; i++)
    free.push(sampler.sample(logits, { params, promptLength: tokenCount(1), eosTokenIds: [] }, free).token);
});
console.log(`sampling without a grammar: ${(freeMs / steps).toFixed(3)} ms`);

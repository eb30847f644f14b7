// Kvasir as an engine of run.mjs: reads cases, writes what its grammars allow. Needs `npm run build`.
import { createInterface } from 'node:readline';
import { Prng } from '../../dist/src/base/prng.js';
import { isAllowed } from '../../dist/src/core/constraint.js';
import { Matcher } from '../../dist/src/grammar/matcher.js';
import { MatcherMemory } from '../../dist/src/grammar/matcher-memory.js';
import { buildNetwork } from '../../dist/src/grammar/network.js';
import { structuredGrammar } from '../../dist/src/grammar/structured-grammar.js';
import { readVocabulary } from '../../dist/src/grammar/vocabulary.js';

const eos = 256;
/** Tokens are bytes, so that a random output can be any. */
const vocabulary = await readVocabulary({
  vocabSize: 257,
  tokenBytesMax: 1,
  eosTokenIds: [eos],
  tokenBytes: (id) => (id < eos ? Uint8Array.of(id) : new Uint8Array()),
  isControl: (id) => id === eos,
});
/** Tokens that mostly end a value. */
const closing = new Set(Buffer.from('"}],:0'));
const stepsMax = 400;

export const matcherOf = (outputs) =>
  new Matcher(
    buildNetwork(structuredGrammar(outputs), vocabulary.controlTokens),
    vocabulary,
    new MatcherMemory(2 ** 26),
  );

export function allows(matcher, text) {
  let state = matcher.start;
  for (const byte of Buffer.from(text)) {
    if (!isAllowed(matcher.allowedTokens(state, false), byte)) return false;
    state = matcher.advance(state, byte);
  }
  return isAllowed(matcher.allowedTokens(state, false), eos);
}

/** Undefined if it has not ended after some steps. */
function randomOutput(matcher, prng) {
  const bytes = [];
  let state = matcher.start;
  for (let step = 0; step < stepsMax; step++) {
    const mask = matcher.allowedTokens(state, false);
    const allowed = Array.from({ length: eos }, (_, id) => id).filter((id) => isAllowed(mask, id));
    if (isAllowed(mask, eos) && (allowed.length === 0 || prng.chance(0.6))) return Buffer.from(bytes).toString();
    const ending = allowed.filter((id) => closing.has(id));
    const from = ending.length > 0 && prng.chance(step > 60 ? 0.9 : 0.4) ? ending : allowed;
    const token = from[prng.between(0, from.length - 1)];
    bytes.push(token);
    state = matcher.advance(state, token);
  }
  return undefined;
}

/** As models write: without spaces, or as Python's json.dumps. */
export const written = (value) => [JSON.stringify(value), spaced(value)];
function spaced(value) {
  if (Array.isArray(value)) return `[${value.map(spaced).join(', ')}]`;
  if (typeof value !== 'object' || value === null) return JSON.stringify(value);
  return `{${Object.entries(value).map(([name, item]) => `${JSON.stringify(name)}: ${spaced(item)}`).join(', ')}}`;
}

/** Answers each case: `outputsOf(schema)` is the constraint as `structured_outputs`. `end`: what an engine's grammar writes after a value. */
export async function answer(outputsOf, end = '', count = Number(process.argv[2] ?? 300)) {
  for await (const line of createInterface({ input: process.stdin })) {
    const { library, name, schema, valid } = JSON.parse(line);
    const result = { library, name, outputs: [], forbidden: [] };
    try {
      const matcher = matcherOf(outputsOf(schema));
      result.forbidden = valid.filter((value) => !written(value).some((text) => allows(matcher, text + end)));
      for (let seed = 0; seed < count; seed++) {
        const output = randomOutput(matcher, new Prng(seed));
        if (output !== undefined) result.outputs.push(output);
      }
    } catch (error) {
      result.refused = String(error.message).slice(0, 200);
    }
    process.stdout.write(`${JSON.stringify(result)}\n`);
  }
}

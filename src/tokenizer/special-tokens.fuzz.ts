/**
 * Compares the tokens of long random texts with those of libllama for the whole text: with special tokens at any place,
 * which overlap and contain each other, and runs of characters whose length is near the limit of `long-runs.ts`.
 *
 * Does not cover special tokens of equal length that overlap, or of which one is white space that the other strips:
 * libllama does not define their order.
 */
import { writeFileSync } from 'node:fs';
import { afterAll, expect, it } from 'vitest';
import {
  byteLevelKeys,
  type GgufBytesOptions,
  gemma4Keys,
  ggufBytes,
  sentencePieceKeys,
} from '../../test/support/gguf-bytes.ts';
import { libllamaVocabulary } from '../../test/support/libllama-vocabulary.ts';
import { inLongForm } from '../../test/support/long-form.ts';
import { temporaryFolder } from '../../test/support/tiny-model.ts';
import { Prng } from '../base/prng.ts';
import { readGguf } from '../ggml/gguf.ts';
import { openTokenizer } from './llama-tokenizer.ts';
import { cutLongRuns, RUN_LENGTH_MAX } from './long-runs.ts';
import type { CutRule } from './pre-tokenizers.ts';

const folder = temporaryFolder();
afterAll(() => folder.remove());
const seed = Number(process.env.KVASIR_FUZZ_SEED ?? process.env.KVASIR_SEED ?? 20261126);
const rounds = Number(process.env.KVASIR_FUZZ_RUNS ?? inLongForm(4, 1));
const max = RUN_LENGTH_MAX;
/** A match of so many characters does not overflow the stack of libllama here. */
const libllamaMax = 45_000;

type Keys = NonNullable<GgufBytesOptions['keys']>;

const special = [
  ['<a>', 3],
  ['<a><b>', 3],
  ['<b>', 4],
  ['b><a', 4],
  ['<|x|>', 3],
  ['|><|', 4],
  ['aaa', 4],
  ['\n\n\n\n\n\n\n', 4],
  ['         \t', 4],
  ['日本', 3],
  ['本語の', 4],
  ['🙂🙂', 4],
  ['<s>', 3],
  ['</s>', 3],
  ['<unk>', 2],
  ['<mask>', 4],
] as const;
const pieces = [
  ...special.map(([text]) => text),
  '<',
  'a',
  'b',
  '>',
  '|',
  ' ',
  '\n',
  '日',
  '本',
  '語',
  'の',
  '🙂',
  'x',
];

/** libllama strips white space beside the special tokens of models with this name or pre-tokenizer. */
const stripping = [['general.name', { string: 'Phi-3 mini' }]] as const;
const vocabularies: readonly (readonly [name: string, keys: Keys, rule: CutRule])[] = [
  ['gpt-2', byteLevelKeys('gpt-2', special), 'never'],
  ['qwen2', byteLevelKeys('qwen2', special), 'never'],
  ['tekken', byteLevelKeys('tekken', special), 'runs'],
  ['none named', byteLevelKeys(undefined, special), 'runs'],
  ['exaone-moe', byteLevelKeys('exaone-moe', special), 'words'],
  ['deepseek-llm', byteLevelKeys('deepseek-llm', special), 'spaces'],
  ['white space stripped on the right', [...byteLevelKeys('qwen2', special), ...stripping], 'never'],
  ['white space stripped on the left', byteLevelKeys('jina-v2-de', special), 'never'],
  ['SentencePiece', sentencePieceKeys(special), 'never'],
  ['gemma4', gemma4Keys(special), 'never'],
];

/** Many characters of one class. */
const classes = ['a', 'X', '7', '!', ' ', '\n', '日', '🙂', 'e\u0301', '\u00a0', '\t ', 'ab ', '<|', '/'];

function randomText(prng: Prng, rule: CutRule): string {
  const some = () => Array.from({ length: prng.between(0, 8) }, () => prng.pick(pieces)).join('');
  const run = (length: number) => {
    // The time of libllama would be quadratic for much white space.
    const unit = prng.pick(rule === 'spaces' ? classes.filter((text) => text.trim() === text) : classes);
    return unit.repeat(Math.floor(length / unit.length));
  };
  const text = `${some()}${run(max - prng.between(0, 40))}${some()}${run(prng.between(0, 12_000))}${some()}`;
  return text.slice(0, libllamaMax);
}

it(`special tokens of long texts are those of libllama, and all tokens of parts without a cut (seed ${seed})`, async () => {
  const prng = new Prng(seed);
  let uncutCount = 0;
  for (const [name, keys, rule] of vocabularies) {
    const path = folder.file('vocabulary.gguf');
    writeFileSync(path, ggufBytes({ keys }));
    const tokenizer = await openTokenizer(await readGguf(path));
    const libllama = libllamaVocabulary(path);
    const ids = idsOf(keys);
    for (let round = 0; round < rounds; round++) {
      const text = randomText(prng, rule);
      const parseSpecial = prng.between(0, 1) === 1;
      const where = `${name}, round ${round}, parseSpecial ${parseSpecial}`;
      const actual = partsOf(tokenizer.encode(text, { addSpecial: false, parseSpecial }), ids);
      const expected = partsOf(libllama.tokenize(text, parseSpecial), ids);
      expect(
        actual.map(({ special }) => special),
        where,
      ).toEqual(expected.map(({ special }) => special));
      for (const [i, { tokens }] of expected.entries()) {
        const part = tokenizer.decode(tokens);
        if (cutLongRuns(part, rule).length > 0) expect(tokenizer.decode(actual[i]!.tokens) === part, where).toBe(true);
        else expect(sameTokens(actual[i]!.tokens, tokens), where).toBe(true);
        if (part.length > max - 50 && cutLongRuns(part, rule).length === 0) uncutCount++;
      }
    }
    libllama.close();
    tokenizer.close();
  }
  expect(uncutCount).toBeGreaterThan(0);
});

function idsOf(keys: Keys): Set<number> {
  const value = keys.find(([key]) => key === 'tokenizer.ggml.tokens')![1];
  const texts = 'strings' in value ? value.strings : [];
  return new Set(special.map(([text]) => texts.indexOf(text)));
}

/** The tokens up to each special token. */
function partsOf(tokens: Int32Array, special: ReadonlySet<number>) {
  const parts: { readonly tokens: Int32Array; readonly special: number | undefined }[] = [];
  let start = 0;
  for (const [at, id] of tokens.entries()) {
    if (!special.has(id)) continue;
    parts.push({ tokens: tokens.slice(start, at), special: id });
    start = at + 1;
  }
  return [...parts, { tokens: tokens.slice(start), special: undefined }];
}

const sameTokens = (one: Int32Array, other: Int32Array): boolean =>
  one.length === other.length && Buffer.compare(new Uint8Array(one.buffer), new Uint8Array(other.buffer)) === 0;

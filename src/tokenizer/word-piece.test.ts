/** Tokens of BERT's vocabularies, as Hugging Face's tokenizers compute them (`tools/word-piece/record.py`). */
import { readFileSync, writeFileSync } from 'node:fs';
import { afterAll, describe, expect, it } from 'vitest';
import { type GgufFieldValue, ggufBytes } from '../../test/support/gguf-bytes.ts';
import { temporaryFolder } from '../../test/support/tiny-model.ts';
import { readGguf } from '../ggml/gguf.ts';
import type { Tokenizer } from './contract.ts';
import { openTokenizer } from './llama-tokenizer.ts';

interface Recorded {
  readonly vocabulary: readonly string[];
  /** The first tokens are control tokens. */
  readonly control: number;
  readonly texts: readonly string[];
  readonly results: readonly {
    readonly lowercase: boolean;
    readonly strip_accents: boolean | null;
    readonly tokens: readonly (readonly number[])[];
  }[];
}

const recorded = JSON.parse(readFileSync('test/data/word-piece-tokens.json', 'utf8')) as Recorded;
const folder = temporaryFolder();
afterAll(() => folder.remove());

async function open(
  keys: readonly (readonly [string, GgufFieldValue])[],
  tokens = recorded.vocabulary,
): Promise<Tokenizer> {
  const path = folder.file('word-piece.gguf');
  const ids = ['padding', 'unknown', 'bos', 'seperator', 'mask'];
  const [normal, control, userDefined] = [1, 3, 4];
  const types = tokens.map((_, id) => (id < recorded.control ? control : normal));
  types.fill(userDefined, recorded.vocabulary.length);
  const file = ggufBytes({
    keys: [
      ['general.architecture', { string: 'bert' }],
      ['tokenizer.ggml.model', { string: 'bert' }],
      ['tokenizer.ggml.tokens', { strings: tokens }],
      ['tokenizer.ggml.token_type', { i32s: types }],
      ...ids.map((name, id) => [`tokenizer.ggml.${name}_token_id`, { u32: id }] as const),
      ...keys,
    ],
  });
  writeFileSync(path, file);
  return openTokenizer(await readGguf(path));
}

describe.each(recorded.results)('with lowercase $lowercase and strip_accents $strip_accents', (options) => {
  it('each text has the tokens of Hugging Face’s tokenizers, on both threads', async () => {
    const { lowercase, strip_accents: stripAccents, tokens } = options;
    const tokenizer = await open([
      ['tokenizer.ggml.normalizer.lowercase', { bool: lowercase }],
      ...(stripAccents === null ? [] : [['tokenizer.ggml.normalizer.strip_accents', { bool: stripAccents }] as const]),
    ]);
    const wanted = { addSpecial: false, parseSpecial: true };
    for (const [i, text] of recorded.texts.entries()) {
      expect([text, ...tokenizer.encode(text, wanted)]).toEqual([text, ...tokens[i]!]);
      expect([...(await tokenizer.encodeInBackground(text, wanted))]).toEqual(tokens[i]);
    }
    tokenizer.close();
  });
});

it('the Korean words for Seoul and for "between" have different tokens', async () => {
  const tokenizer = await open([]);
  expect(tokenizer.encode('서울')).not.toEqual(tokenizer.encode('사이'));
  expect([...tokenizer.encode('x'.repeat(101))]).toEqual([2, 1, 3]);
  tokenizer.close();
});

it('more marks after a letter than are ordered together are removed too', async () => {
  const tokenizer = await open([]);
  const marks = '\u0301\u0334'.repeat(1001);
  expect(tokenizer.encode(`fox${marks} fox`)).toEqual(tokenizer.encode('fox fox'));
  tokenizer.close();
});

it('names of control tokens are text without parseSpecial, and tokens that users added are always tokens', async () => {
  const tokenizer = await open([], [...recorded.vocabulary, '\u2581<sql>']);
  const encode = (text: string): number[] => [...tokenizer.encode(text, { addSpecial: false })];
  expect(encode('[MASK]')).toEqual([...encode('['), ...encode('mask'), ...encode(']')]);
  expect(encode('fox <sql>')).toEqual([...encode('fox'), recorded.vocabulary.length]);
  tokenizer.close();
});

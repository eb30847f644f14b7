/**
 * Encodes and decodes random texts with byte-level vocabularies. Decoding must return the same text, one token at a
 * time and all at once. No text becomes a control token unless the caller sets `parseSpecial`.
 *
 * Does not cover SentencePiece (its examples are in llama-tokenizer.test.ts).
 */
import { afterAll, beforeAll, expect, it } from 'vitest';
import { inLongForm } from '../../test/support/long-form.ts';
import { temporaryFolder, writeTinyModel } from '../../test/support/tiny-model.ts';
import { Prng } from '../base/prng.ts';
import { readGguf } from '../ggml/gguf.ts';
import type { Tokenizer } from './contract.ts';
import { openTokenizer } from './llama-tokenizer.ts';

const seed = Number(process.env.KVASIR_SEED ?? 20261120);
const rounds = Number(process.env.KVASIR_FUZZ_ROUNDS ?? inLongForm(2000, 500));
const folder = temporaryFolder();
afterAll(() => folder.remove());

let tokenizers: readonly Tokenizer[] = [];
beforeAll(async () => {
  tokenizers = await Promise.all(
    (['llama', 'qwen2'] as const).map(async (architecture) => {
      const path = folder.file(`${architecture}.gguf`);
      await writeTinyModel(path, { architecture, type: 'Q8_0', layers: 1, vocab: 1000 });
      return openTokenizer(await readGguf(path));
    }),
  );
});
afterAll(() => {
  for (const tokenizer of tokenizers) tokenizer.close();
});

const fragments = ['<|im_start|>', '<|im_end|>', '<|endoftext|>', '<|', '|>', ' the', '\r\n', '\0', '\uFEFF', '\u200d'];

/** Any JavaScript string, also with lone surrogates. */
function randomText(prng: Prng): string {
  let text = '';
  for (let i = prng.between(0, 40); i > 0; i--) {
    const kind = prng.between(0, 6);
    if (kind === 0) text += prng.pick(fragments);
    else if (kind === 1) text += String.fromCodePoint(prng.between(0x10000, 0x10ffff));
    else if (kind === 2) text += String.fromCharCode(prng.between(0, 0xffff));
    else if (kind === 3) text += prng.pick(['é', 'ü', '日', '本', '🙂', 'ﬁ', 'İ', '\u0301', '\u00a0']);
    else text += String.fromCharCode(prng.between(0x20, 0x7e));
  }
  return text;
}

it(`decoding the tokens of a text returns the text (seed ${seed})`, () => {
  const prng = new Prng(seed);
  for (let round = 0; round < rounds; round++) {
    const text = randomText(prng);
    // Lone surrogates become U+FFFD.
    const expected = Buffer.from(text).toString();
    for (const tokenizer of tokenizers) {
      const where = `round ${round}: ${JSON.stringify(text)}`;
      const plain = tokenizer.encode(text, { addSpecial: false });
      expect(tokenizer.decode(plain), where).toBe(expected);
      expect(
        [...plain].some((id) => tokenizer.isControl(id)),
        where,
      ).toBe(false);
      const bytes = Buffer.concat(Array.from(plain, (id) => tokenizer.tokenBytes(id)));
      expect(bytes.equals(Buffer.from(expected)), where).toBe(true);
      const parsed = tokenizer.encode(text, { addSpecial: false, parseSpecial: true });
      expect(tokenizer.decode(parsed, { skipSpecialTokens: false }), where).toBe(expected);
      const withBos = tokenizer.encode(text);
      expect(tokenizer.decode(withBos), where).toBe(expected);
    }
  }
});

/** Tokens of 2,000 texts, as Hugging Face's tokenizers compute them from the same vocabularies (`tools/real-models`). */
import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { checksumOf, parsesSpecial, textCount, textsToTokenize } from '../../scripts/real-models/texts.ts';
import { readGguf } from '../../src/ggml/gguf.ts';
import { openTokenizer } from '../../src/tokenizer/llama-tokenizer.ts';
import { needs } from '../support/needs.ts';
import { modelsToTest, realModel } from '../support/real-models.ts';

const expected = JSON.parse(readFileSync('test/real-models/expected-tokens.json', 'utf8')) as Record<string, string>;

function checksumsFor(name: string): Uint32Array {
  const bytes = Uint8Array.from(Buffer.from(expected[name]!, 'base64'));
  return new Uint32Array(bytes.buffer);
}

for (const { name, path, isThere, reason } of [...modelsToTest, realModel('minilm')])
  describe(`the tokenizer of ${name}`, needs(isThere, reason), () => {
    it(`gives the tokens of ${textCount} texts`, async () => {
      const tokenizer = await openTokenizer(await readGguf(path));
      const checksums = checksumsFor(name);
      const differing = textsToTokenize().filter((text, index) => {
        const tokens = tokenizer.encode(text, { addSpecial: false, parseSpecial: parsesSpecial(index) });
        return checksumOf(tokens) !== checksums[index];
      });
      tokenizer.close();
      expect(checksums).toHaveLength(textCount);
      expect(differing).toEqual([]);
    });
  });

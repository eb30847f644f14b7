/**
 * `node dist/scripts/compare-tokens.js PYTHON MODEL.gguf COUNT` compares the tokens of COUNT texts of all scripts with those of Hugging
 * Face's tokenizers on the same vocabulary, and shows the texts that differ. PYTHON has the packages of
 * `tools/real-models/requirements.txt`.
 */
import { assert } from '../src/base/assert.ts';
import { readGguf } from '../src/ggml/gguf.ts';
import { openTokenizer } from '../src/tokenizer/llama-tokenizer.ts';
import { parsesSpecial, textsToTokenize } from './real-models/texts.ts';
import { tokensByPython } from './real-models/tools.ts';

const [python, path, count] = process.argv.slice(2);
assert(python !== undefined && path !== undefined, 'give PYTHON MODEL.gguf COUNT');
const texts = textsToTokenize(Number(count ?? 20_000));
const expected = tokensByPython(python, path, texts);
const tokenizer = await openTokenizer(await readGguf(path));
let tokenCount = 0;
const differing = texts.filter((text, index) => {
  const tokens = tokenizer.encode(text, { addSpecial: false, parseSpecial: parsesSpecial(index) });
  tokenCount += tokens.length;
  return tokens.join() !== expected[index]!.join();
});
tokenizer.close();
for (const text of differing.slice(0, 20)) console.log(JSON.stringify(text.slice(0, 200)));
console.log(`${differing.length} of ${texts.length} texts differ (${tokenCount} tokens)`);
process.exitCode = differing.length === 0 ? 0 : 1;

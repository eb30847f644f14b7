import { assert } from '../../src/base/assert.ts';
import { loadNative } from '../../src/ggml/ffi.ts';

/** libllama's own tokens of whole texts. The process ends if a pre-tokenizer overflows the stack. */
export function libllamaVocabulary(path: string) {
  const native = loadNative();
  const model = native.llama_model_load_from_file(path, { ...native.llama_model_default_params(), vocab_only: true });
  assert(model !== 0, `libllama cannot load ${path}`);
  const vocab = native.llama_model_get_vocab(model);
  return {
    tokenize(text: string, parseSpecial: boolean, addSpecial = false): Int32Array {
      const bytes = new TextEncoder().encode(text);
      const tokens = new Int32Array(bytes.length + 16);
      const count = native.llama_tokenize(vocab, bytes, bytes.length, tokens, tokens.length, addSpecial, parseSpecial);
      assert(count >= 0, 'a text has no more tokens than bytes');
      return tokens.slice(0, count);
    },
    close: () => native.llama_model_free(model),
  };
}

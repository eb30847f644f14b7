/** libllama's own graph of a prediction layer, which its library exports for its tools only. */
import koffi from 'koffi';
import { assert } from '../../src/base/assert.ts';
import { loadBackends } from '../../src/ggml/device.ts';
import { loadNative, type RawPtr } from '../../src/ggml/ffi.ts';
import { findNativeLibraries } from '../../src/ggml/native-package.ts';
import { NativeMemory } from '../../src/native/native-memory.ts';

const predicting = 1;

/**
 * The logits of `count` drafts in turn after the tokens. The model computes the tokens, and the layer reads its hidden states of all
 * tokens but the last one.
 */
export function libllamaDrafts(path: string, tokens: readonly number[], count: number): Float32Array[] {
  const native = loadNative();
  loadBackends(native);
  const library = koffi.load(findNativeLibraries().llama);
  const setHidden = library.func('_Z26llama_set_embeddings_nextnP13llama_contextbb', 'void', [
    'uintptr_t',
    'bool',
    'bool',
  ]);
  const hiddenAt = library.func('_Z30llama_get_embeddings_nextn_ithP13llama_contexti', 'uintptr_t', [
    'uintptr_t',
    'int',
  ]);
  const params = { ...native.llama_model_default_params(), n_gpu_layers: 0, load_mtp: true };
  const model = native.llama_model_load_from_file(path, params);
  assert(model !== 0, `libllama loads ${path}: ${native.recentLog().at(-1) ?? ''}`);
  const width = native.llama_model_n_embd(model);
  const vocab = native.llama_vocab_n_tokens(native.llama_model_get_vocab(model));
  const open = (kind: number) => {
    const context = native.llama_init_from_model(model, {
      ...native.llama_context_default_params(),
      ...{
        n_ctx: 256,
        n_batch: 256,
        n_ubatch: 256,
        n_threads: 1,
        n_threads_batch: 1,
        ctx_type: kind,
        flash_attn_type: 1,
      },
    });
    assert(context !== 0, `libllama has a context of kind ${kind}: ${native.recentLog().at(-1) ?? ''}`);
    setHidden(context, true, false);
    return context;
  };
  const batch = native.llama_batch_init(256, 0, 1);
  const states = new NativeMemory(native, 256 * width * 4);
  const view = (pointer: number, bytes: number) => native.memoryAt(pointer as RawPtr, bytes);
  const decode = (context: ReturnType<typeof open>, first: number, some: readonly number[], hidden?: Float32Array) => {
    new Int32Array(view(batch.token, some.length * 4)).set(some);
    new Int32Array(view(batch.pos, some.length * 4)).set(some.map((_, i) => first + i));
    new Int32Array(view(batch.n_seq_id, some.length * 4)).fill(1);
    for (const row of new BigUint64Array(view(batch.seq_id, some.length * 8)))
      new Int32Array(view(Number(row), 4))[0] = 0;
    new Int8Array(view(batch.logits, some.length)).fill(1);
    if (hidden !== undefined) new Float32Array(view(states.address, hidden.byteLength)).set(hidden);
    const embd = hidden === undefined ? batch.embd : states.address;
    const status = native.llama_decode(context, { ...batch, embd: embd as typeof batch.embd, n_tokens: some.length });
    assert(status === 0, `llama_decode returned ${status}: ${native.recentLog().at(-1) ?? ''}`);
    native.llama_synchronize(context);
    return some.map((_, row) => new Float32Array(view(Number(hiddenAt(context, row)), width * 4)).slice());
  };
  const [target, layer] = [open(0), open(predicting)];
  const ofModel = decode(target, 0, tokens);
  let next = tokens.slice(1);
  let hidden = Float32Array.from(ofModel.slice(0, -1).flatMap((row) => [...row]));
  let position = 1;
  const drafts: Float32Array[] = [];
  for (let draft = 0; draft < count; draft++) {
    const ofLayer = decode(layer, position, next, hidden);
    const logits = new Float32Array(view(native.llama_get_logits_ith(layer, -1), vocab * 4)).slice();
    drafts.push(logits);
    position += next.length;
    next = [logits.indexOf(logits.reduce((most, value) => Math.max(most, value)))];
    hidden = ofLayer.at(-1)!;
  }
  native.llama_batch_free(batch);
  for (const context of [target, layer]) native.llama_free(context);
  native.llama_model_free(model);
  return drafts;
}

/** What embedding and reranking models have besides the others: metadata, heads, and vocabularies of their kinds. */
import { traitsOf } from '../../src/ggml/architectures.ts';
import type { GgufPtr, NativeApi } from '../../src/ggml/ffi.ts';
import type { ModelConfig } from '../../src/ggml/model-config.ts';
import type { HeadLayer, PooledHead } from '../../src/ggml/pooled-head.ts';
import type { ModelOptions } from './model-maker.ts';

type EncoderConfig = Pick<ModelConfig, 'isEncoder' | 'bert' | 'pooledHead'>;

/** The inner width of EmbeddingGemma's two matrices after the mean. */
const DENSE_WIDTH = 512;

export function encoderConfig(options: ModelOptions, embedding: number): EncoderConfig {
  const { architecture, isBidirectional = false, head } = options;
  const { bertNetwork: network, hasPositionEmbeddings, isEncoder = isBidirectional } = traitsOf(architecture);
  const hasBias = hasBertBias(options);
  return {
    ...(isEncoder ? { isEncoder } : {}),
    ...(network === undefined
      ? {}
      : {
          bert: {
            network,
            hasUpBias: hasBias,
            hasDownBias: hasBias,
            hasPositions: hasPositionEmbeddings === true,
            tokenTypes: 2,
          },
        }),
    ...(head === undefined ? {} : { pooledHead: headOf(head, embedding, isEncoder) }),
  };
}

/** Nomic's models have no biases. */
export const hasBertBias = ({ architecture }: ModelOptions): boolean => traitsOf(architecture).bertNetwork === 'gelu';

function headOf(head: NonNullable<ModelOptions['head']>, embedding: number, isEncoder: boolean): PooledHead {
  const layer = (name: string, inputs: number, outputs: number, isPlain = true): HeadLayer => ({
    weight: `${name}.weight`,
    bias: isPlain ? undefined : `${name}.bias`,
    ...{ inputs, outputs },
    activation: name === 'cls' ? 'tanh' : 'none',
  });
  if (head === 'dense') {
    const layers = [layer('dense_2', embedding, DENSE_WIDTH), layer('dense_3', DENSE_WIDTH, embedding)];
    return { pooling: 'mean', layers, length: embedding };
  }
  if (head === 'yes or no')
    return { pooling: 'last', layers: [layer('cls.output', embedding, 2)], length: 2, scores: 'softmax' };
  const layers = [layer('cls', embedding, embedding, false), layer('cls.output', embedding, 1, false)];
  return { pooling: isEncoder ? 'cls' : 'last', layers, length: 1, scores: 'one' };
}

export function setEncoderMetadata(native: NativeApi, gguf: GgufPtr, options: ModelOptions, config: ModelConfig): void {
  const key = (name: string): string => `${config.architecture}.${name}`;
  if (config.isEncoder === true) native.gguf_set_val_bool(gguf, key('attention.causal'), false);
  if (config.bert !== undefined) {
    native.gguf_set_val_f32(gguf, key('attention.layer_norm_epsilon'), config.rmsEpsilon);
    native.gguf_set_val_u32(gguf, 'tokenizer.ggml.token_type_count', config.bert.tokenTypes);
  }
  if (options.head === 'dense') {
    const { layers } = config.pooledHead!;
    for (const [i, { inputs, outputs }] of layers.entries()) {
      native.gguf_set_val_u32(gguf, key(`dense_${i + 2}_feat_in`), inputs);
      native.gguf_set_val_u32(gguf, key(`dense_${i + 2}_feat_out`), outputs);
    }
  }
  if (options.head === 'yes or no') native.gguf_set_arr_str(gguf, key('classifier.output_labels'), ['yes', 'no'], 2);
  if (options.rerankTemplate !== undefined)
    native.gguf_set_val_str(gguf, 'tokenizer.chat_template.rerank', options.rerankTemplate);
}

/** The words of tests, besides single letters. */
const words = ['the', 'fox', 'sleep', 'run', 'blue', 'stone', 'river', 'cat', 'dog', 'paris', 'is', 'of', 'caf'];
const endings = ['s', 'ing', 'ed', 'er', 'e'];
const characters = [...'abcdefghijklmnopqrstuvwxyz0123456789.,;:!?-()'];

/**
 * WordPiece: a word begins with U+2581 in GGUF files, and the parts that follow have no mark. `size`: the rest are numbered
 * names, which no text has.
 */
export function setWordPieceVocabulary(native: NativeApi, gguf: GgufPtr, size: number): void {
  const control = ['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]'];
  const plain = [...words, ...characters].map((text) => `\u2581${text}`);
  setTokens(native, gguf, { kind: 'bert', control, plain: [...plain, ...endings, ...characters.slice(0, 36)], size });
  const id = (name: string, value: number): void =>
    native.gguf_set_val_u32(gguf, `tokenizer.ggml.${name}_token_id`, value);
  for (const [i, name] of ['padding', 'unknown', 'bos', 'seperator', 'mask'].entries()) id(name, i);
}

/** Unigram as in XLM-RoBERTa: a text begins and ends with `<s>` and `</s>`. Each token has a score. */
export function setUnigramVocabulary(native: NativeApi, gguf: GgufPtr, size: number): void {
  const control = ['<s>', '<pad>', '</s>', '<unk>'];
  const plain = [...words.map((word) => `\u2581${word}`), '\u2581', ...words, ...endings, ...characters];
  const tokens = setTokens(native, gguf, { kind: 't5', control, plain: [...new Set(plain)], size });
  const float32 = 6;
  // Longer tokens are more probable than their letters.
  const scores = Float32Array.from(tokens, (token) => -12 + 2 * Math.min(4, token.length) - (token.length % 3) / 8);
  native.gguf_set_arr_data(gguf, 'tokenizer.ggml.scores', float32, scores, scores.length);
  const int8 = 1;
  const map = characterMap();
  native.gguf_set_arr_data(gguf, 'tokenizer.ggml.precompiled_charsmap', int8, map, map.length);
  for (const [name, value] of [
    ['bos', 0],
    ['padding', 1],
    ['eos', 2],
    ['unknown', 3],
    ['seperator', 2],
  ] as const)
    native.gguf_set_val_u32(gguf, `tokenizer.ggml.${name}_token_id`, value);
  for (const name of [
    'add_bos_token',
    'add_eos_token',
    'add_sep_token',
    'add_space_prefix',
    'remove_extra_whitespaces',
  ])
    native.gguf_set_val_bool(gguf, `tokenizer.ggml.${name}`, true);
}

/** A map of characters (`character-map.ts`) with one entry: the letter Q becomes q. */
export function characterMap(): Uint8Array<ArrayBuffer> {
  const [root, value, size, letter] = [256, 600, 768, 'Q'.charCodeAt(0)];
  const child = root ^ letter;
  const map = new DataView(new ArrayBuffer(4 + 4 * size + 2));
  const setEntry = (index: number, entry: number): void => map.setUint32(4 + 4 * index, entry >>> 0, true);
  map.setUint32(0, 4 * size, true);
  setEntry(0, root << 10);
  setEntry(child, ((child ^ value) << 10) | (1 << 8) | letter);
  setEntry(value, 1 << 31);
  map.setUint8(4 + 4 * size, 'q'.charCodeAt(0));
  return new Uint8Array(map.buffer);
}

interface TokenLists {
  readonly kind: string;
  readonly control: readonly string[];
  readonly plain: readonly string[];
  readonly size: number;
}

function setTokens(native: NativeApi, gguf: GgufPtr, { kind, control, plain, size }: TokenLists): readonly string[] {
  const known = [...control, ...new Set(plain)];
  const tokens = [...known, ...Array.from({ length: size - known.length }, (_, i) => `[unused${i}]`)];
  // `LLAMA_TOKEN_TYPE_NORMAL`, `_CONTROL`, and `_UNKNOWN`.
  const types = Int32Array.from(tokens, (token, i) => (/unk/i.test(token) && i < 5 ? 2 : i < control.length ? 3 : 1));
  const int32 = 5;
  native.gguf_set_val_str(gguf, 'tokenizer.ggml.model', kind);
  native.gguf_set_arr_str(gguf, 'tokenizer.ggml.tokens', [...tokens], tokens.length);
  native.gguf_set_arr_data(gguf, 'tokenizer.ggml.token_type', int32, types, types.length);
  return tokens;
}

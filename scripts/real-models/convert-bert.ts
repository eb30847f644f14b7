import { createWriteStream } from 'node:fs';
import { type FileHandle, open, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { assertDefined } from '../../src/base/assert.ts';
import { loadNative } from '../../src/ggml/ffi.ts';
import { ggmlTypeNamed, rowBytes } from '../../src/ggml/types.ts';

/** A tensor of a safetensors file: F32 `shape`, slowest dimension first. */
interface SourceTensor {
  readonly shape: readonly number[];
  readonly start: number;
  readonly end: number;
}

/**
 * Writes a BERT model of Hugging Face (`config.json`, `tokenizer.json`, `model.safetensors`, mean pooling) as a GGUF file with F16
 * matrices: the metadata, names and types that llama.cpp's converter writes. Equal input gives equal bytes.
 */
export async function convertBert(folder: string, path: string, name: string): Promise<void> {
  const config = await readJson<BertSettings>(join(folder, 'config.json'));
  const tokenizer = await readJson<TokenizerSettings>(join(folder, 'tokenizer.json'));
  const source = await open(join(folder, 'model.safetensors'));
  try {
    const tensors = await readSafetensors(source);
    const names = tensorNames(config.num_hidden_layers);
    writeHeader(path, { name, config, tokenizer, tensors, names });
    const out = createWriteStream(path, { flags: 'a' });
    for (const [ours, theirs] of names) {
      out.write(
        await contentOf(source, assertDefined(tensors.get(theirs), theirs), typeOf(ours, tensors.get(theirs)!)),
      );
    }
    await new Promise<void>((resolve, reject) => {
      out.once('error', reject);
      out.end(resolve);
    });
  } finally {
    await source.close();
  }
}

interface BertSettings {
  readonly hidden_size: number;
  readonly intermediate_size: number;
  readonly layer_norm_eps: number;
  readonly max_position_embeddings: number;
  readonly num_attention_heads: number;
  readonly num_hidden_layers: number;
  readonly type_vocab_size: number;
}
interface TokenizerSettings {
  readonly model: { readonly vocab: Readonly<Record<string, number>> };
  readonly added_tokens: readonly { readonly id: number; readonly content: string }[];
}

const readJson = async <T>(path: string): Promise<T> => JSON.parse(await readFile(path, 'utf8')) as T;

/** The header, and where the data of each tensor is in the file. */
async function readSafetensors(file: FileHandle): Promise<ReadonlyMap<string, SourceTensor>> {
  const length = Buffer.alloc(8);
  await file.read(length, 0, 8, 0);
  const header = Buffer.alloc(Number(length.readBigUInt64LE()));
  await file.read(header, 0, header.length, 8);
  const entries = JSON.parse(header.toString()) as Record<string, { shape: number[]; data_offsets: [number, number] }>;
  const base = 8 + header.length;
  return new Map(
    Object.entries(entries)
      .filter(([name]) => name !== '__metadata__')
      .map(
        ([
          name,
          {
            shape,
            data_offsets: [from, to],
          },
        ]) => [name, { shape, start: base + from, end: base + to }],
      ),
  );
}

/** Names of GGUF and of Hugging Face. */
function tensorNames(layers: number): readonly (readonly [string, string])[] {
  const both = (ours: string, theirs: string) =>
    ['weight', 'bias'].map((part) => [`${ours}.${part}`, `${theirs}.${part}`] as const);
  return [
    ['token_embd.weight', 'embeddings.word_embeddings.weight'],
    ['position_embd.weight', 'embeddings.position_embeddings.weight'],
    ['token_types.weight', 'embeddings.token_type_embeddings.weight'],
    ...both('token_embd_norm', 'embeddings.LayerNorm'),
    ...Array.from({ length: layers }, (_, layer) => {
      const [ours, theirs] = [`blk.${layer}`, `encoder.layer.${layer}`];
      return [
        ...both(`${ours}.attn_q`, `${theirs}.attention.self.query`),
        ...both(`${ours}.attn_k`, `${theirs}.attention.self.key`),
        ...both(`${ours}.attn_v`, `${theirs}.attention.self.value`),
        ...both(`${ours}.attn_output`, `${theirs}.attention.output.dense`),
        ...both(`${ours}.attn_output_norm`, `${theirs}.attention.output.LayerNorm`),
        ...both(`${ours}.ffn_up`, `${theirs}.intermediate.dense`),
        ...both(`${ours}.ffn_down`, `${theirs}.output.dense`),
        ...both(`${ours}.layer_output_norm`, `${theirs}.output.LayerNorm`),
      ];
    }).flat(),
  ];
}

/** The tables of positions and types are small, and libllama has no operation for them in F16. */
function typeOf(name: string, { shape }: SourceTensor) {
  const isF16 = shape.length === 2 && !/^(position_embd|token_types)/.test(name);
  return assertDefined(ggmlTypeNamed(isF16 ? 'F16' : 'F32'), 'a type of ggml');
}

interface Header {
  readonly name: string;
  readonly config: BertSettings;
  readonly tokenizer: TokenizerSettings;
  readonly tensors: ReadonlyMap<string, SourceTensor>;
  readonly names: readonly (readonly [string, string])[];
}

function writeHeader(path: string, { name, config, tokenizer, tensors, names }: Header): void {
  const native = loadNative();
  const gguf = native.gguf_init_empty();
  const bytes = native.ggml_tensor_overhead() * (names.length + 1);
  const context = native.ggml_init({ mem_size: bytes, mem_buffer: 0, no_alloc: true });
  const u32 = (key: string, value: number): void => native.gguf_set_val_u32(gguf, key, value);
  native.gguf_set_val_str(gguf, 'general.architecture', 'bert');
  native.gguf_set_val_str(gguf, 'general.name', name);
  u32('bert.block_count', config.num_hidden_layers);
  u32('bert.context_length', config.max_position_embeddings);
  u32('bert.embedding_length', config.hidden_size);
  u32('bert.feed_forward_length', config.intermediate_size);
  u32('bert.attention.head_count', config.num_attention_heads);
  native.gguf_set_val_f32(gguf, 'bert.attention.layer_norm_epsilon', config.layer_norm_eps);
  native.gguf_set_val_bool(gguf, 'bert.attention.causal', false);
  const meanPooling = 1;
  u32('bert.pooling_type', meanPooling);
  const control = new Map(tokenizer.added_tokens.map(({ id, content }) => [id, content]));
  const tokens: string[] = [];
  // The first part of a word has a mark, and the others have none.
  for (const [text, id] of Object.entries(tokenizer.model.vocab))
    tokens[id] = control.has(id) ? text : text.startsWith('##') ? text.slice(2) : `\u2581${text}`;
  const types = Int32Array.from(tokens, (_, id) => (control.has(id) ? 3 : 1));
  const int32 = 5;
  native.gguf_set_val_str(gguf, 'tokenizer.ggml.model', 'bert');
  u32('tokenizer.ggml.token_type_count', config.type_vocab_size);
  native.gguf_set_arr_str(gguf, 'tokenizer.ggml.tokens', tokens, tokens.length);
  native.gguf_set_arr_data(gguf, 'tokenizer.ggml.token_type', int32, types, types.length);
  const special = { unknown: '[UNK]', seperator: '[SEP]', padding: '[PAD]', cls: '[CLS]', mask: '[MASK]' };
  for (const [kind, text] of Object.entries(special))
    u32(`tokenizer.ggml.${kind}_token_id`, tokenizer.model.vocab[text] ?? 0);
  for (const [kind, isAdded] of Object.entries({ bos: true, eos: true, sep: false }))
    native.gguf_set_val_bool(gguf, `tokenizer.ggml.add_${kind}_token`, isAdded);
  for (const [ours, theirs] of names) {
    const tensor = assertDefined(tensors.get(theirs), theirs);
    const [ne0 = 1, ne1 = 1] = tensor.shape.toReversed();
    const type = typeOf(ours, tensor).id;
    const made =
      tensor.shape.length === 1
        ? native.ggml_new_tensor_1d(context, type, ne0)
        : native.ggml_new_tensor_2d(context, type, ne0, ne1);
    native.ggml_set_name(made, ours);
    native.gguf_add_tensor(gguf, made);
  }
  const isWritten = native.gguf_write_to_file(gguf, path, true);
  native.gguf_free(gguf);
  native.ggml_free(context);
  if (!isWritten) throw new Error(`cannot write ${path}`);
}

const ALIGNMENT = 32;

/** The data of a tensor in its type, padded. */
async function contentOf(
  file: FileHandle,
  { shape, start, end }: SourceTensor,
  type: ReturnType<typeof typeOf>,
): Promise<Uint8Array> {
  const values = new Float32Array((end - start) / 4);
  await file.read(new Uint8Array(values.buffer), 0, values.byteLength, start);
  const columns = shape.at(-1) ?? 1;
  const rows = values.length / columns;
  const bytes = rows * rowBytes(type, columns);
  const content = new Uint8Array(Math.ceil(bytes / ALIGNMENT) * ALIGNMENT);
  loadNative().ggml_quantize_chunk(type.id, values, content, 0, rows, columns, null);
  return content;
}

/** Writes GGUF files byte by byte, also invalid ones: independent of the reader. */
import { makeVocabulary } from '../../bench/make-model/vocabulary-maker.ts';

export type GgufFieldValue =
  | { readonly u32: number }
  | { readonly f32: number }
  | { readonly bool: boolean }
  | { readonly string: string }
  | { readonly strings: readonly string[] }
  | { readonly i32s: readonly number[] }
  | { readonly f32s: readonly number[] };

export interface GgufBytesTensor {
  readonly name: string;
  readonly shape: readonly (number | bigint)[];
  readonly type?: number;
  readonly offset?: number;
  readonly bytes?: number;
}

export interface GgufBytesOptions {
  readonly magic?: string;
  readonly version?: number;
  readonly tensorCount?: bigint;
  readonly keyCount?: bigint;
  readonly keys?: readonly (readonly [key: string, value: GgufFieldValue | Uint8Array])[];
  readonly tensors?: readonly GgufBytesTensor[];
  readonly alignment?: number;
  /** Bytes after the last tensor's padding. */
  readonly garbage?: number;
}

export const u32 = (value: number): Buffer => {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32LE(value);
  return bytes;
};
export const u64 = (value: number | bigint): Buffer => {
  const bytes = Buffer.alloc(8);
  bytes.writeBigUInt64LE(BigInt(value));
  return bytes;
};
const f32 = (value: number): Buffer => {
  const bytes = Buffer.alloc(4);
  bytes.writeFloatLE(value);
  return bytes;
};
export const text = (value: string): Buffer => Buffer.concat([u64(Buffer.byteLength(value)), Buffer.from(value)]);

export function ggufBytes(options: GgufBytesOptions): Buffer {
  const { keys = [], tensors = [], alignment = 32 } = options;
  const parts: Uint8Array[] = [
    Buffer.from(options.magic ?? 'GGUF'),
    u32(options.version ?? 3),
    u64(options.tensorCount ?? tensors.length),
    u64(options.keyCount ?? keys.length),
  ];
  for (const [key, value] of keys) parts.push(text(key), value instanceof Uint8Array ? value : field(value));
  let end = 0;
  const data: Buffer[] = [];
  for (const tensor of tensors) {
    const elements = tensor.shape.reduce<number>((product, length) => product * Number(length), 1);
    const bytes = Buffer.alloc(tensor.bytes ?? elements * 4, 7);
    parts.push(text(tensor.name), u32(tensor.shape.length), ...tensor.shape.map(u64));
    parts.push(u32(tensor.type ?? 0), u64(tensor.offset ?? end));
    const padding = Buffer.alloc(padTo(bytes.length, alignment));
    data.push(bytes, padding);
    end += bytes.length + padding.length;
  }
  const header = Buffer.concat(parts);
  const gap = tensors.length === 0 ? 0 : padTo(header.length, alignment);
  return Buffer.concat([header, Buffer.alloc(gap), ...data, Buffer.alloc(options.garbage ?? 0)]);
}

const padTo = (length: number, alignment: number): number => (alignment - (length % alignment)) % alignment;

function field(value: GgufFieldValue): Buffer {
  if ('u32' in value) return Buffer.concat([u32(4), u32(value.u32)]);
  if ('bool' in value) return Buffer.concat([u32(7), Buffer.from([value.bool ? 1 : 0])]);
  if ('string' in value) return Buffer.concat([u32(8), text(value.string)]);
  if ('strings' in value) {
    return Buffer.concat([u32(9), u32(8), u64(value.strings.length), ...value.strings.map(text)]);
  }
  if ('i32s' in value) {
    return Buffer.concat([u32(9), u32(5), u64(value.i32s.length), ...value.i32s.map((n) => u32(n >>> 0))]);
  }
  if ('f32s' in value) return Buffer.concat([u32(9), u32(6), u64(value.f32s.length), ...value.f32s.map(f32)]);
  return Buffer.concat([u32(6), f32(value.f32)]);
}

/** Tokens of a vocabulary with GGUF's types: 2 unknown, 3 control, 4 user-defined. */
export type SpecialTexts = readonly (readonly [text: string, type: number])[];

/**
 * A vocabulary as in SentencePiece models (Llama 2, Mistral): pieces with scores, and a token for each byte. `special`:
 * further tokens.
 */
export function sentencePieceKeys(special: SpecialTexts = []): NonNullable<GgufBytesOptions['keys']> {
  const pieces = ['▁', 'f', 'o', 'x', 'fo', 'fox', '▁fox', '▁the', 't', 'h', 'e', 'th', 'he', 'the', '▁t', '▁f', '▁fo'];
  const byteNames = Array.from({ length: 256 }, (_, byte) => `<0x${byte.toString(16).toUpperCase().padStart(2, '0')}>`);
  const begin = ['<unk>', '<s>', '</s>'];
  const added = special.filter(([text]) => !begin.includes(text));
  const tokens = [...begin, ...byteNames, ...pieces, ...added.map(([text]) => text)];
  const ownCount = tokens.length - added.length;
  const type = (id: number): number => added[id - ownCount]?.[1] ?? (id === 0 ? 2 : id < 3 ? 3 : id < 259 ? 6 : 1);
  return [
    ['general.architecture', { string: 'llama' }],
    ['tokenizer.ggml.model', { string: 'llama' }],
    ['tokenizer.ggml.tokens', { strings: tokens }],
    ['tokenizer.ggml.scores', { f32s: tokens.map((_, id) => (id < 259 ? 0 : 259 - id)) }],
    ['tokenizer.ggml.token_type', { i32s: tokens.map((_, id) => type(id)) }],
    ['tokenizer.ggml.bos_token_id', { u32: 1 }],
    ['tokenizer.ggml.eos_token_id', { u32: 2 }],
  ];
}

/** A byte-level BPE vocabulary with a pre-tokenizer; undefined: the file names none. `special`: further tokens. */
export function byteLevelKeys(
  pre: string | undefined,
  special: SpecialTexts = [],
): NonNullable<GgufBytesOptions['keys']> {
  const { tokens, types, merges, endOfText } = makeVocabulary(400);
  return [
    ['general.architecture', { string: 'llama' }],
    ['tokenizer.ggml.model', { string: 'gpt2' }],
    ...(pre === undefined ? [] : [['tokenizer.ggml.pre', { string: pre }] as const]),
    ['tokenizer.ggml.tokens', { strings: [...tokens, ...special.map(([text]) => text)] }],
    ['tokenizer.ggml.token_type', { i32s: [...types, ...special.map(([, type]) => type)] }],
    ['tokenizer.ggml.merges', { strings: merges }],
    ['tokenizer.ggml.bos_token_id', { u32: endOfText }],
    ['tokenizer.ggml.add_bos_token', { bool: true }],
  ];
}

/** A vocabulary as in Gemma 4: merges of characters, with `▁` for a space, and a token for each byte. `special`: further tokens. */
export function gemma4Keys(special: SpecialTexts = []): NonNullable<GgufBytesOptions['keys']> {
  const byteNames = Array.from({ length: 256 }, (_, byte) => `<0x${byte.toString(16).toUpperCase().padStart(2, '0')}>`);
  const begin = ['<pad>', '<eos>', '<bos>', '<unk>'];
  const lines = ['\n', '\n\n', '\n\n\n'];
  const letters = [...'▁foxthequickbrwn<>|日本ü'].filter((letter, at, all) => all.indexOf(letter) === at);
  const merges = ['▁ t', '▁t h', '▁th e', 'f o', 'fo x', '▁ fox', '▁ ▁', '▁▁ ▁▁', '日 本'];
  const merged = merges.map((merge) => merge.replace(' ', ''));
  const known = [...begin, ...merged];
  const added = special.filter(([text]) => !known.includes(text));
  const tokens = [...begin, ...byteNames, ...lines, ...letters, ...merged, ...added.map(([text]) => text)];
  const ownCount = tokens.length - added.length;
  const type = (id: number): number => added[id - ownCount]?.[1] ?? (id === 3 ? 2 : id < 3 ? 3 : id < 260 ? 6 : 1);
  return [
    ['general.architecture', { string: 'gemma4' }],
    ['tokenizer.ggml.model', { string: 'gemma4' }],
    ['tokenizer.ggml.tokens', { strings: tokens }],
    ['tokenizer.ggml.scores', { f32s: tokens.map(() => -1000) }],
    ['tokenizer.ggml.token_type', { i32s: tokens.map((_, id) => type(id)) }],
    ['tokenizer.ggml.merges', { strings: merges }],
    ['tokenizer.ggml.eos_token_id', { u32: 1 }],
    ['tokenizer.ggml.bos_token_id', { u32: 2 }],
    ['tokenizer.ggml.add_bos_token', { bool: true }],
    ['tokenizer.ggml.add_space_prefix', { bool: false }],
  ];
}

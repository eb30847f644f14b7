/**
 * Reads LoRA adapters in llama.cpp's form: a GGUF file with a pair of matrices for each matrix of the model that the
 * adapter changes. With x a row of the matrix's input, the result gets the addition `scale * B(A x)`.
 */
import { createHash } from 'node:crypto';
import { cpus } from 'node:os';
import { defineError, KvasirError } from '../base/errors.ts';
import { notGguf } from './errors.ts';
import { digestFile } from './file-digest.ts';
import { type FileState, isSameState } from './file-state.ts';
import { type GgufFile, type GgufTensor, readGguf } from './gguf.ts';
import type { ModelConfig } from './model-config.ts';
import { matricesIn } from './model-tensors.ts';
import { expectedTensors, hasOnlyF32 } from './tensor-list.ts';

export const adapterUnusable = defineError(
  'KVASIR_ADAPTER_UNUSABLE',
  'The LoRA adapter {path} cannot be used: {problem}. Give an adapter that was made for this model, as a GGUF file of convert_lora_to_gguf.py.',
  400,
);

/** The largest rank of an adapter by default. */
export const adapterRankMax = 256;

/** A pair of an adapter, for one matrix of the model. */
export interface AdapterPair {
  /** Of the model's matrix `[inputs, outputs]`. */
  readonly name: string;
  /** `[inputs, rank]`. Pairs for parts of a fused matrix share it. Of token embeddings `[rank, vocabulary]`: a row for each token. */
  readonly a: GgufTensor;
  /** `[rank, outputs]`. */
  readonly b: GgufTensor;
  readonly scale: number;
}

/** An adapter file whose content fits the model. */
export interface AdapterFile {
  readonly file: GgufFile;
  readonly pairs: readonly AdapterPair[];
}

/** From which a rank reads an adapter: plain data, which can be sent to a worker process. */
export interface AdapterSource {
  readonly path: string;
  /** Of the content: the adapter's name in plans and in the keys of blocks. */
  readonly digest: string;
  readonly sha256: string;
  /** Times the scale of the file. */
  readonly scale: number;
  /** The state of the file to which the digest belongs. */
  readonly state: FileState;
}

interface AdapterLimits {
  readonly rankMax: number;
  /** Times the scale of the file. */
  readonly scale: number;
}

/** The model that an adapter changes. */
export interface AdapterBase {
  readonly file: Pick<GgufFile, 'metadata' | 'tensors'>;
  readonly config: ModelConfig;
}

/** Its rows are read, not multiplied. A pair has a row for each token. */
export const embeddingName = 'token_embd.weight';
const headName = 'output.weight';

/** The types of `convert_lora_to_gguf.py`. */
const adapterTypes: readonly string[] = ['F32', 'F16', 'BF16', 'Q8_0'];

/** Checks an adapter file and hashes it. @throws KvasirError `adapterUnusable`. */
export async function findAdapter(
  path: string,
  base: AdapterBase,
  { rankMax = adapterRankMax, scale = 1 }: Partial<AdapterLimits> = {},
): Promise<AdapterSource> {
  return refusing(path, async () => {
    const { file, pairs } = readPairs(await readGguf(path), base, { rankMax, scale });
    const { sha256, state } = await digestFile(path);
    if (!isSameState(state, file.parts[0]!.state)) throw unusable(path, 'it changed while it was read');
    return { path, sha256, state, scale, digest: digestOf(sha256, pairs, scale) };
  });
}

/** Reads the header of an adapter again, in any process. @throws KvasirError `adapterUnusable`, also if the content is another one. */
export async function openAdapter(
  { path, sha256, state, scale }: AdapterSource,
  base: AdapterBase,
): Promise<AdapterFile> {
  return refusing(path, async () => {
    const adapter = readPairs(await readGguf(path), base, { rankMax: Number.POSITIVE_INFINITY, scale });
    // A copy has another state and the same content.
    const isSame = isSameState(adapter.file.parts[0]!.state, state) || (await digestFile(path)).sha256 === sha256;
    if (!isSame) throw unusable(path, 'its content has changed since it was loaded');
    return adapter;
  });
}

export const unusable = (path: string, problem: string): KvasirError => adapterUnusable({ path, problem });

/** Errors of files are made for model files: status 500 and another remedy. */
async function refusing<T>(path: string, read: () => Promise<T>): Promise<T> {
  try {
    return await read();
  } catch (error) {
    if (!(error instanceof KvasirError) || error.code === adapterUnusable.definition.code) throw error;
    // The message has the first bytes of the file, which clients that only name it must not read.
    if (error.code === notGguf.definition.code) throw unusable(path, 'it is not a GGUF file');
    throw adapterUnusable({ path, problem: error.message }, error);
  }
}

/** Kvasir's kernel sums F32 products of rows whose length is a multiple of it. */
const kernelInputs = 32;

/**
 * Products with other matrices are computed by ggml, whose bits depend on the CPU. Then the digest does too, so that machines with
 * different CPUs share no KV of the adapter.
 */
function digestOf(sha256: string, pairs: readonly AdapterPair[], scale: number): string {
  const isSameEverywhere = pairs.every(({ name, a }) => name === embeddingName || a.ne[0] % kernelInputs === 0);
  if (isSameEverywhere && scale === 1) return sha256;
  const machine = isSameEverywhere ? '' : ` ${process.arch} ${cpus()[0]?.model}`;
  return createHash('sha256')
    .update(`${sha256}${machine}${scale === 1 ? '' : ` scale ${scale}`}`)
    .digest('hex');
}

/** @throws KvasirError `adapterUnusable`, and errors of metadata. */
function readPairs(file: GgufFile, base: AdapterBase, { rankMax, scale: factor }: AdapterLimits): AdapterFile {
  const { path, metadata } = file;
  const { architecture } = base.config;
  const expect = (key: string, wanted: string): void => {
    const found = metadata.string(key);
    if (found !== wanted) throw unusable(path, `its ${key} is ${found ?? 'missing'}, expected ${wanted}`);
  };
  expect('general.type', 'adapter');
  expect('general.architecture', architecture);
  expect('adapter.type', 'lora');
  if (metadata.has('adapter.alora.invocation_tokens'))
    throw unusable(path, 'it applies only after certain tokens (aLoRA), which is not supported');
  const alpha = metadata.f32('adapter.lora.alpha') ?? 0;
  const pairs: AdapterPair[] = [];
  const shapes = expectedTensors(base.config);
  for (const [name, { a, b }] of pairsOf(file)) {
    const rank = b.ne[0];
    checkPair(path, name, { a, b, rankMax });
    // As in llama.cpp: without alpha, the scale is 1.
    const scale = factor * (alpha === 0 ? 1 : alpha / rank);
    for (const part of matricesIn(base.file, { ...b, name })) {
      checkTarget(path, part.name, shapes);
      const [inputs, outputs] = base.file.tensors.get(part.name)!.ne;
      const fits =
        part.name === embeddingName
          ? part.ne[1] === inputs && a.ne[1] === outputs
          : a.ne[0] === inputs && part.ne[1] === outputs;
      if (!fits) {
        const found = `[${a.ne[0]}, ${a.ne[1]}] and [${rank}, ${part.ne[1]}]`;
        throw unusable(
          path,
          `its matrices for ${name} are ${found}, and ${part.name} of the model is [${inputs}, ${outputs}]`,
        );
      }
      pairs.push({ name: part.name, a, b: part, scale });
    }
  }
  if (pairs.length === 0) throw unusable(path, 'it has no matrices');
  return { file, pairs };
}

interface FoundPair {
  readonly a: GgufTensor;
  readonly b: GgufTensor;
}

/** By the name of the matrix that the pair changes. */
function pairsOf({ path, tensors }: GgufFile): Map<string, FoundPair> {
  const found = new Map<string, Partial<FoundPair>>();
  for (const [full, tensor] of tensors) {
    const [, name, part] = /^(.+)\.lora_([ab])$/.exec(full) ?? [];
    if (name === undefined && /norm\.(weight|bias)$/.test(full))
      throw unusable(
        path,
        `it has the trained norm ${full} (modules_to_save), and norms of adapters are not supported`,
      );
    if (name === undefined) throw unusable(path, `it has the tensor ${full}, which is no matrix of a LoRA adapter`);
    found.set(name, { ...found.get(name), [part!]: tensor });
  }
  const whole = new Map<string, FoundPair>();
  for (const [name, { a, b }] of found) {
    if (a === undefined || b === undefined)
      throw unusable(
        path,
        `it has ${name}.lora_${a === undefined ? 'b' : 'a'} without ${name}.lora_${a === undefined ? 'a' : 'b'}`,
      );
    whole.set(name, { a, b });
  }
  return whole;
}

function checkPair(path: string, name: string, { a, b, rankMax }: FoundPair & { readonly rankMax: number }): void {
  for (const { name: part, type, ne } of [a, b]) {
    if (ne[2] * ne[3] !== 1)
      throw unusable(path, `${part} has matrices of experts, which are not supported in adapters`);
    if (!adapterTypes.includes(type.name))
      throw unusable(path, `${part} is of type ${type.name}; supported: ${adapterTypes.join(', ')}`);
  }
  const rank = b.ne[0];
  if (a.ne[name === embeddingName ? 0 : 1] !== rank)
    throw unusable(
      path,
      `its matrices for ${name} are [${a.ne[0]}, ${a.ne[1]}] and [${rank}, ${b.ne[1]}], so their ranks differ`,
    );
  if (rank > rankMax) throw unusable(path, `${name} has rank ${rank}, and ${rankMax} is the limit (--max-lora-rank)`);
}

/** Adapters may change token embeddings, the output head, and the matrices of layers that each row is multiplied by. */
function checkTarget(path: string, name: string, shapes: ReadonlyMap<string, readonly number[]>): void {
  const shape = shapes.get(name);
  if (shape === undefined) throw unusable(path, `it changes ${name}, which the model does not have`);
  const isMatrix = shape.length === 2 && !hasOnlyF32(name) && !name.endsWith('.ffn_gate_inp.weight');
  if (!isMatrix || !(name.startsWith('blk.') || name === embeddingName || name === headName))
    throw unusable(
      path,
      `it changes ${name}, and adapters are supported only for the matrices of attention and networks, token embeddings and the output head`,
    );
}

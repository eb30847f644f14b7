import { stat } from 'node:fs/promises';
import { byEntries } from '../base/by-name.ts';
import { type GgufFile, readStoredGguf } from './gguf.ts';
import type { GgufValue } from './gguf-metadata.ts';
import type { GgufTensor } from './gguf-tensors.ts';

/** What the header of a model's file says about the model, for people and lists. */
export interface ModelFacts {
  /** Of all parts. */
  readonly fileBytes: number;
  readonly architecture: string;
  readonly parameterCount: number;
  /** Of most weights: `Q4_K_M`. */
  readonly quantization: string;
  /** The metadata. Arrays are null: those of a tokenizer have hundreds of thousands of items. */
  readonly metadata: Readonly<Record<string, string | number | boolean | null>>;
  readonly tensors: readonly { readonly name: string; readonly type: string; readonly shape: readonly number[] }[];
}

/** Facts of files that did not change. The header of a large vocabulary takes a tenth of a second to read. */
const known = new Map<string, { readonly state: string; readonly facts: Promise<ModelFacts | undefined> }>();
const KNOWN_MAX = 256;

/** Undefined: there is no such file, or no model in it. */
export async function modelFacts(path: string): Promise<ModelFacts | undefined> {
  const found = await stat(path).catch(() => undefined);
  if (found === undefined) return undefined;
  const state = `${found.ino} ${found.size} ${found.mtimeMs}`;
  const before = known.get(path);
  if (before?.state === state) return before.facts;
  const facts = readStoredGguf(path)
    .then(factsOf)
    .catch(() => undefined);
  known.delete(path);
  if (known.size === KNOWN_MAX) known.delete(known.keys().next().value!);
  known.set(path, { state, facts });
  return facts;
}

function factsOf({ metadata, tensors, fileBytes }: GgufFile): ModelFacts {
  const architecture = metadata.string('general.architecture') ?? '';
  const all = [...tensors.values()];
  return {
    fileBytes,
    architecture,
    parameterCount: all.reduce((sum, tensor) => sum + elementsOf(tensor), 0),
    quantization: fileTypes.get(metadata.u32('general.file_type') ?? -1) ?? mostUsedType(all),
    metadata: byEntries(Array.from(metadata.entries, ([name, value]) => [name, plain(value)])),
    tensors: all.map(({ name, type, ne }) => ({ name, type: type.name, shape: shapeOf(ne) })),
  };
}

const elementsOf = ({ ne }: GgufTensor): number => ne.reduce((product, length) => product * length, 1);

/** Without the dimensions that are unused. */
const shapeOf = (ne: GgufTensor['ne']): number[] =>
  ne.slice(0, Math.max(1, ne.findLastIndex((length) => length !== 1) + 1));

function mostUsedType(tensors: readonly GgufTensor[]): string {
  const elements = new Map<string, number>();
  for (const tensor of tensors)
    elements.set(tensor.type.name, (elements.get(tensor.type.name) ?? 0) + elementsOf(tensor));
  return [...elements].sort(([, a], [, b]) => b - a)[0]?.[0] ?? 'unknown';
}

function plain(value: GgufValue): string | number | boolean | null {
  if ('elementType' in value) return null;
  if (typeof value.value === 'bigint') return Number(value.value);
  return value.type === 'f32' ? shortest(value.value as number) : value.value;
}

/** With as few digits as its 32 bits need: 0.000001 instead of 9.999999974752427e-7. */
function shortest(value: number): number {
  for (let digits = 6; digits < 9; digits++) {
    const short = Number(value.toPrecision(digits));
    if (Math.fround(short) === value) return short;
  }
  return value;
}

/** llama.cpp's types of files. */
const fileTypes: ReadonlyMap<number, string> = new Map([
  ...['F32', 'F16', 'Q4_0', 'Q4_1', 'MXFP4'].map((name, i) => [i, name] as const),
  ...['Q8_0', 'Q5_0', 'Q5_1', 'Q2_K', 'Q3_K_S', 'Q3_K_M', 'Q3_K_L'].map((name, i) => [7 + i, name] as const),
  ...['Q4_K_S', 'Q4_K_M', 'Q5_K_S', 'Q5_K_M', 'Q6_K'].map((name, i) => [14 + i, name] as const),
  ...['IQ2_XXS', 'IQ2_XS', 'Q2_K_S', 'IQ3_XS', 'IQ3_XXS', 'IQ1_S'].map((name, i) => [19 + i, name] as const),
  ...['IQ4_NL', 'IQ3_S', 'IQ3_M', 'IQ2_S', 'IQ2_M', 'IQ4_XS'].map((name, i) => [25 + i, name] as const),
  ...['IQ1_M', 'BF16'].map((name, i) => [31 + i, name] as const),
  ...['TQ1_0', 'TQ2_0', 'MXFP4', 'NVFP4'].map((name, i) => [36 + i, name] as const),
]);

import { assertDefined } from '../../base/assert.ts';
import { byName } from '../../base/by-name.ts';
import type { ComputeDevice } from '../../ggml/device.ts';
import type { NativeApi, RawPtr } from '../../ggml/ffi.ts';
import type { GgufTensor } from '../../ggml/gguf.ts';
import { type Compiled, type CompileOptions, doWithout, type NativeSource, openNative } from '../../native/compiler.ts';
import { tensorFields } from '../../native/tensor-fields.ts';
import { type AmxOutcome, amxRefusals, cpuHasAmx, formOf, useAmx } from './tile-forms.ts';

/** A single row is quantized on the stack. */
export const inputsMax = 32768;

/** How activations are quantized: inputs that share a scale. Matrices with equal quantization share the result. */
export type ActivationQuantization = 'none' | 'by 32' | 'by 32, with sums' | 'by 256';

/** What is known of a kernel before it is compiled. */
interface Kind {
  readonly file: string;
  readonly headers: readonly string[];
  readonly activations: ActivationQuantization;
  /** Inputs of a block: `BLOCK` in C. */
  readonly blockInputs: number;
}

const shared = [
  'dot.h',
  'dot-neon.h',
  'row-pairs.h',
  'tiles.h',
  'lay-out.h',
  'tile-operations.h',
  'expert-operations.h',
  'amx.h',
  'amx-operations.h',
];
const by32 = {
  headers: [...shared, 'q8-rows.h', 'scale-groups.h', 'q8-matmul.h', 'amx-by-32.h'],
  activations: 'by 32',
  blockInputs: 32,
} as const;
const halves = {
  headers: [...shared, 'half-rows.h', 'half-tiles.h'],
  activations: 'none',
  blockInputs: 16,
} as const;
const nibbles = { ...by32, headers: [...by32.headers, 'nibble-tiles.h'] } as const;
const fiveBits = { ...by32, headers: [...by32.headers, 'bits-of-32.h', 'five-bit-tiles.h'] } as const;
/** Minima are multiplied by sums of activations. */
const withMinima = { activations: 'by 32, with sums' } as const;
/** With the scales of blocks of 256 inputs, and `headers` of the type. */
const by256 = (...headers: readonly string[]) =>
  ({
    headers: [...shared, 'k-rows.h', 'amx-by-256.h', 'block-scales.h', ...headers],
    activations: 'by 256',
    blockInputs: 256,
  }) as const;
const integerScales = (...headers: readonly string[]) => by256('scale-groups.h', 'integer-scales.h', ...headers);
/** By type of weights. */
const kinds: Readonly<Record<string, Kind>> = byName({
  F16: { file: 'f16-tiles.c', ...halves },
  BF16: { file: 'bf16-tiles.c', ...halves },
  Q8_0: { file: 'q8-tiles.c', ...by32 },
  Q4_0: { file: 'q4-tiles.c', ...nibbles },
  Q4_1: { file: 'q41-tiles.c', ...nibbles, ...withMinima },
  Q5_0: { file: 'q5-tiles.c', ...fiveBits },
  Q5_1: { file: 'q51-tiles.c', ...fiveBits, ...withMinima },
  IQ4_NL: { file: 'iq4nl-tiles.c', ...nibbles, headers: [...nibbles.headers, 'iq4-values.h'] },
  MXFP4: { file: 'mxfp4-tiles.c', ...nibbles },
  IQ4_XS: { file: 'iq4xs-tiles.c', ...integerScales('iq4-values.h') },
  Q2_K: { file: 'q2k-tiles.c', ...integerScales('two-bits.h') },
  Q3_K: { file: 'q3k-tiles.c', ...integerScales('two-bits.h', 'bits-of-32.h') },
  Q4_K: { file: 'q4k-tiles.c', ...by256('six-bit-scales.h') },
  Q5_K: { file: 'q5k-tiles.c', ...integerScales('six-bit-scales.h', 'bits-of-32.h') },
  Q6_K: { file: 'q6k-tiles.c', ...integerScales() },
});

/** All forms support the same shapes, because ggml's kernels have other bits: the largest tile has 16 outputs. */
const outputsStep = 16;

/** Whether there is a kernel for a matrix of this type and shape. */
export function hasTileKernel({ type, ne: [inputs, outputs] }: Pick<GgufTensor, 'type' | 'ne'>): boolean {
  const kind = kinds[type.name];
  return kind !== undefined && inputs % kind.blockInputs === 0 && inputs <= inputsMax && outputs % outputsStep === 0;
}

/** The compiled kernel of a type of weights. */
export interface TileKernel {
  readonly activations: ActivationQuantization;
  /** The instructions for which the kernel is compiled: `FORM` in C. */
  readonly form: string;
  readonly sourceDigest: string;
  /** Outputs in a tile. */
  readonly tileOutputs: number;
  /** Bytes of a quantized row. */
  quantizedBytes(inputs: number): number;
  readonly quantizeRows: RawPtr;
  readonly multiply: RawPtr;
  readonly multiplyRow: RawPtr;
  readonly takeRows: RawPtr;
  readonly orderPairs: RawPtr;
  readonly quantizeInOrder: RawPtr;
  readonly multiplyExperts: RawPtr;
  readonly multiplyExpertsOfToken: RawPtr;
  /** On a thread of libuv: lays tiles out in place. */
  tile(matrix: RawPtr, scratch: RawPtr, inputs: number, first: number, end: number): Promise<void>;
}

/** Compiles and loads the kernels for the given types of weights. Types without a kernel are not in the result. */
export async function openTileKernels(
  { native }: ComputeDevice,
  types: Iterable<string>,
  options: CompileOptions,
): Promise<ReadonlyMap<string, TileKernel>> {
  const wanted = new Set(types);
  const hasAmx = await cpuHasAmx();
  const open = async ([type, kind]: [string, Kind]): Promise<[string, TileKernel] | undefined> => {
    try {
      return await openNative(sourceOf(kind), options, (compiled) => {
        reportRefusal(type, useAmx(native, compiled.path, hasAmx), options);
        return [type, kernelOf(native, kind, compiled)];
      });
    } catch (error) {
      const instead =
        "ggml's kernels are used instead, which are slower, and the text may differ from engines that have the kernel.";
      return doWithout(error, `The kernel for ${type} matrices`, instead, options);
    }
  };
  const opened = await Promise.all(Object.entries(kinds).flatMap((entry) => (wanted.has(entry[0]) ? open(entry) : [])));
  return new Map(opened.filter((entry) => entry !== undefined));
}

/** Of all kernels, by type of weights. */
export const tileSources = (): [type: string, source: NativeSource][] =>
  Object.entries(kinds).map(([type, kind]) => [type, sourceOf(kind)]);

const below = (name: string): string => `runner/matmul/${name}`;

/** The source of a type's kernel. */
export const tileKernelSource = (type: string): NativeSource =>
  sourceOf(assertDefined(kinds[type], `a kernel for ${type} matrices`));

function sourceOf({ file, headers }: Kind): NativeSource {
  const definitions = { INPUTS_MAX: inputsMax, ...tensorFields.definitions };
  return { file: below(file), headers: ['native/vector.h', tensorFields.header, ...headers.map(below)], definitions };
}

/** Sends an event if this CPU has AMX and the kernel cannot use it. All forms of a kernel have the same bits. */
function reportRefusal(type: string, outcome: AmxOutcome, { event }: CompileOptions): void {
  if (outcome === 'used' || outcome === 'no form') return;
  event?.(
    `AMX is not used for ${type} matrices: ${amxRefusals[outcome]}. Prompts are slower, and the text is the same.`,
  );
}

function kernelOf(native: NativeApi, { activations }: Kind, { path, sourceDigest }: Compiled): TileKernel {
  const pointer = (name: string): RawPtr => native.functionIn(path, `kvasir_${name}_pointer`, 'raw')();
  const quantizedBytes = native.functionIn(path, 'kvasir_quantized_bytes', 'i64', 'i64');
  return {
    activations,
    form: formOf(native, path),
    sourceDigest,
    tileOutputs: Number(native.functionIn(path, 'kvasir_tile_outputs', 'i64')()),
    quantizedBytes: (inputs) => Number(quantizedBytes(inputs)),
    quantizeRows: pointer('quantize_rows'),
    multiply: pointer('multiply'),
    multiplyRow: pointer('multiply_row'),
    takeRows: pointer('take_rows'),
    orderPairs: pointer('order_pairs'),
    quantizeInOrder: pointer('quantize_in_order'),
    multiplyExperts: pointer('multiply_experts'),
    multiplyExpertsOfToken: pointer('multiply_experts_of_token'),
    tile: native.backgroundFunctionIn(path, 'kvasir_tile', 'void', 'raw', 'raw', 'i64', 'i64', 'i64'),
  };
}

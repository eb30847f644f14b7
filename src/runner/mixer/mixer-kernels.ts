import type { ComputeDevice } from '../../ggml/device.ts';
import type { NativeApi, RawPtr } from '../../ggml/ffi.ts';
import { type Compiled, CompileFailure, type CompileOptions, openNative } from '../../native/compiler.ts';
import { tensorFields } from '../../native/tensor-fields.ts';
import type { ConvolutionShape, DeltaNetShape, MixerShapes, ScanShape } from './mixers.ts';

/** The C kernels of a model's mixers: functions that ggml's threads call. */
export interface MixerKernels {
  readonly convolution?: { readonly convolve: RawPtr };
  readonly scan?: { readonly prepareGates: RawPtr; readonly scan: RawPtr };
  readonly deltaNet?: { readonly prepareGates: RawPtr; readonly deltaNet: RawPtr };
  /** Of all sources. They decide the bits of states on a given CPU. */
  readonly sourceDigest: string;
}

/** Vectors have at most 16 lanes, and four of them are added up side by side. */
const lanesMax = 16;
const together = 4 * lanesMax;

/** Loads the kernels from the cache, or compiles them. Throws `CompileFailure` with the reason. */
export async function loadMixerKernels(
  { native }: Pick<ComputeDevice, 'native'>,
  shapes: MixerShapes,
  options: CompileOptions = {},
): Promise<MixerKernels> {
  const load = <Shape, Kernel>(
    shape: Shape | undefined,
    open: (native: NativeApi, shape: Shape, options: CompileOptions) => Promise<Loaded<Kernel>>,
  ): Promise<Loaded<Kernel> | undefined> =>
    shape === undefined ? Promise.resolve(undefined) : open(native, shape, options);
  const [convolution, scan, deltaNet] = await Promise.all([
    load(shapes.convolution, openConvolution),
    load(shapes.scan, openScan),
    load(shapes.deltaNet, openDeltaNet),
  ]);
  const digests = [convolution, scan, deltaNet].map((loaded) => loaded?.sourceDigest ?? '');
  return {
    ...(convolution === undefined ? {} : { convolution: convolution.kernel }),
    ...(scan === undefined ? {} : { scan: scan.kernel }),
    ...(deltaNet === undefined ? {} : { deltaNet: deltaNet.kernel }),
    sourceDigest: digests.join(' ').trim(),
  };
}

interface Loaded<Kernel> {
  readonly kernel: Kernel;
  readonly sourceDigest: string;
}

const openConvolution = (native: NativeApi, { taps, channels }: ConvolutionShape, options: CompileOptions) => {
  check(channels % lanesMax === 0, `${channels} channels`);
  return open('convolution.c', { TAPS: taps }, options, (pointer) => ({ convolve: pointer('convolve') }), native);
};

const openScan = (native: NativeApi, { headDim, stateSize }: ScanShape, options: CompileOptions) => {
  check(headDim % lanesMax === 0 && stateSize % together === 0, `heads of ${headDim} with states of ${stateSize}`);
  const definitions = { HEAD_DIM: headDim, STATE_SIZE: stateSize };
  const take = (pointer: Pointers) => ({ prepareGates: pointer('gates'), scan: pointer('scan') });
  return open('scan.c', definitions, options, take, native);
};

const openDeltaNet = (native: NativeApi, { headDim }: DeltaNetShape, options: CompileOptions) => {
  check(headDim % together === 0, `heads of ${headDim}`);
  const take = (pointer: Pointers) => ({ prepareGates: pointer('gates'), deltaNet: pointer('delta_net') });
  return open('delta-net.c', { HEAD_DIM: headDim }, options, take, native);
};

function check(isSupported: boolean, found: string): void {
  if (!isSupported) throw new CompileFailure(`it does not support ${found}`);
}

type Pointers = (name: string) => RawPtr;

const ownHeaders = ['mixer.h', 'recurrence.h', 'exp.h'].map((name) => `runner/mixer/${name}`);

// biome-ignore lint/complexity/useMaxParams: the parts of one kernel, in the order of their use
function open<Kernel>(
  file: string,
  sizes: Readonly<Record<string, number>>,
  options: CompileOptions,
  take: (pointer: Pointers) => Kernel,
  native: NativeApi,
): Promise<Loaded<Kernel>> {
  const definitions = {
    ...sizes,
    ...tensorFields.definitions,
  };
  const headers = ['native/vector.h', tensorFields.header, 'runner/states/states.h', ...ownHeaders];
  return openNative({ file: `runner/mixer/${file}`, headers, definitions }, options, (compiled: Compiled) => ({
    kernel: take((name) => native.functionIn(compiled.path, `kvasir_${name}_pointer`, 'raw')()),
    sourceDigest: compiled.sourceDigest,
  }));
}

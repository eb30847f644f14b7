import type { ComputeDevice } from '../../ggml/device.ts';
import type { NativeApi, RawPtr } from '../../ggml/ffi.ts';
import { CompileFailure, type CompileOptions, type NativeSource, openNative } from '../../native/compiler.ts';
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
  const open: Open = (source, take) => openKernel(native, options, source, take);
  const [convolution, scan, deltaNet] = await Promise.all([
    shapes.convolution && openConvolution(open, shapes.convolution),
    shapes.scan && openScan(open, shapes.scan),
    shapes.deltaNet && openDeltaNet(open, shapes.deltaNet),
  ]);
  const digests = [convolution, scan, deltaNet].map((loaded) => loaded?.sourceDigest ?? '');
  return {
    ...(convolution === undefined ? {} : { convolution: convolution.kernel }),
    ...(scan === undefined ? {} : { scan: scan.kernel }),
    ...(deltaNet === undefined ? {} : { deltaNet: deltaNet.kernel }),
    sourceDigest: digests.join(' ').trim(),
  };
}

/** Compiles a kernel and takes its functions: `take` gets the address of `kvasir_<name>_pointer()`. */
type Open = <Kernel>(
  source: NativeSource,
  take: (pointer: (name: string) => RawPtr) => Kernel,
) => Promise<Loaded<Kernel>>;

interface Loaded<Kernel> {
  readonly kernel: Kernel;
  readonly sourceDigest: string;
}

async function openConvolution(open: Open, { taps, channels }: ConvolutionShape) {
  check(channels % lanesMax === 0, `${channels} channels`);
  return open(convolutionOf(taps), (pointer) => ({ convolve: pointer('convolve') }));
}

async function openScan(open: Open, { headDim, stateSize }: ScanShape) {
  check(headDim % lanesMax === 0 && stateSize % together === 0, `heads of ${headDim} with states of ${stateSize}`);
  return open(scanOf(headDim, stateSize), (pointer) => ({
    prepareGates: pointer('gates'),
    scan: pointer('scan'),
  }));
}

async function openDeltaNet(open: Open, { headDim }: DeltaNetShape) {
  check(headDim % together === 0, `heads of ${headDim}`);
  return open(deltaNetOf(headDim), (pointer) => ({
    prepareGates: pointer('gates'),
    deltaNet: pointer('delta_net'),
  }));
}

function check(isSupported: boolean, found: string): void {
  if (!isSupported) throw new CompileFailure(`it does not support ${found}`);
}

const ownHeaders = ['mixer.h', 'recurrence.h'].map((name) => `runner/mixer/${name}`);

/** A file of this folder, and the sizes that it is compiled for. */
const sourceOf = (file: string, sizes: Readonly<Record<string, number>>): NativeSource => ({
  file: `runner/mixer/${file}`,
  headers: [
    'native/vector.h',
    'native/exp.h',
    'native/elementary.h',
    tensorFields.header,
    'runner/states/states.h',
    ...ownHeaders,
  ],
  definitions: { ...sizes, ...tensorFields.definitions },
});

export const convolutionOf = (taps: number): NativeSource => sourceOf('convolution.c', { TAPS: taps });
export const scanOf = (headDim: number, stateSize: number): NativeSource =>
  sourceOf('scan.c', { HEAD_DIM: headDim, STATE_SIZE: stateSize });
export const deltaNetOf = (headDim: number): NativeSource => sourceOf('delta-net.c', { HEAD_DIM: headDim });

function openKernel<Kernel>(
  native: NativeApi,
  options: CompileOptions,
  source: NativeSource,
  take: (pointer: (name: string) => RawPtr) => Kernel,
): Promise<Loaded<Kernel>> {
  return openNative(source, options, ({ path, sourceDigest }) => ({
    kernel: take((name) => native.functionIn(path, `kvasir_${name}_pointer`, 'raw')()),
    sourceDigest,
  }));
}

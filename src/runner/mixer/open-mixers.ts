import type { ComputeDevice } from '../../ggml/device.ts';
import { type CompileOptions, doWithout } from '../../native/compiler.ts';
import { GgmlMixers } from './ggml-mixers.ts';
import { loadMixerKernels } from './mixer-kernels.ts';
import type { MixerShapes, Mixers } from './mixers.ts';
import { NativeMixers } from './native-mixers.ts';

export interface MixerChoice {
  readonly mixers: Mixers;
  /** All that decides the bits of states besides the CPU. */
  readonly identity: string;
}

export const ggmlMixers = (shapes: MixerShapes): MixerChoice => ({ mixers: new GgmlMixers(shapes), identity: 'ggml' });

/** Mixers by Kvasir's kernels on a CPU with a compiler, else by ggml's operations. */
export async function openMixers(
  device: ComputeDevice,
  shapes: MixerShapes,
  options: CompileOptions = {},
): Promise<MixerChoice> {
  if (device.kind !== 'cpu') return ggmlMixers(shapes);
  try {
    const kernels = await loadMixerKernels(device, shapes, options);
    return { mixers: new NativeMixers(device.native, kernels, shapes), identity: kernels.sourceDigest };
  } catch (error) {
    const instead =
      "ggml's operations are used instead, which are slower, and the text may differ from engines that have the kernel.";
    doWithout(error, 'The kernels for recurrent layers', instead, options);
    return ggmlMixers(shapes);
  }
}

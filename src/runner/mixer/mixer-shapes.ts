import { deltaNetChannels } from '../../ggml/delta-net-config.ts';
import { mambaChannels } from '../../ggml/mamba-config.ts';
import type { ModelConfig } from '../../ggml/model-config.ts';
import type { MixerShapes } from './mixers.ts';

/** The properties of a model that decide the shapes of its mixers. */
type Shaped = Pick<ModelConfig, 'shortConvolution' | 'mamba' | 'deltaNet' | 'embeddingLength'>;

/** The shapes of the mixers of a model with states. */
export function mixerShapes({ shortConvolution, mamba, deltaNet, embeddingLength }: Shaped): MixerShapes {
  if (shortConvolution !== undefined) {
    return { convolution: { taps: shortConvolution.taps, channels: embeddingLength } };
  }
  if (deltaNet !== undefined) {
    return { convolution: { taps: deltaNet.taps, channels: deltaNetChannels(deltaNet) }, deltaNet };
  }
  if (mamba === undefined) return {};
  return { convolution: { taps: mamba.taps, channels: mambaChannels(mamba) }, scan: mamba };
}

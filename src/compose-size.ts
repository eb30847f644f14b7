/** What of a model is on a GPU, for `kvasir size`: by the code that places the layers of an engine. */
import { KvasirError } from './base/errors.ts';
import type { GpuShare } from './cli/size/gpu-share.ts';
import { divisionsOf, placeLayers, tokensWanted } from './compose-placement.ts';
import { encoderOptions } from './engine/encoder-options.ts';
import { type EngineOptions, gpuReserve, leftOnGpu, resolveEngineOptions } from './engine/options.ts';
import { findGpu, type GpuMemory } from './ggml/device.ts';
import type { GgufFile } from './ggml/gguf.ts';
import { readModelConfig } from './ggml/model-config.ts';

/**
 * @param given a GPU that need not be here; default: the GPU of this machine
 * @returns undefined if an engine with these options computes on the CPU because there is no GPU, or because none may be used
 * @throws KvasirError `createEngine` would have the same error, except for too little memory
 */
export function shareOnGpu(options: EngineOptions, file: GgufFile, given?: GpuMemory): GpuShare | undefined {
  const asked = resolveEngineOptions(options);
  const { device, gpuLayers, maxModelLen } = asked;
  if (device === 'cpu' || gpuLayers === 0) return undefined;
  const gpu = given ?? gpuHere();
  if (gpu === undefined && device === 'auto' && gpuLayers === 'auto') return undefined;
  const model = readModelConfig(file, maxModelLen);
  const resolved = model.isEncoder === true ? encoderOptions(asked, model.contextLength) : asked;
  const placed = { file, model };
  // With `gpu`, no layer that fits would be an error.
  const { stages } = placeLayers({ ...resolved, device: 'auto' }, placed, () => gpu ?? unknownGpu);
  const layers = stages.reduce(
    (sum, { stage, device: on }) => sum + (on === 'gpu' ? stage.endLayer - stage.firstLayer : 0),
    0,
  );
  const divisions = divisionsOf(resolved, placed);
  const division = divisions.find((one) => one.layers === layers);
  const blocksMax = division && gpu && blocksOn(gpu, division.onGpu);
  return {
    ...(gpu === undefined ? {} : { device: gpu }),
    reserveBytes: gpuReserve(gpu?.totalBytes ?? Number.POSITIVE_INFINITY),
    layerCount: model.layerCount,
    layers,
    gpuLayers,
    poolTokens: Math.min(tokensWanted, resolved.maxModelLen ?? model.contextLength),
    ...(division === undefined ? {} : { division }),
    ...(blocksMax === undefined ? {} : { blocksMax }),
    divisions,
  };
}

/** Sizes need no native libraries, so they are not missed here. */
function gpuHere(): GpuMemory | undefined {
  try {
    return findGpu();
  } catch (error) {
    if (error instanceof KvasirError) return undefined;
    throw error;
  }
}

const unknownGpu: GpuMemory = {
  description: 'a GPU',
  freeBytes: undefined,
  totalBytes: 0,
  tensorBytesMax: Number.POSITIVE_INFINITY,
};

/** KV blocks that fit beside the weights. */
function blocksOn(
  { freeBytes, totalBytes, tensorBytesMax }: GpuMemory,
  { weightBytes, blockBytes }: { readonly weightBytes: number; readonly blockBytes: number },
): number | undefined {
  if (freeBytes === undefined) return undefined;
  return Math.floor(Math.min(leftOnGpu(weightBytes, freeBytes, totalBytes), tensorBytesMax) / blockBytes);
}

import { beforeAll, describe, expect, it } from 'vitest';
import { temporaryFolder, writeTinyModel } from '../test/support/tiny-model.ts';
import { blockCountOf, describePlacement, placeLayers, placementIdentity } from './compose-placement.ts';
import { rankOptionsOf } from './compose-rank.ts';
import { type EngineOptions, resolveEngineOptions } from './engine/options.ts';
import type { GpuMemory } from './ggml/device.ts';
import { readGguf } from './ggml/gguf.ts';
import { readModelConfig } from './ggml/model-config.ts';
import { stagesFrom, wholeModel } from './runner/contract.ts';
import { stageWeightBytes } from './runner/stage-weights.ts';

const GIB = 1024 ** 3;
const layerCount = 6;
const folder = temporaryFolder();
type PlacedModel = Parameters<typeof placeLayers>[1];
let plain: PlacedModel;
let sharing: PlacedModel;

beforeAll(async () => {
  const open = async (name: string): Promise<PlacedModel> => {
    const file = await readGguf(folder.file(name));
    return { file, model: readModelConfig(file) };
  };
  await writeTinyModel(folder.file('plain'), { architecture: 'llama', type: 'Q8_0', layers: layerCount });
  await writeTinyModel(folder.file('sharing'), {
    architecture: 'gemma4',
    type: 'Q8_0',
    layers: layerCount,
    gemma4: { sharedLayers: 2 },
  });
  [plain, sharing] = [await open('plain'), await open('sharing')];
  return () => folder.remove();
});

const gpu: GpuMemory = {
  description: 'GPU0 (a GPU)',
  freeBytes: 20 * GIB,
  totalBytes: 24 * GIB,
  tensorBytesMax: 64 * GIB,
};
const optionsOf = (options: Partial<EngineOptions>) =>
  resolveEngineOptions({ model: 'm', maxModelLen: 256, ...options });
const place = (options: Partial<EngineOptions>, found: GpuMemory | undefined = gpu, model = plain) =>
  placeLayers(optionsOf(options), model, () => found);
/** The number of layers on each device, in order. */
const sizesOf = (...args: Parameters<typeof place>) =>
  place(...args).stages.map(({ device, stage }) => `${device} ${stage.endLayer - stage.firstLayer}`);

describe('the layers of a model', () => {
  it('are on the CPU if there is no GPU, or if none may be on one; then the GPU is not asked', () => {
    expect(placeLayers(optionsOf({}), plain, () => undefined).stages).toEqual([
      { stage: wholeModel(layerCount), device: 'cpu' },
    ]);
    const asked = (): never => expect.unreachable();
    for (const options of [{ device: 'cpu' }, { gpuLayers: 0 }] as const)
      expect(placeLayers(optionsOf(options), plain, asked).stages).toEqual([
        { stage: wholeModel(layerCount), device: 'cpu' },
      ]);
  });

  it('stay on a GPU that the options name and the machine lacks: opening it is the error', () => {
    for (const options of [{ device: 'gpu' }, { gpuLayers: 2 }, { gpuLayers: 'all' }] as const)
      expect(placeLayers(optionsOf(options), plain, () => undefined).stages[0]!.device).toBe('gpu');
  });

  it('are divided at the given number, which counts from the last layer', () => {
    expect(sizesOf({ gpuLayers: 1 })).toEqual(['cpu 5', 'gpu 1']);
    expect(sizesOf({ gpuLayers: 5, device: 'gpu' })).toEqual(['cpu 1', 'gpu 5']);
    for (const gpuLayers of [6, 7, 999, 'all', 'auto'] as const) expect(sizesOf({ gpuLayers })).toEqual(['gpu 6']);
    const placement = place({ gpuLayers: 2 });
    expect(placement.stages.map(({ stage }) => stage)).toEqual(stagesFrom(4, layerCount));
    expect(describePlacement(placement)).toBe('the last 2 of 6 on the GPU, the others on the CPU');
    expect(placementIdentity(placement)).toBe('cpu 0-4, gpu 4-6');
    for (const whole of [place({}), place({ gpuLayers: 0 }), place({ pipelineParallelSize: 2 })])
      expect([describePlacement(whole), placementIdentity(whole)]).toEqual([undefined, undefined]);
  });

  it('that share KV stay together', () => {
    expect(sizesOf({ gpuLayers: 4 }, gpu, sharing)).toEqual(['cpu 2', 'gpu 4']);
    expect(() => place({ gpuLayers: 3 }, gpu, sharing)).toThrow(
      '--gpu-layers 3 is not possible: the last 4 layers share KV, so they are on one device. Use 0, or at least 4.',
    );
  });

  it('are in equal stages on one device in a pipeline, which is not divided among devices', () => {
    expect(sizesOf({ pipelineParallelSize: 2 })).toEqual(['gpu 3', 'gpu 3']);
    expect(sizesOf({ pipelineParallelSize: 4, gpuLayers: 0 })).toEqual(['cpu 2', 'cpu 2', 'cpu 1', 'cpu 1']);
    expect(() => place({ pipelineParallelSize: 2, gpuLayers: 2 })).toThrow(
      '--pipeline-parallel-size 2 divides the layers',
    );
    expect(() => place({ pipelineParallelSize: 7 })).toThrow('from 1 to 6');
  });
});

describe('--gpu-layers auto', () => {
  /** A GPU with so many bytes besides the reserve. */
  const gpuWith = (bytes: number): GpuMemory => ({ ...gpu, freeBytes: bytes + GIB });
  const kvCacheMemory = 1 << 20;
  /** Weights and KV of the last layers. */
  const neededFor = (layers: number): number => {
    const { file, model } = plain;
    const stage = layers === layerCount ? wholeModel(layerCount) : stagesFrom(layerCount - layers, layerCount)[1];
    const kv = Math.floor(kvCacheMemory / layerCount) * layers;
    return stageWeightBytes(file, model, stage, false) + kv;
  };

  it('places as many of the last layers on the GPU as its free memory has room for, with their KV', () => {
    for (let layers = 1; layers <= layerCount; layers++) {
      const expected = layers === layerCount ? ['gpu 6'] : [`cpu ${layerCount - layers}`, `gpu ${layers}`];
      expect(sizesOf({ kvCacheMemory }, gpuWith(neededFor(layers)))).toEqual(expected);
    }
    expect(sizesOf({ kvCacheMemory }, gpuWith(0))).toEqual(['cpu 6']);
    expect(sizesOf({ kvCacheMemory }, { ...gpu, freeBytes: 100 })).toEqual(['cpu 6']);
    expect(sizesOf({}, { ...gpu, freeBytes: undefined, totalBytes: 0 })).toEqual(['gpu 6']);
  });

  it('leaves room for the KV of 8192 tokens by default, or of the longest request', () => {
    const { file, model } = plain;
    const weights = stageWeightBytes(file, model, wholeModel(layerCount), false);
    const bytesPerBlock = 2 * 2 * 16 * model.headCountKv * model.headDim * layerCount;
    for (const [maxModelLen, blocks] of [
      [256, 1 + 16],
      [1 << 20, 1 + 512],
    ] as const) {
      const needed = weights + blocks * bytesPerBlock;
      expect(sizesOf({ maxModelLen }, gpuWith(needed))).toEqual(['gpu 6']);
      expect(sizesOf({ maxModelLen }, gpuWith(needed - 1))).not.toEqual(['gpu 6']);
    }
  });

  it('is an error if the user wants the GPU and no layer fits', () => {
    expect(() => place({ kvCacheMemory, device: 'gpu' }, { ...gpu, freeBytes: 2 ** 20 })).toThrow(
      '--gpu-layers auto is not possible: no layer fits into the 1 MiB that are free on GPU0 (a GPU). Use --device cpu.',
    );
  });

  it('keeps layers together that share KV', () => {
    const sizes = new Set<string>();
    for (let bytes = 0; bytes < 16 << 20; bytes += 1 << 16)
      sizes.add(sizesOf({ kvCacheMemory }, gpuWith(bytes), sharing).join(', '));
    expect([...sizes]).toEqual(['cpu 6', 'cpu 2, gpu 4', 'cpu 1, gpu 5', 'gpu 6']);
  });
});

describe('the number of blocks', () => {
  const blocksOf = (options: Partial<EngineOptions>, found = gpu): number => {
    const resolved = optionsOf({ maxModelLen: 1 << 20, ...options });
    return blockCountOf(
      rankOptionsOf(resolved),
      plain,
      placeLayers(resolved, plain, () => found),
    );
  };

  it('is given memory divided by the parts of a block on both devices', () => {
    const [whole, divided] = ['all' as const, 2].map((gpuLayers) => blocksOf({ gpuLayers, kvCacheMemory: 6 << 20 }));
    expect(divided).toBe(whole);
  });

  it('is what the device with less room can have', () => {
    const weights = stageWeightBytes(plain.file, plain.model, stagesFrom(4, layerCount)[1], false);
    const left = 1 << 20;
    const small = { ...gpu, freeBytes: GIB + weights + left };
    const { headCountKv, headDim } = plain.model;
    const part = 2 * 2 * 16 * headCountKv * headDim * 2;
    expect(blocksOf({ gpuLayers: 2 }, small)).toBe(left / part);
  });

  it('is at most what the largest tensor of the GPU holds, on both devices', () => {
    const whole = blocksOf({ gpuLayers: 3, kvCacheMemory: 6 << 20 });
    expect(blocksOf({ gpuLayers: 3, kvCacheMemory: 6 << 20 }, { ...gpu, tensorBytesMax: 1 << 20 })).toBeLessThan(whole);
  });
});

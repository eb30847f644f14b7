import { describe, expect, it } from 'vitest';
import {
  type Device,
  defaultGpuCacheMemory,
  defaultKvCacheMemory,
  type EngineOptions,
  engineDefaults,
  type GpuLayers,
  leftOnGpu,
  resolveEngineOptions,
} from './options.ts';

const GIB = 1024 ** 3;

describe('engine options', () => {
  it('fills in every default', () => {
    const resolved = resolveEngineOptions({ model: 'm.gguf' });
    expect(resolved).toMatchObject({ ...engineDefaults, model: 'm.gguf' });
    expect(resolved.threads).toBeGreaterThanOrEqual(1);
    expect(resolved.maxModelLen).toBeUndefined();
  });

  it('has a thread for each of the given cores, unless their number is given too', () => {
    expect(resolveEngineOptions({ model: 'm.gguf', cpus: [1, 3, 5] })).toMatchObject({ threads: 3, cpus: [1, 3, 5] });
    expect(resolveEngineOptions({ model: 'm.gguf', cpus: [1, 3], threads: 4 })).toMatchObject({ threads: 4 });
  });

  it('keeps given options and treats an undefined option as absent', () => {
    const options: object = { model: 'm.gguf', blockSize: 32, enablePrefixCaching: false, maxNumSeqs: undefined };
    const resolved = resolveEngineOptions(options as { model: string });
    expect(resolved).toMatchObject({ blockSize: 32, enablePrefixCaching: false, maxNumSeqs: 64 });
  });

  it.each([1, 0, -5, 2.5, Number.NaN])('refuses a maxModelLen of %d', (maxModelLen) => {
    expect(() => resolveEngineOptions({ model: 'm.gguf', maxModelLen })).toThrow(/maxModelLen is .* at least 2/);
  });

  it.each([-1, 1.5, Number.NaN, Number.POSITIVE_INFINITY, 'some', true])('refuses gpuLayers of %s', (gpuLayers) => {
    const options = { model: 'm.gguf', gpuLayers } as unknown as EngineOptions;
    expect(() => resolveEngineOptions(options)).toThrow(/gpuLayers is .*whole number of at least 0, "all" or "auto"/);
  });

  it('refuses layers on a GPU without a GPU, and a GPU without layers', () => {
    const resolve = (device: Device, gpuLayers: GpuLayers) => () =>
      resolveEngineOptions({ model: 'm', device, gpuLayers });
    expect(resolve('cpu', 3)).toThrow(
      '--gpu-layers 3 is not possible: --device cpu has no GPU. Remove one of the two.',
    );
    expect(resolve('cpu', 'all')).toThrow('--device cpu has no GPU');
    expect(resolve('gpu', 0)).toThrow('--device gpu needs a layer on the GPU');
    for (const gpuLayers of [0, 'auto'] as const) expect(resolve('cpu', gpuLayers)().gpuLayers).toBe(gpuLayers);
  });

  it('gives the pool half of the memory that the weights leave, from 0 to 4 GiB', () => {
    expect(defaultKvCacheMemory(1 * GIB, 5 * GIB)).toBe(2 * GIB);
    expect(defaultKvCacheMemory(1 * GIB, 500 * GIB)).toBe(4 * GIB);
    expect(defaultKvCacheMemory(9 * GIB, 5 * GIB)).toBe(0);
  });

  it('gives the pool of a GPU what the weights leave, without a reserve of 1 GiB or an eighth, from 0 to 4 GiB', () => {
    expect(leftOnGpu(5 * GIB, 23 * GIB, 24 * GIB)).toBe(17 * GIB);
    expect(leftOnGpu(1 * GIB, 4 * GIB, 4 * GIB)).toBe(2.5 * GIB);
    expect(leftOnGpu(5 * GIB, 4 * GIB, 8 * GIB)).toBe(0);
    expect(defaultGpuCacheMemory(17 * GIB)).toBe(4 * GIB);
    expect(defaultGpuCacheMemory(GIB)).toBe(GIB);
  });
});

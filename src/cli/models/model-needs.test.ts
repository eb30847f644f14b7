import { Command } from 'commander';
import { describe, expect, it } from 'vitest';
import { shareOnGpu } from '../../compose-size.ts';
import type { GpuMemory } from '../../ggml/device.ts';
import { readGguf } from '../../ggml/gguf.ts';
import { addEngineFlags, engineOptionsOf } from '../args.ts';
import type { ServeFlags } from '../serve.ts';
import { needsOfModel } from './model-needs.ts';

const GIB = 1024 ** 3;
const MIB = 1024 ** 2;
const demo = 'models/kvasir-demo.gguf';
const gpuOf = (freeBytes: number): GpuMemory => ({
  description: 'GPU0 (a GPU)',
  freeBytes,
  totalBytes: 8 * GIB,
  tensorBytesMax: 4 * GIB,
});
const flagsOf = (...args: readonly string[]): ServeFlags =>
  addEngineFlags(new Command())
    .parse(['--max-model-len', '1K', ...args], { from: 'user' })
    .opts();
const needs = (flags: ServeFlags, gpu?: GpuMemory) =>
  needsOfModel(demo, flags, {
    memoryMaxBytes: 4 * GIB,
    shareOnGpu: async (...args) => shareOnGpu(...args),
    ...(gpu === undefined ? {} : { gpu }),
  });

describe('the memory of a model beside others', () => {
  it('is on the GPU what kvasir size says for the whole GPU, and the layers are fixed', async () => {
    const flags = flagsOf('--kv-cache-memory', '48MiB');
    const onCpu = await needs(flags);
    expect([onCpu.gpuBytes, onCpu.settings]).toEqual([0, { kvCacheMemory: 48 * MIB }]);
    // 1 GiB is the reserve.
    for (const freeBytes of [6 * GIB, GIB + 40 * MIB, GIB + 20 * MIB]) {
      const { bytes, gpuBytes, settings } = await needs(flags, gpuOf(freeBytes));
      const share = shareOnGpu(engineOptionsOf(demo, flags, {}), await readGguf(demo), gpuOf(freeBytes));
      const { onGpu, poolBytes } = share!.division!;
      expect(settings).toEqual({ kvCacheMemory: 48 * MIB, gpuLayers: share!.layers });
      expect(gpuBytes).toBe(onGpu.weightBytes + poolBytes + GIB);
      expect(gpuBytes).toBeLessThanOrEqual(freeBytes);
      // The embeddings are on both devices.
      expect(bytes + gpuBytes - GIB).toBeGreaterThanOrEqual(onCpu.bytes);
      expect(bytes).toBeLessThan(onCpu.bytes);
    }
  });

  it('has an eighth of the GPU for KV, or of the machine if the CPU computes', async () => {
    const flags = flagsOf('--max-num-seqs', '4096');
    expect((await needs(flags, gpuOf(6 * GIB))).settings.kvCacheMemory).toBe((6 * GIB) / 8);
    for (const [others, gpu] of [[['--device', 'cpu'], gpuOf(6 * GIB)], [[], gpuOf(GIB)], [[]]] as const) {
      const { gpuBytes, settings } = await needs({ ...flags, ...flagsOf('--max-num-seqs', '4096', ...others) }, gpu);
      expect([gpuBytes, settings.kvCacheMemory]).toEqual([0, (4 * GIB) / 8]);
    }
    // A GPU without room is not used later either, when another program has left it.
    expect((await needs(flags, gpuOf(GIB))).settings.gpuLayers).toBe(0);
    expect((await needs(flagsOf('--device', 'gpu'), gpuOf(GIB))).settings).not.toHaveProperty('gpuLayers');
  });

  it('is an error if the GPU is too small for the layers that are wanted', async () => {
    await expect(needs(flagsOf('--gpu-layers', 'all', '--kv-cache-memory', '3GiB'), gpuOf(2 * GIB))).rejects.toThrow(
      /^--gpu-layers all is not possible: weights and KV need 3.0 GiB, and 2 GiB were free on GPU0 \(a GPU\) at the start. Use --gpu-layers auto/,
    );
    // The reserve is not required.
    const { gpuBytes } = await needs(flagsOf('--gpu-layers', '2'), gpuOf(GIB));
    expect(gpuBytes).toBe(GIB);
  });
});

import { describe, expect, it } from 'vitest';
import { needs } from '../../test/support/needs.ts';
import { blockId } from '../core/ids.ts';
import { openDevice } from '../ggml/device.ts';
import { F16, Q8_0 } from '../ggml/types.ts';
import { blockBytes, blockCountMax, checkPool, type KvLayout, KvMemory } from './kv-memory.ts';

const layout: KvLayout = { type: F16, layerCount: 2, blockSize: 16, headCountKv: 2, headDim: 64 };
const cpu = { kind: 'cpu' } as const;
const gpu = { kind: 'gpu' } as const;

describe('a pool that is too large', () => {
  it.each<[string, KvLayout]>([
    ['F16', layout],
    ['q8_0', { ...layout, type: Q8_0 }],
    ['small rows', { ...layout, headCountKv: 1, headDim: 16, layerCount: 1, blockSize: 1 }],
    ['many layers', { ...layout, layerCount: 126, blockSize: 128 }],
  ])('is refused from the first block whose rows do not fit into signed 32-bit integers: %s', (_name, of) => {
    const rowsPerBlock = of.layerCount * 2 * of.blockSize;
    const most = blockCountMax(of, of.blockSize * 1e9);
    const slots = Int32Array.of((most - 1) * rowsPerBlock + rowsPerBlock - 1);
    expect(slots[0]).toBe(most * rowsPerBlock - 1);
    expect((most + 1) * rowsPerBlock).toBeGreaterThan(2 ** 31 - 1);
    expect(() => checkPool(cpu, of, most)).not.toThrow();
    expect(() => checkPool(cpu, of, most + 1)).toThrow(
      `for this model the largest is ${most * blockBytes(of)} bytes. Use --kv-cache-memory ${most * blockBytes(of)}, or less.`,
    );
  });

  it('has a lower limit on a GPU, where a gather copies pieces that are smaller than rows', () => {
    const wide = { ...layout, headCountKv: 8, headDim: 256, blockSize: 1, layerCount: 1 };
    const rows = blockCountMax(wide, blockBytes(wide) / 2);
    expect(() => checkPool(cpu, wide, rows)).not.toThrow();
    expect(() => checkPool(gpu, wide, rows)).toThrow(/the largest is/);
    expect(() => checkPool(gpu, wide, Math.floor(rows / 2))).not.toThrow();
  });

  it('is refused before memory is allocated', () => {
    const device = openDevice({ device: 'cpu', threads: 1, exact: false });
    try {
      expect(() => new KvMemory(device, layout, 2 ** 40)).toThrow(/more rows than kernels can count/);
    } finally {
      device.close();
    }
  });
});

describe('a pool whose V is in its K', () => {
  it('has blocks of half the bytes, and one part for each layer', () => {
    const latent: KvLayout = { ...layout, valueInKey: 48 };
    expect(2 * blockBytes(latent)).toBe(blockBytes(layout));
    expect(blockCountMax(latent, 1e9)).toBe(2 * blockCountMax(layout, 1e9) + 1);
    const device = openDevice({ device: 'cpu', threads: 1, exact: false });
    const memory = new KvMemory(device, latent, 3);
    expect(memory.rowsPerBlock).toBe(latent.layerCount * latent.blockSize);
    expect(memory.slotOf(blockId(2), 5)).toBe(2 * memory.rowsPerBlock + 5);
    memory.close();
    device.close();
  });
});

/** Blocks that are never written need no physical memory if the system allocates lazily. */
describe(
  'a pool of more than 4 GiB',
  needs(process.platform !== 'win32', 'memory that is allocated when it is written'),
  () => {
    it('has each block at its address', () => {
      const device = openDevice({ device: 'cpu', threads: 1, exact: false });
      const blockCount = Math.ceil((4.5 * 2 ** 30) / blockBytes(layout));
      const memory = new KvMemory(device, layout, blockCount);
      try {
        const perGib = Math.floor(2 ** 30 / memory.blockBytes);
        const blocks = [0, 1, perGib - 1, perGib, perGib + 1, 3 * perGib, 4 * perGib, blockCount - 1];
        for (const [i, block] of blocks.entries()) memory.bytesOf(blockId(block)).fill(i + 1);
        for (const [i, block] of blocks.entries()) {
          const bytes = memory.bytesOf(blockId(block));
          expect(bytes).toHaveLength(memory.blockBytes);
          expect(bytes.every((byte) => byte === i + 1)).toBe(true);
          const native = new Uint8Array(
            device.native.memoryAt(memory.baseAddress + block * memory.blockBytes + 16, 16),
          );
          expect(native).toEqual(new Uint8Array(16).fill(i + 1));
        }
        expect(() => memory.bytesOf(blockId(blockCount))).toThrow(/outside the pool/);
      } finally {
        memory.close();
        device.close();
      }
    });
  },
);

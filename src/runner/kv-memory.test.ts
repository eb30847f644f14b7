import { describe, expect, it } from 'vitest';
import { testsNeed } from '../../test/support/needs.ts';
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
  ])('is refused at the first page whose rows do not fit into 32 bits with a sign: %s', (_name, of) => {
    const rowsPerBlock = of.layerCount * 2 * of.blockSize;
    const most = blockCountMax(of, of.blockSize * 1e9);
    const slots = Int32Array.of((most - 1) * rowsPerBlock + rowsPerBlock - 1);
    expect(slots[0]).toBe(most * rowsPerBlock - 1);
    expect((most + 1) * rowsPerBlock).toBeGreaterThan(2 ** 31 - 1);
    expect(() => checkPool(cpu, of, most)).not.toThrow();
    expect(() => checkPool(cpu, of, most + 1)).toThrow(
      `of this model at most ${most * blockBytes(of)} bytes. Use --kv-cache-memory ${most * blockBytes(of)}, or less.`,
    );
  });

  it('is smaller on a GPU, where a gather copies smaller pieces than rows', () => {
    const wide = { ...layout, headCountKv: 8, headDim: 256, blockSize: 1, layerCount: 1 };
    const rows = blockCountMax(wide, blockBytes(wide) / 2);
    expect(() => checkPool(cpu, wide, rows)).not.toThrow();
    expect(() => checkPool(gpu, wide, rows)).toThrow(/at most/);
    expect(() => checkPool(gpu, wide, Math.floor(rows / 2))).not.toThrow();
  });

  it('is refused before memory is asked for', () => {
    const device = openDevice({ device: 'cpu', threads: 1, exact: false });
    try {
      expect(() => new KvMemory(device, layout, 2 ** 40)).toThrow(/more rows than kernels can count/);
    } finally {
      device.close();
    }
  });
});

/** Pages that are never written cost nothing where the system allocates lazily. */
describe('a pool of more than 4 GiB', () => {
  testsNeed(process.platform !== 'win32', 'memory that is allocated when it is written');

  it('has all of its pages, each in its place', () => {
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
        const there = new Uint8Array(device.native.memoryAt(memory.baseAddress + block * memory.blockBytes + 16, 16));
        expect(there).toEqual(new Uint8Array(16).fill(i + 1));
      }
      expect(() => memory.bytesOf(blockId(blockCount))).toThrow(/outside the pool/);
    } finally {
      memory.close();
      device.close();
    }
  });
});

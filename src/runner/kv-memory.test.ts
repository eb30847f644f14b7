import { describe, expect, it } from 'vitest';
import { testsNeed } from '../../test/support/needs.ts';
import { blockId } from '../core/ids.ts';
import { openDevice } from '../ggml/device.ts';
import { F16, Q8_0 } from '../ggml/types.ts';
import { checkPool, type KvLayout, KvMemory, pageBytes, pageCountMax } from './kv-memory.ts';

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
    const rowsPerPage = of.layerCount * 2 * of.blockSize;
    const most = pageCountMax(of, of.blockSize * 1e9);
    const slots = Int32Array.of((most - 1) * rowsPerPage + rowsPerPage - 1);
    expect(slots[0]).toBe(most * rowsPerPage - 1);
    expect((most + 1) * rowsPerPage).toBeGreaterThan(2 ** 31 - 1);
    expect(() => checkPool(cpu, of, most)).not.toThrow();
    expect(() => checkPool(cpu, of, most + 1)).toThrow(
      `of this model at most ${most * pageBytes(of)} bytes. Use --kv-cache-memory ${most * pageBytes(of)}, or less.`,
    );
  });

  it('is smaller on a GPU, where a gather copies smaller pieces than rows', () => {
    const wide = { ...layout, headCountKv: 8, headDim: 256, blockSize: 1, layerCount: 1 };
    const rows = pageCountMax(wide, pageBytes(wide) / 2);
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
    const pageCount = Math.ceil((4.5 * 2 ** 30) / pageBytes(layout));
    const memory = new KvMemory(device, layout, pageCount);
    try {
      const perGib = Math.floor(2 ** 30 / memory.pageBytes);
      const pages = [0, 1, perGib - 1, perGib, perGib + 1, 3 * perGib, 4 * perGib, pageCount - 1];
      for (const [i, page] of pages.entries()) memory.blockBytes(blockId(page)).fill(i + 1);
      for (const [i, page] of pages.entries()) {
        const bytes = memory.blockBytes(blockId(page));
        expect(bytes).toHaveLength(memory.pageBytes);
        expect(bytes.every((byte) => byte === i + 1)).toBe(true);
        const there = new Uint8Array(device.native.memoryAt(memory.baseAddress + page * memory.pageBytes + 16, 16));
        expect(there).toEqual(new Uint8Array(16).fill(i + 1));
      }
      expect(() => memory.blockBytes(blockId(pageCount))).toThrow(/outside the pool/);
    } finally {
      memory.close();
      device.close();
    }
  });
});

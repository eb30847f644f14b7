import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { hasCompiler } from '../../../test/support/has-compiler.ts';
import { needs } from '../../../test/support/needs.ts';
import { openDevice } from '../../ggml/device.ts';
import { F16 } from '../../ggml/types.ts';
import { KvMemory } from '../kv-memory.ts';
import { fillRandomKv, randomFloats } from '../random-values.ts';
import { equalLayers } from './attention.ts';
import { chooseAttention } from './attention-choice.ts';
import { GatherAttention } from './attention-gather.ts';
import { exactGatherForm, gatherOnCpu } from './gather-form.ts';
import { attendOnce, probeBatch } from './probe.ts';

const folder = mkdtempSync(join(tmpdir(), 'kvasir-choice-'));
const device = openDevice({ device: 'cpu', threads: 1, exact: true });
afterAll(() => {
  device.close();
  rmSync(folder, { recursive: true, force: true });
});
const layout = { type: F16, layerCount: 1, blockSize: 16, headDim: 64, headCountKv: 2 };
const model = { headCount: 4, layouts: [layout] };
const noCompiler = { compiler: '/nonexistent', cacheFolder: folder };

describe('the choice of attention', () => {
  it('is the native kernel if the kernel passes its self-test', needs(hasCompiler, 'no C compiler'), async () => {
    expect((await chooseAttention(device, { ...model, option: 'auto' })).kind).toBe('native');
  });

  it('is gather if the option says so', async () => {
    expect((await chooseAttention(device, { ...model, option: 'gather' })).kind).toBe('gather');
  });

  it('is gather without a compiler, and the description has the reason', async () => {
    const choice = await chooseAttention(device, { ...model, ...noCompiler, option: 'auto' });
    expect(choice.kind).toBe('gather');
    expect(choice.description).toBe(
      'ggml over gathered blocks (no native kernel: there is no C compiler `/nonexistent`)',
    );
  });

  it('is an error if the option requires the native kernel and there is no compiler', async () => {
    const options = { ...model, ...noCompiler, option: 'native' } as const;
    await expect(chooseAttention(device, options)).rejects.toMatchObject({
      code: 'KVASIR_NATIVE_ATTENTION_UNAVAILABLE',
    });
  });
});

describe('gathered attention row by row', () => {
  it('has the same bits in any batch on a backend whose kernels depend on the number of rows', () => {
    const fast = openDevice({ device: 'cpu', threads: 1, exact: false });
    const form = exactGatherForm(fast, model.headCount, model.layouts);
    fast.close();
    expect(form).toBeDefined();
  });

  it('equals attention of all rows together, also with a window', () => {
    const memory = new KvMemory(device, layout, 40);
    try {
      fillRandomKv(new Uint8Array(device.native.memoryAt(memory.baseAddress, 40 * memory.blockBytes)), F16, 1);
      const blocks = Int32Array.from({ length: 39 }, (_, i) => 39 - i);
      const batch = probeBatch([{ spans: [[270, 300]], blocks }], memory);
      const query = { values: randomFloats(30 * 4 * 64, 2), headDim: 64, heads: 4 };
      for (const window of [undefined, 20, 100]) {
        const layers = equalLayers(layout, { window });
        const [whole, byRow] = [gatherOnCpu, { kvMultiple: 64, isByRow: true }].map((options) =>
          attendOnce(device, new GatherAttention(memory, 4, options, layers), batch, query),
        );
        expect(byRow!.every((value, i) => Math.abs(value - whole![i]!) < 0.001)).toBe(true);
      }
    } finally {
      memory.close();
    }
  });
});

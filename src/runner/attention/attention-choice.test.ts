import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { hasCompiler } from '../../../test/support/has-compiler.ts';
import { itNeeds } from '../../../test/support/needs.ts';
import { openDevice } from '../../ggml/device.ts';
import { F16 } from '../../ggml/types.ts';
import { chooseAttention } from './attention-choice.ts';

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
  itNeeds(hasCompiler, 'no C compiler', 'is the native kernel if the kernel passes its self-test', async () => {
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

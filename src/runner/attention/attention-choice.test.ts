import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { hasCompiler } from '../../../test/support/has-compiler.ts';
import { itNeeds } from '../../../test/support/needs.ts';
import { openDevice } from '../../ggml/device.ts';
import type { ModelConfig } from '../../ggml/model-config.ts';
import { chooseAttention } from './attention-choice.ts';

const folder = mkdtempSync(join(tmpdir(), 'kvasir-choice-'));
const device = openDevice({ device: 'cpu', threads: 1, exact: true });
afterAll(() => {
  device.close();
  rmSync(folder, { recursive: true, force: true });
});
const config = { headDim: 64, headCount: 4, headCountKv: 2 } as ModelConfig;
const noCompiler = { compiler: '/nonexistent', cacheFolder: folder };

describe('the choice of attention', () => {
  itNeeds(hasCompiler, 'no C compiler', 'is the native kernel if the kernel passes its self-test', async () => {
    expect((await chooseAttention(device, config, { blockSize: 16, option: 'auto' })).kind).toBe('native');
  });

  it('is gather if the option says so', async () => {
    expect((await chooseAttention(device, config, { blockSize: 16, option: 'gather' })).kind).toBe('gather');
  });

  it('is gather without a compiler, and the description has the reason', async () => {
    const choice = await chooseAttention(device, config, { ...noCompiler, blockSize: 16, option: 'auto' });
    expect(choice.kind).toBe('gather');
    expect(choice.description).toBe(
      'ggml over gathered blocks (no native kernel: there is no C compiler `/nonexistent`)',
    );
  });

  it('is an error if the option requires the native kernel and there is no compiler', async () => {
    const options = { ...noCompiler, blockSize: 16, option: 'native' } as const;
    await expect(chooseAttention(device, config, options)).rejects.toMatchObject({
      code: 'KVASIR_NATIVE_ATTENTION_UNAVAILABLE',
    });
  });
});

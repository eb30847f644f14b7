/** `kvasir serve` with several models on a GPU. A limit of the driver stands in for a GPU that other programs have filled. */
import { copyFileSync } from 'node:fs';
import { afterAll, afterEach, describe, expect, it } from 'vitest';
import { buildCommand, killCommands, serve } from '../support/cli-process.ts';
import { needsGpu, testGpu } from '../support/gpu.ts';
import { needs } from '../support/needs.ts';
import { temporaryFolder, writeTinyModel } from '../support/tiny-model.ts';

const folder = temporaryFolder();
afterEach(killCommands);
afterAll(() => folder.remove());

const vulkan = { ...needs(testGpu().description.startsWith('Vulkan'), 'no Vulkan'), ...needsGpu() };
describe('several models on a GPU', vulkan, () => {
  it('a model for which the device has too little memory is an error, and the others go on', async () => {
    await buildCommand();
    copyFileSync('models/kvasir-demo.gguf', folder.file('small.gguf'));
    const shape = { layers: 2, embedding: 512, feedForward: 4096 } as const;
    await writeTinyModel(folder.file('large.gguf'), { architecture: 'llama', type: 'Q8_0', ...shape });
    const flags = ['--device', 'gpu', '--max-model-len', '128', '--max-num-batched-tokens', '3'];
    const environment = { GGML_VK_FORCE_MAX_BUFFER_SIZE: `${8 << 20}` };
    const server = await serve(['--model-dir', folder.file('.'), ...flags, '--kv-cache-memory', '4MiB'], environment);
    const ask = async (model: string) => {
      const answer = await server.complete({ model, max_tokens: 2, temperature: 0 });
      return { status: answer.status, text: await answer.text() };
    };
    expect((await ask('small')).status).toBe(200);
    const [large, small] = await Promise.all([ask('large'), ask('small')]);
    expect(small.status).toBe(200);
    expect(large.status).toBe(503);
    expect(large.text).toContain('could not be loaded (KVASIR_OUT_OF_NATIVE_MEMORY)');
    expect((await ask('small')).status).toBe(200);
    const log = await server.stop();
    expect(log).toMatch(/the model small is loaded.*gpuBytes/);
    expect(log).toMatch(/the model large could not be loaded: Could not allocate \d+ bytes for the weights on Vulkan0/);
  });
});

/**
 * Models that are divided between the CPU and a GPU (`--gpu-layers`). `device.gpu.ts` says what it needs. Fault schedules:
 * `KVASIR_TEST_DEVICE=gpu npx vitest run test/recovery-schedules.test.ts -t unequal`.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import type { SizeReport } from '../../src/cli/size/size-report.ts';
import { createEngine, type EngineOptions } from '../../src/index.ts';
import { promptOf } from '../support/drive.ts';
import { isLongOnGpu, needsGpu, rowsOnGpu, testGpu } from '../support/gpu.ts';
import { runHere } from '../support/run-here.ts';

type Engine = Awaited<ReturnType<typeof createEngine>>;
const engines: Engine[] = [];
const folder = mkdtempSync(join(tmpdir(), 'kvasir-layers-'));
afterEach(async () => {
  for (const engine of engines.splice(0)) await engine.close();
  rmSync(folder, { recursive: true, force: true });
});

const open = async (options: Partial<EngineOptions>): Promise<Engine> => {
  const model = 'models/kvasir-demo.gguf';
  const engine = await createEngine({
    model,
    threads: 1,
    maxModelLen: 1024,
    maxNumBatchedTokens: rowsOnGpu(),
    ...options,
  });
  engines.push(engine);
  return engine;
};
const close = (engine: Engine): Promise<void> => {
  engines.splice(engines.indexOf(engine), 1);
  return engine.close();
};

const complete = async (engine: Engine, prompt: string | Int32Array): Promise<string> => {
  let text = '';
  for await (const delta of engine.generate({ prompt, params: { maxTokens: 16, temperature: 0 } })) text += delta.text;
  return text;
};
const long = promptOf(150, 3, 2000);

/** On software Vulkan these take minutes, and `device.gpu.ts` has loads and stored KV of a whole model. */
const itOnFastGpu = (name: string, run: () => Promise<void>): void => {
  if (isLongOnGpu()) it(name, run);
};

describe('a model that is divided between the CPU and a GPU', needsGpu(), () => {
  it('generates the same text alone, in a batch and with cached blocks', async () => {
    const engine = await open({ gpuLayers: 1 });
    expect(engine.model.placement).toContain('the last 1 of ');
    const size = ['size', engine.model.path, '--gpu-layers', '1', '--max-model-len', '1024'];
    const { gpu, fit, blockBytes } = JSON.parse((await runHere([...size, '--json'])).stdout) as SizeReport;
    expect(gpu).toMatchObject({ layers: 1, device: { description: testGpu().description } });
    expect(engine.stats().blocks.total).toBe(fit!.poolBytes / blockBytes - 1);
    const alone = await complete(engine, long);
    const prompts = ['Once upon a time', 'The fox went to the mill and', long];
    const together = await Promise.all(prompts.map((prompt) => complete(engine, prompt)));
    expect(together[2]).toBe(alone);
    expect(engine.stats().cachedTokens).toBe(144);
  });

  itOnFastGpu(
    'loads blocks of both devices that its pools have evicted, in processes, and the text is the same',
    async () => {
      const engine = await open({
        gpuLayers: 2,
        distributedExecutorBackend: 'mp',
        maxModelLen: 192,
        // 26 blocks.
        kvCacheMemory: 1.3 * 2 ** 20,
        kvTransferConfig: {
          kvConnector: 'OffloadingConnector',
          kvRole: 'kv_both',
          kvConnectorExtraConfig: { tiers: ['host:64MiB'], kv_load_policy: 'always' },
        },
      });
      const text = await complete(engine, long);
      for (let seed = 4; seed < 7; seed++) await complete(engine, promptOf(150, seed, 2000));
      expect(await complete(engine, long)).toBe(text);
      expect(engine.stats().externalTokens).toBeGreaterThan(0);
    },
  );

  itOnFastGpu('finds stored KV of the same division, and none of another one', async () => {
    const external = async (options: Partial<EngineOptions>): Promise<number> => {
      const engine = await open({
        ...options,
        kvCacheMemory: 16 << 20,
        kvTransferConfig: {
          kvConnector: 'SharedStorageConnector',
          kvRole: 'kv_both',
          kvConnectorExtraConfig: { shared_storage_path: join(folder, 'store') },
        },
      });
      await complete(engine, long);
      const { externalTokens } = engine.stats();
      await close(engine);
      return externalTokens;
    };
    expect(await external({ gpuLayers: 2 })).toBe(0);
    expect(await external({ gpuLayers: 2 })).toBe(144);
    for (const other of [
      { gpuLayers: 1 },
      { gpuLayers: 'all' },
      { device: 'cpu' },
      { gpuLayers: 2, numerics: 'fast' },
    ] as const)
      expect(await external(other), JSON.stringify(other)).toBe(0);
    expect(await external({ gpuLayers: 2 })).toBe(144);
  });
});

/** `kvasir size` against engines: block sizes, pools that hold what it says, and bytes in a tier. */
import { afterAll, describe, expect, it } from 'vitest';
import { ModelSize } from '../src/cli/size/memory-needs.ts';
import type { SizeReport } from '../src/cli/size/size-report.ts';
import { createEngine } from '../src/compose.ts';
import { engineDefaults, type KvCacheDtype } from '../src/engine/options.ts';
import { readGguf } from '../src/ggml/gguf.ts';
import { computeHere } from './support/compute-here.ts';
import { promptOf } from './support/drive.ts';
import { inLongForm } from './support/long-form.ts';
import { runHere } from './support/run-here.ts';
import { type ModelOptions, smallStates, temporaryFolder, tinyHybrid, writeTinyModel } from './support/tiny-model.ts';

computeHere();
const folder = temporaryFolder();
afterAll(() => folder.remove());

const models: readonly (ModelOptions & { readonly kvCacheDtype?: 'q8_0' })[] = [
  { architecture: 'qwen3', type: 'Q8_0', layers: 2 },
  { architecture: 'qwen3', type: 'Q8_0', layers: 2, kvCacheDtype: 'q8_0' },
  { architecture: 'gemma3', type: 'Q8_0', layers: 5, window: 40, windowPattern: 5 },
  { architecture: 'lfm2', type: 'Q8_0', ...tinyHybrid },
  { architecture: 'gemma4', type: 'Q8_0' },
  { architecture: 'granitehybrid', type: 'Q8_0', ...smallStates },
  { architecture: 'deepseek2', type: 'Q8_0', layers: 2 },
];
const sequences = 4;
const tokens = 192;
const step = { maxNumSeqs: sequences, maxNumBatchedTokens: 64, maxModelLen: tokens };

describe.each(inLongForm(models, models.slice(0, 3)))(
  'the size of $architecture',
  ({ kvCacheDtype: given, ...options }) => {
    const kvCacheDtype: KvCacheDtype = given ?? 'f16';
    const path = folder.file(`${options.architecture}-${kvCacheDtype}.gguf`);
    let size: ModelSize;

    /** The largest number of requests that run at the same time in a pool, and how often one was preempted. */
    async function runIn(kvCacheMemory: number) {
      const engine = await createEngine({ model: path, threads: 1, kvCacheMemory, kvCacheDtype, ...step });
      let running = 0;
      try {
        const generate = async (prompt: readonly number[]): Promise<void> => {
          const params = { maxTokens: tokens / 2, ignoreEos: true, temperature: 0 };
          for await (const _ of engine.generate({ prompt, params }))
            running = Math.max(running, engine.stats().running);
        };
        await Promise.all(Array.from({ length: sequences }, (_, seed) => generate([...promptOf(tokens / 2, seed)])));
        return { running, preemptions: engine.stats().preemptions, blocks: engine.stats().blocks };
      } finally {
        await engine.close();
      }
    }

    it('is a pool in which the sequences run at the same time', async () => {
      await writeTinyModel(path, options);
      size = new ModelSize(await readGguf(path), { ...engineDefaults, kvCacheDtype, ...step });
      const pool = size.pool(sequences, tokens);
      const { running, preemptions, blocks } = await runIn(pool.bytes);
      // Without the null block.
      expect(blocks.total).toBe(pool.blocks - 1);
      expect({ running, preemptions }).toEqual({ running: sequences, preemptions: 0 });
    });

    it('is not much more than they need', async () => {
      const { running, preemptions } = await runIn(size.pool(sequences, tokens).bytes / 2);
      expect(running < sequences || preemptions > 0).toBe(true);
    });
  },
);

describe('kvasir size', () => {
  const sizeOf = async (...args: readonly string[]): Promise<SizeReport> => {
    const { code, stdout, stderr } = await runHere(['size', ...args, '--json']);
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
    return JSON.parse(stdout) as SizeReport;
  };

  it('shows what fits into a memory', async () => {
    const all = ['models/kvasir-hybrid.gguf', '--max-num-seqs', '4', '--max-model-len', '4K'];
    const { fit, weightBytes, processBytes, pools, blockBytes } = await sizeOf(...all, '--memory', '16GiB');
    const needed = pools.find((pool) => pool.sequences === 4 && pool.tokens === 4096)!.bytes;
    const leftBytes = 16 * 1024 ** 3 - weightBytes - processBytes - needed;
    expect(fit).toMatchObject({ sequences: 4, longest: 4096, poolBytes: needed, leftBytes });
    const small = await sizeOf(...all, '--memory', `${weightBytes + processBytes + 100 * blockBytes}`);
    expect(small.fit).toMatchObject({ sequences: 0, poolBytes: 100 * blockBytes });
    expect(small.fit?.longest).toBeGreaterThan(500);
    expect((await runHere(['size', ...all, '--memory', '8MiB'])).stdout).toMatch(/8 MiB is too little/);
  });

  it('shows the bytes that a tier stores for a prefix', async () => {
    const model = 'models/kvasir-hybrid.gguf';
    const { storedBytesPerToken, blockBytes } = await sizeOf(model);
    const cpu_bytes_to_use = 50_000_000;
    const kvTransferConfig = {
      kv_connector: 'OffloadingConnector',
      kv_role: 'kv_both',
      kv_connector_extra_config: { cpu_bytes_to_use },
    };
    const engine = await createEngine({ model, threads: 1, kvCacheMemory: 8 << 20, kvTransferConfig });
    try {
      const prompt = [...promptOf(512, 1)];
      for await (const _ of engine.generate({ prompt, params: { maxTokens: 1 } }));
      const savedBytes = () => (engine.stats().transfers.counters.savedBlocks ?? 0) * blockBytes;
      await expect.poll(savedBytes).toBe(512 * storedBytesPerToken);
    } finally {
      await engine.close();
    }
  });

  it('counts the layer that drafts and its KV only with the method mtp', async () => {
    const path = folder.file('mtp.gguf');
    await writeTinyModel(path, { architecture: 'glm4', type: 'Q8_0', layers: 3, predictionLayers: 1 });
    const limits = ['--max-num-seqs', '2', '--max-model-len', '256'];
    const speculativeConfig = { method: 'mtp', num_speculative_tokens: 2 };
    const plain = await sizeOf(path, ...limits);
    const drafting = await sizeOf(path, ...limits, '--speculative-config', JSON.stringify(speculativeConfig));
    const layer = [...(await readGguf(path)).predictionTensors.values()];
    const layerBytes = layer.reduce((sum, { byteLength }) => sum + byteLength, 0);
    expect(layerBytes).toBeGreaterThan(0);
    expect(drafting.weightBytes - plain.weightBytes).toBe(layerBytes);
    // Three layers and one more.
    const { bytes, blocks } = drafting.pools.at(-1)!;
    const plainPool = plain.pools.at(-1)!;
    expect([3 * bytes, blocks]).toEqual([4 * plainPool.bytes, plainPool.blocks]);
    expect(drafting.storedBytesPerToken).toBe(plain.storedBytesPerToken);
    const engine = await createEngine({ model: path, threads: 1, kvCacheMemory: bytes, speculativeConfig });
    expect(engine.stats().blocks.total).toBe(blocks - 1);
    await engine.close();
    const other = await runHere([
      'size',
      'models/kvasir-demo.gguf',
      '--speculative-config',
      JSON.stringify(speculativeConfig),
    ]);
    expect(other.stderr).toMatch(/nextn_predict_layers is 0/);
  });

  it('needs half of the KV with q8_0, and refuses other files', async () => {
    const path = 'models/kvasir-demo.gguf';
    const [half, full] = [await sizeOf(path, '--kv-cache-dtype', 'q8_0'), await sizeOf(path)];
    expect(half.storedBytesPerToken / full.storedBytesPerToken).toBeCloseTo(34 / 64);
    const wrong = await runHere(['size', 'package.json']);
    expect([wrong.code, wrong.stdout]).toEqual([1, '']);
    expect(wrong.stderr).toMatch(/^error: /);
    expect((await runHere(['size', path, '--memory', 'much'])).code).toBe(2);
  });

  it('shows the layers that fit on a GPU, with the KV that fits beside them', async () => {
    const model = ['models/kvasir-demo.gguf', '--max-model-len', '2K', '--max-num-seqs', '8'];
    // Whether or not there is a GPU.
    const { gpu: given, ...plain } = await sizeOf(...model, '--device', 'gpu', '--gpu-layers', '2');
    expect(given?.layers).toBe(2);
    const { divisions } = given!;
    expect(divisions.map(({ layers }) => layers)).toEqual([6, 5, 4, 3, 2, 1]);
    for (const { layers, onGpu, onCpu, poolBytes } of divisions) {
      // The embeddings are on both devices of a divided model.
      expect(onGpu.weightBytes + onCpu.weightBytes >= plain.weightBytes).toBe(true);
      expect(onGpu.blockBytes).toBe((layers * plain.blockBytes) / 6);
      expect(onCpu.blockBytes).toBe(plain.blockBytes - onGpu.blockBytes);
      // An eighth of the memory is the reserve.
      const least = Math.ceil(((onGpu.weightBytes + poolBytes) * 8) / 7);
      const { gpu, fit } = await sizeOf(...model, '--gpu-memory', `${least}`);
      expect([gpu?.layers, fit?.longest, gpu?.division]).toEqual([layers, 2048, divisions[6 - layers]]);
      expect((await sizeOf(...model, '--gpu-memory', `${least - 2}`)).gpu?.layers).toBe(layers - 1);
    }
    const few = ['--gpu-layers', '2', '--gpu-memory', '1GiB'];
    const { fit, processBytes } = await sizeOf(...model, ...few);
    expect(fit).toEqual({ sequences: 8, longest: 2048, poolBytes: plain.pools.at(-1)!.bytes });
    // The CPU has the KV of four layers.
    const { weightBytes, blockBytes } = divisions[4]!.onCpu;
    const memory = `${weightBytes + processBytes + 101 * blockBytes}`;
    const both = await sizeOf(...model, ...few, '--memory', memory);
    expect(both.fit).toMatchObject({ longest: 1600, leftBytes: 0, poolBytes: 101 * plain.blockBytes });
    const shown = await runHere(['size', ...model, ...few, '--memory', memory]);
    expect(shown.stdout).toContain('the last 2 of 6 on the GPU (--gpu-layers 2)\n');
    expect(shown.stdout).toMatch(/ and 1 GiB on the GPU: --gpu-layers 2 --kv-cache-memory \d+ /);
  });

  it('shows no GPU for an engine that uses none, and refuses the flags that serve refuses', async () => {
    const model = 'models/kvasir-demo.gguf';
    for (const flags of [
      ['--device', 'cpu'],
      ['--gpu-layers', '0'],
    ])
      expect((await sizeOf(model, '--gpu-memory', '1GiB', ...flags)).gpu).toBeUndefined();
    expect((await runHere(['size', model, '--device', 'cpu', '--gpu-layers', '2'])).stderr).toContain(
      '--gpu-layers 2 is not possible: --device cpu has no GPU.',
    );
    expect((await runHere(['size', model, '--gpu-memory', '1MiB'])).stdout).toContain('none fits');
    const shown = (await runHere(['size', model, '--device', 'gpu'])).stdout;
    expect(shown).toMatch(/^GPU +(none was found: with --gpu-memory|.*, of which .* stay free)/m);
  });
});

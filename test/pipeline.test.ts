/**
 * Pipelines with real weights: a model in stages computes the same bits as the whole model. Tokens, logits and KV are compared, with
 * prompts in chunks, in batches that grow and shrink, in decode steps, and with cached blocks.
 */
import { crc32 } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { blockId, NULL_BLOCK } from '../src/core/ids.ts';
import { readGguf } from '../src/ggml/gguf.ts';
import { readModelConfig } from '../src/ggml/model-config.ts';
import { kvTypes } from '../src/runner/kv-memory.ts';
import { stageWeightBytes } from '../src/runner/stage-weights.ts';
import { computeHere } from './support/compute-here.ts';
import {
  Drive,
  type DriveRequest,
  openRunner,
  openStages,
  promptOf,
  type RunnerOverrides,
  type Stages,
  stagesOf,
} from './support/drive.ts';
import { hasCompiler } from './support/has-compiler.ts';
import { inLongForm, isLongForm, itInLongForm } from './support/long-form.ts';
import { measureGrowth } from './support/memory-growth.ts';
import { writeNanToken } from './support/nan-token.ts';
import { blockTable, runPrompt } from './support/run-prompt.ts';
import {
  gemma4WithExperts,
  longContexts,
  type ModelOptions,
  smallStates,
  temporaryFolder,
  writeTinyModel,
} from './support/tiny-model.ts';

computeHere();
const folder = temporaryFolder();
afterAll(() => folder.remove());

const blocks = 40;
const demoModel = 'models/kvasir-demo.gguf';

const prompt = promptOf(90, 1);
/** Long and short prompts, a shared prefix, one prompt twice; they arrive while others decode. */
const usualRequests: DriveRequest[] = [
  { id: 'long', prompt, params: { maxTokens: 12 } },
  { id: 'seeded', prompt: promptOf(17, 2), params: { maxTokens: 9, temperature: 0.8, topP: 0.95, seed: 42n } },
  { id: 'one token', prompt: promptOf(1, 3), params: { maxTokens: 14 } },
  { id: 'shared prefix', prompt: [...prompt.slice(0, 50), ...promptOf(20, 4)], params: { maxTokens: 7 } },
  { id: 'the same again', prompt, params: { maxTokens: 5 } },
];

/** All results of a drive, and the content of the pool after it. */
async function computedBy(drive: Drive, requests: readonly DriveRequest[]) {
  for (const { memory } of drive.stages) {
    for (let block = 0; block < blocks; block++) memory.bytesOf(blockId(block)).fill(0);
  }
  const traces = await drive.run(requests, { blocks, maxNumBatchedTokens: 16, arrive: (index) => index * 3 });
  return {
    steps: drive.steps,
    traces: [...traces].map(([id, { tokens, logits, blocks }]) => ({ id, tokens, logits, blocks })),
    cached: [...traces.values()].map(({ stats }) => stats?.cachedTokens),
    // Padding rows write to the null block, and each stage may pad differently. With several KV groups, stages have the layers in
    // other places than the whole model; the traces have the checksums of the layers.
    pool:
      drive.runner.kvCacheSpec.groups.length > 1
        ? []
        : Array.from({ length: blocks - 1 }, (_, index) => blockAt(drive, index + 1)),
  };
}

/** The prompt without the NaN token. */
const withoutNan = (prompt: ArrayLike<number>): number[] => Array.from(prompt, (token) => (token === 77 ? 78 : token));

const blockAt = ({ stages }: Drive, block: number): Buffer =>
  Buffer.concat(stages.map(({ memory }) => memory.bytesOf(blockId(block))));

async function expectEqualOverStages(
  path: string,
  overrides: RunnerOverrides = {},
  requests: readonly DriveRequest[] = usualRequests,
  divisions: readonly Stages[] = inLongForm([2, 3], [3]),
): Promise<void> {
  const options = { kvCacheBytes: (blockBytes: number): number => blocks * blockBytes, ...overrides };
  const whole = await Drive.open(path, { ...options, stageCount: 1 });
  const expected = await computedBy(whole, requests);
  expect(Math.max(...expected.cached.map((tokens) => tokens ?? 0)), 'tokens from the prefix cache').toBeGreaterThan(0);
  expect(whole.largestBatch).toBeGreaterThan(2);
  const hasPool = expected.pool.length > 0;
  if (hasPool) expect(expected.pool.filter((block) => block.some((byte) => byte !== 0)).length).toBeGreaterThan(6);
  expect(expected.traces.reduce((sum, trace) => sum + trace.blocks.size, 0)).toBeGreaterThan(6);
  await whole.close();
  for (const stageCount of divisions) {
    const split = await Drive.open(path, { ...options, stageCount });
    const { pool, ...computed } = await computedBy(split, requests);
    expect(computed).toEqual({ ...expected, pool: undefined });
    const wrong = pool.flatMap((block, index) => (block.equals(expected.pool[index]!) ? [] : [index + 1]));
    expect(wrong, 'blocks with other bytes').toEqual([]);
    await split.close();
  }
}

describe('a model in two and in three stages computes the same bits as the whole model', () => {
  // Each architecture and each type of weights; a stage boundary is between layers, with any kernel.
  const models: [string, Omit<ModelOptions, 'layers'>][] = [
    ['llama, F16', { architecture: 'llama', type: 'F16', ropeScaling: 'llama3' }],
    ['qwen2, Q8_0', { architecture: 'qwen2', type: 'Q8_0', tied: true }],
    ['qwen3, Q4_K', { architecture: 'qwen3', type: 'Q4_K' }],
    ['gemma3, Q8_0', { architecture: 'gemma3', type: 'Q8_0' }],
    // With three stages, one has no layer with attention.
    ['lfm2, Q8_0', { architecture: 'lfm2', type: 'Q8_0' }],
    ['qwen35moe, Q8_0', { architecture: 'qwen35moe', type: 'Q8_0', ...smallStates }],
    ['granitehybrid, Q8_0', { architecture: 'granitehybrid', type: 'Q8_0', ...smallStates }],
    ['qwen3moe, Q4_K and Q6_K', { architecture: 'qwen3moe', type: 'Q4_K_M' }],
    ['deepseek2, Q8_0', { architecture: 'deepseek2', type: 'Q8_0', ropeScaling: 'yarn' }],
    ['gpt-oss, MXFP4', { architecture: 'gpt-oss', type: 'MXFP4', ropeScaling: 'yarn' }],
    ['llama, Q4_K and Q6_K', { architecture: 'llama', type: 'Q4_K_M', tied: true }],
  ];
  if (isLongForm) {
    models.push(
      // As qwen35moe, without experts.
      ['qwen35, Q8_0', { architecture: 'qwen35', type: 'Q8_0', ...smallStates }],
      [
        'qwen35moe with prediction layers',
        { architecture: 'qwen35moe', type: 'Q8_0', ...smallStates, predictionLayers: 1 },
      ],
      ['qwen3next, Q8_0', { architecture: 'qwen3next', type: 'Q8_0', ...smallStates }],
      // With three stages, the last is a network: it has neither K and V nor states.
      [
        'nemotron_h_moe, Q8_0',
        { architecture: 'nemotron_h_moe', type: 'Q8_0', ...smallStates, stateLayers: [0, 3], networkLayers: [1, 4] },
      ],
      // The last stage has the layer that shares KV, and the two layers before it.
      ['gemma4, Q8_0', { architecture: 'gemma4', type: 'Q8_0', gemma4: { sharedLayers: 1 } }],
      ['gemma4 with experts, Q8_0', { architecture: 'gemma4', type: 'Q8_0', ...gemma4WithExperts }],
      ['smollm3, Q8_0', { architecture: 'smollm3', type: 'Q8_0' }],
      ['olmo2, Q8_0', { architecture: 'olmo2', type: 'Q8_0', ...longContexts.olmo2 }],
      ['glm4, Q8_0', { architecture: 'glm4', type: 'Q8_0' }],
      ['phi3, Q8_0', { architecture: 'phi3', type: 'Q8_0', ...longContexts.phi3 }],
      ['mistral3, Q8_0', { architecture: 'mistral3', type: 'Q8_0', ...longContexts.mistral3 }],
    );
  }

  // The short form has every third one.
  it.each(models.filter((_, index) => isLongForm || index % 3 === 0))('with %s weights', async (name, options) => {
    const path = folder.file(`${name}.gguf`);
    await writeTinyModel(path, { ...options, layers: 5 });
    await expectEqualOverStages(path, { stateCheckpointTokens: 16 });
  });

  it('with layers of several types, whose stages pad differently from the whole model', async () => {
    const path = folder.file('mixed.gguf');
    const typeOfLayer = (layer: number) => (['F32', 'Q8_0', 'Q4_K', 'F16', 'Q8_0'] as const)[layer];
    await writeTinyModel(path, { architecture: 'llama', type: 'Q8_0', layers: 5, typeOfLayer });
    await expectEqualOverStages(path);
  });

  it('with stages of unequal size, as between a CPU and a GPU', async () => {
    const path = folder.file('unequal.gguf');
    // Three groups: the second stage of the first division has no layer of one of them.
    await writeTinyModel(path, { architecture: 'gemma3', type: 'Q8_0', layers: 5 });
    await expectEqualOverStages(path, {}, usualRequests, inLongForm([[4], [1], [1, 3]], [[4]]));
  });

  it('in a batch with a prompt whose logits are NaN', async () => {
    const path = folder.file('nan.gguf');
    await writeTinyModel(path, { architecture: 'llama', type: 'F32', layers: 5 });
    await writeNanToken(path, 77);
    const withNan = { id: 'nan', prompt: [5, 77, 6], params: { maxTokens: 5 } };
    await expectEqualOverStages(path, {}, [
      withNan,
      ...usualRequests.map((r) => ({ ...r, prompt: withoutNan(r.prompt) })),
    ]);
  });

  itInLongForm('with the demo model', () => expectEqualOverStages(demoModel));

  it("with ggml's attention over gathered blocks", () => expectEqualOverStages(demoModel, { attention: 'gather' }));

  it('with KV of type q8_0', () => expectEqualOverStages(demoModel, { kvType: kvTypes.q8_0 }));
});

describe('a stage', () => {
  let untied: string;
  let tied: string;

  beforeAll(async () => {
    untied = folder.file('untied.gguf');
    tied = folder.file('tied.gguf');
    await writeTinyModel(untied, { architecture: 'qwen3', type: 'F16', layers: 5 });
    await writeTinyModel(tied, { architecture: 'qwen3', type: 'F16', layers: 5, tied: true });
  });

  /** The bytes that each stage has reported as read. */
  const bytesRead = async (path: string, stageCount: Stages): Promise<number[]> => {
    const seen: { loaded: number; total: number }[] = [];
    const last = { loaded: 0, total: 0 };
    const onProgress = (loaded: number, total: number): void => {
      if (loaded < last.loaded) seen.push({ ...last });
      Object.assign(last, { loaded, total });
    };
    const stages = await openStages(path, stageCount, { onProgress });
    seen.push({ ...last });
    for (const stage of stages) await stage.close();
    for (const { loaded, total } of seen) expect(loaded).toBe(total);
    return seen.map(({ loaded }) => loaded);
  };
  const sum = (values: readonly number[]): number => values.reduce((a, b) => a + b, 0);

  it('reads its own layers; the first stage also reads the embedding, and the last the output matrix', async () => {
    const { tensors } = await readGguf(untied);
    const bytesOf = (pattern: RegExp): number =>
      sum([...tensors.values()].filter(({ name }) => pattern.test(name)).map(({ byteLength }) => byteLength));
    expect(await bytesRead(untied, 3)).toEqual([
      bytesOf(/^(token_embd|blk\.[01]\.)/),
      bytesOf(/^blk\.[23]\./),
      bytesOf(/^(output|blk\.4\.)/),
    ]);
  });

  it('reads the embedding in the last stage if it is also the output matrix', async () => {
    const embedding = (await readGguf(tied)).tensors.get('token_embd.weight')!.byteLength;
    const [whole] = await bytesRead(tied, 1);
    expect(sum(await bytesRead(tied, 3))).toBe(whole! + embedding);
  });

  it('reads as many bytes as are counted before it is loaded, of which a GPU needs room', async () => {
    const gemma4 = folder.file('gemma4.gguf');
    await writeTinyModel(gemma4, { architecture: 'gemma4', type: 'Q8_0', layers: 5, gemma4: { sharedLayers: 1 } });
    for (const [path, stages] of [
      [untied, [4]],
      [tied, [1, 2]],
      [gemma4, [1]],
    ] as const) {
      const file = await readGguf(path);
      const config = readModelConfig(file);
      const counted = stagesOf(config, stages).map((stage) => stageWeightBytes(file, config, stage, false));
      expect(await bytesRead(path, stages)).toEqual(counted);
    }
  });

  it('of a model on several devices has a fingerprint with their layers, and the numerics of its own device', async () => {
    const open = (placement?: string) => openRunner(tied, { kvCacheBytes: () => 1 << 20, placement });
    const specs = [];
    for (const placement of [undefined, 'cpu 0-2, gpu 2-5', 'cpu 0-3, gpu 3-5']) {
      const runner = await open(placement);
      specs.push(runner.kvCacheSpec);
      await runner.close();
    }
    expect(new Set(specs.map(({ fingerprint }) => fingerprint)).size).toBe(3);
    expect(specs.map(({ numerics }) => numerics?.split(',')[0])).toEqual([undefined, 'exact', 'exact']);
  });

  it("has KV of its own layers, the requested number of blocks, and the whole model's fingerprint", async () => {
    const blockCount = 37;
    const kvCacheBytes = (blockBytes: number): number => blockCount * blockBytes;
    const whole = await openRunner(untied, { kvCacheBytes });
    const stages = await openStages(untied, 3, { kvCacheBytes });
    const specs = stages.map(({ kvCacheSpec }) => kvCacheSpec);
    expect(specs.map(({ groups }) => groups[0]?.layers)).toEqual([[0, 1], [2, 3], [4]]);
    expect(sum(specs.map(({ blockBytes }) => blockBytes))).toBe(whole.kvCacheSpec.blockBytes);
    for (const spec of specs) {
      expect(spec.blockCount).toBe(blockCount);
      expect(spec.fingerprint).toBe(whole.kvCacheSpec.fingerprint);
    }
    for (const runner of [whole, ...stages]) await runner.close();
  });

  it('before the last stage samples nothing and returns all hidden states, which the next step does not change', async () => {
    const [first, last] = await openStages(untied, 2);
    const table = blockTable(1, 6);
    const { sampled, hidden } = await runPrompt(first!, prompt, table);
    expect(sampled).toEqual([undefined]);
    expect(hidden).toHaveLength(prompt.length * 256);
    const kept = hidden!.slice();
    const other = await runPrompt(first!, promptOf(90, 5), table);
    expect(other.hidden).not.toEqual(kept);
    expect(hidden).toEqual(kept);
    for (const stage of [first!, last!]) await stage.close();
  });

  it.each(['auto', 'gather'] as const)(
    'computes the same bits with any content of the null block: attention %s',
    async (attention) => {
      const runner = await openRunner(untied, { attention });
      const computed = async (nullBlockByte: number): Promise<unknown> => {
        const tokens: unknown[] = [];
        for (let block = 1; block < 8; block++) runner.memory.bytesOf(blockId(block)).fill(0);
        // Single rows and chunks of a prompt are padded.
        for (const spans of [[[0, 1]], [[1, 67]], [[67, 90]], [[89, 90]]] as const) {
          runner.memory.bytesOf(NULL_BLOCK).fill(nullBlockByte);
          tokens.push((await runPrompt(runner, prompt, blockTable(1, 6), spans)).sampled);
        }
        const checksums = Array.from({ length: 7 }, (_, index) => crc32(runner.memory.bytesOf(blockId(index + 1))));
        return { tokens, checksums };
      };
      const expected = await computed(0);
      // 0xffff is NaN as F16.
      expect(await computed(0xff)).toEqual(expected);
      await runner.close();
    },
  );

  it('pads hidden states with zeros, not with values of the last step', async () => {
    const attention = hasCompiler ? 'native' : 'gather';
    const [first, last] = await openStages(untied, 2, { attention });
    await runPrompt(last!, prompt.slice(0, 2), blockTable(1, 1), undefined, new Float32Array(2 * 256).fill(Number.NaN));
    await runPrompt(last!, prompt.slice(0, 1), blockTable(2, 1), undefined, new Float32Array(256).fill(1));
    const nullBlock = last!.memory.bytesOf(NULL_BLOCK);
    // ggml's attention computes no padding rows: only the first layer of the stage has KV of the zero rows.
    const layerBytes = last!.memory.blockBytes / last!.memory.layout.layerCount;
    const bytes = attention === 'native' ? nullBlock : nullBlock.subarray(0, layerBytes);
    const f16 = new Uint16Array(bytes.buffer, bytes.byteOffset, bytes.byteLength / 2);
    expect(f16.filter((bits) => (bits & 0x7c00) === 0x7c00)).toHaveLength(0);
    for (const stage of [first!, last!]) await stage.close();
  });

  it('accepts either tokens or hidden states, with one row for each token', async () => {
    const [first, last] = await openStages(untied, 2);
    const table = blockTable(1, 6);
    const { hidden } = await runPrompt(first!, prompt, table);
    await expect(runPrompt(first!, prompt, table, undefined, hidden)).rejects.toThrow(
      'the first stage has no hidden states',
    );
    await expect(runPrompt(last!, prompt, table)).rejects.toThrow('the first stage has no hidden states');
    await expect(runPrompt(last!, prompt, table, undefined, hidden!.subarray(256))).rejects.toThrow(
      'one row of hidden',
    );
    for (const stage of [first!, last!]) await stage.close();
  });
});

describe('opening and closing stages', () => {
  it('does not leak memory', async () => {
    const path = folder.file('leak.gguf');
    await writeTinyModel(path, { architecture: 'llama', type: 'F16', layers: 6 });
    const openAndClose = async (times: number): Promise<void> => {
      for (let i = 0; i < times; i++) {
        const stages = await openStages(path, 3);
        await runPrompt(stages[0]!, prompt, blockTable(1, 6));
        for (const stage of stages) await stage.close();
      }
    };
    await openAndClose(1);
    const { native } = await measureGrowth(openAndClose, { windows: 4, unitsPerWindow: 1 });
    // Each round has 24 MB of KV and 8 MB of weights.
    expect(native).toBeLessThan(1 << 20);
  });
});

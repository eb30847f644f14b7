/**
 * I2 with real weights: a request's tokens, logits and KV have the same bits alone, in every batch and with every chunk size.
 * The prefix cache and preemptions do not change them either.
 */
import { crc32 } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { blockId } from '../src/core/ids.ts';
import { weightTypeNames } from '../src/ggml/types.ts';
import { kvTypes } from '../src/runner/kv-memory.ts';
import { computeHere } from './support/compute-here.ts';
import { Drive, openRunner, promptOf, type RequestTrace, type RunnerOverrides } from './support/drive.ts';
import { inLongForm, isLongForm } from './support/long-form.ts';
import { blockTable, runPrompt } from './support/run-prompt.ts';
import { fewLayers, isHybrid, temporaryFolder, writeTinyModel } from './support/tiny-model.ts';

computeHere();
const folder = temporaryFolder();
afterAll(() => folder.remove());

const prompt = promptOf(150, 1);
const maxTokens = inLongForm(40, 24);
const subject = { id: 'subject', prompt, params: { maxTokens } };
/** Long enough that others preempt it. */
const seeded = { id: 'subject', prompt, params: { maxTokens: 40, temperature: 0.8, topP: 0.95, seed: 42n } };
/** Fifteen other requests of many lengths; some share a prefix with the subject. */
const others = Array.from({ length: 15 }, (_, i) => ({
  id: `other ${i}`,
  prompt: i % 5 === 0 ? [...prompt.slice(0, 20 + 7 * i), ...promptOf(30, i + 50)] : promptOf(1 + 13 * i, i + 50),
  params: { maxTokens: 5 + inLongForm(3, 2) * i },
}));

/** Enough for all requests at once, and not more: the invariants are checked in each step, which takes time for each block. */
const kvCacheBytes = (blockBytes: number): number => Math.max(8 << 20, 256 * blockBytes);

// Each way of quantizing activations (none, blocks of 32, blocks of 256) and each type of KV. All types of weights are below.
const allModels = [
  ['llama', 'F16', 'f16', 'our', 'native'],
  ['llama', 'Q8_0', 'f16', 'our', 'native'],
  ['llama', 'Q4_K_M', 'q8_0', 'our', 'native'],
  // As on a CPU without our kernels: ggml pads a batch, and has another kernel for a single row.
  ['llama', 'Q4_K', 'f16', "ggml's", 'native'],
  ['qwen3moe', 'Q8_0', 'f16', 'our', 'native'],
  ['qwen3moe', 'Q4_K', 'f16', "ggml's", 'native'],
  // Its prompt is longer than three windows.
  ['gemma3', 'Q8_0', 'f16', 'our', 'native'],
  ['gemma3', 'F16', 'f16', "ggml's", 'gather'],
  // Heads of two shapes in blocks of 16 and 32 tokens, layers that share KV, embeddings of each layer; experts beside networks.
  ['gemma4', 'Q8_0', 'f16', 'our', 'native'],
  ['gemma4', 'F16', 'f16', "ggml's", 'gather'],
  ['gemma4', 'Q4_K_M', 'q8_0', 'our', 'native'],
  ['gpt-oss', 'MXFP4', 'f16', 'our', 'native'],
  ['gpt-oss', 'MXFP4', 'f16', "ggml's", 'gather'],
  ['deepseek2', 'Q4_K_M', 'f16', 'our', 'native'],
  ['deepseek2', 'F16', 'q8_0', "ggml's", 'gather'],
  // Steps end before, at and after checkpoints.
  // The bundled model: states, windows and full attention.
  ['lfm2', 'Q8_0', 'f16', 'our', 'native'],
  ['lfm2', 'F16', 'f16', "ggml's", 'gather'],
  ['granitehybrid', 'Q8_0', 'f16', 'our', 'native'],
  ['granitehybrid', 'F16', 'f16', "ggml's", 'gather'],
  ['granite', 'Q8_0', 'f16', 'our', 'native'],
  ['granitemoe', 'Q4_K_M', 'f16', 'our', 'native'],
  ['granitemoe', 'F16', 'f16', "ggml's", 'gather'],
  ['qwen2vl', 'Q8_0', 'f16', 'our', 'native'],
  ['qwen3vl', 'F16', 'f16', "ggml's", 'gather'],
  ['qwen3vlmoe', 'Q8_0', 'f16', 'our', 'native'],
  // Layers that are only a network, the last of them.
  ['nemotron_h', 'F16', 'f16', "ggml's", 'gather'],
  ['nemotron_h_moe', 'Q8_0', 'f16', 'our', 'native'],
  ['qwen35', 'F16', 'f16', "ggml's", 'gather'],
  ['qwen35moe', 'Q8_0', 'f16', 'our', 'native'],
  ['qwen3next', 'Q8_0', 'f16', 'our', 'native'],
  ['qwen3next', 'Q8_0', 'f16', "ggml's", 'gather'],
  // Layers without RoPE; windows and norms of all heads together; LongRoPE and fused matrices; a temperature.
  ['smollm3', 'Q8_0', 'f16', 'our', 'native'],
  ['olmo2', 'Q8_0', 'f16', 'our', 'native'],
  ['olmo2', 'F16', 'f16', "ggml's", 'gather'],
  ['glm4', 'Q4_K_M', 'f16', 'our', 'native'],
  ['glm4moe', 'Q8_0', 'f16', 'our', 'native'],
  ['lfm2moe', 'Q8_0', 'f16', 'our', 'native'],
  ['phi3', 'Q8_0', 'q8_0', 'our', 'native'],
  ['phi3', 'F16', 'f16', "ggml's", 'gather'],
  ['mistral3', 'Q8_0', 'f16', 'our', 'native'],
  ['mistral3', 'F16', 'f16', "ggml's", 'gather'],
] as const;
const shortForm =
  /llama (Q8_0|Q4_K) |gemma3 F16|gemma4 Q8_0|gpt-oss MXFP4 our|deepseek2 Q4_K_M|lfm2 Q8_0|qwen35moe|nemotron_h_moe|mistral3 Q8_0/;
const models = allModels.filter(
  ([architecture, type, , matmuls]) => isLongForm || shortForm.test(`${architecture} ${type} ${matmuls}`),
);

/** A checkpoint in each second block. */
const stateCheckpointTokens = 32;
const name = '%s with %s weights, KV of type %s, %s matmuls and %s attention';
describe.each(models)(`a request to ${name}`, (architecture, type, kvCacheDtype, matmuls, attention) => {
  const hasStates = isHybrid(architecture);
  let drive: Drive;
  let alone: RequestTrace;
  let aloneSeeded: RequestTrace;
  let path: string;
  let overrides: RunnerOverrides;
  const subjectOf = (traces: Map<string, RequestTrace>) => traces.get('subject')!;

  beforeAll(async () => {
    const isBundled = architecture === 'lfm2' && type === 'Q8_0';
    path = isBundled ? 'models/kvasir-hybrid.gguf' : folder.file(`${architecture}-${type}.gguf`);
    if (!isBundled) await writeTinyModel(path, { architecture, type, ...fewLayers(architecture, type) });
    const matmulKernels = matmuls === 'our';
    const kvType = kvTypes[kvCacheDtype];
    overrides = { kvCacheBytes, kvType, matmulKernels, attention, stateCheckpointTokens };
    drive = await Drive.open(path, overrides);
    alone = subjectOf(await drive.run([subject]));
    aloneSeeded = subjectOf(await drive.run([seeded]));
    return () => drive.close();
  });

  const expectSame = (trace: RequestTrace, reference = alone): void => {
    expect(trace.tokens).toEqual(reference.tokens);
    expect(trace.logits).toEqual(reference.logits);
    for (const [index, crc] of trace.blocks) expect(crc, `KV of block ${index}`).toBe(reference.blocks.get(index));
  };

  it('has distinct logits and full blocks to compare', () => {
    expect(alone.tokens).toHaveLength(maxTokens);
    expect(new Set(alone.logits).size).toBe(maxTokens);
    const fullBlocks = drive.runner.kvCacheSpec.groups.map(({ blockSize }) =>
      Math.floor((prompt.length + maxTokens - 1) / blockSize),
    );
    expect(alone.blocks.size).toBe(fullBlocks.reduce((sum, count) => sum + count));
    expect(aloneSeeded.tokens).not.toEqual(alone.tokens);
  });

  it('has the same bits if the weights are mapped', async () => {
    const mapped = await Drive.open(path, { ...overrides, mmap: true });
    expectSame(subjectOf(await mapped.run([subject])));
    expectSame(subjectOf(await mapped.run([...others.slice(0, 3), subject])));
    expect(mapped.runner.kvCacheSpec.fingerprint).toBe(drive.runner.kvCacheSpec.fingerprint);
    await mapped.close();
  });

  it.each(inLongForm([1, 7, 64, 512], [1]))(
    'has the same bits with steps of %i tokens',
    async (maxNumBatchedTokens) => {
      expectSame(subjectOf(await drive.run([subject], { maxNumBatchedTokens })));
      expectSame(subjectOf(await drive.run([seeded], { maxNumBatchedTokens })), aloneSeeded);
    },
  );

  it.each(inLongForm([7, 64, 512], [64]))(
    'has the same bits in a batch of 16 with steps of %i tokens',
    async (maxNumBatchedTokens) => {
      const traces = await drive.run([...others.slice(0, 8), subject, ...others.slice(8)], { maxNumBatchedTokens });
      expectSame(subjectOf(traces));
      if (maxNumBatchedTokens === 512) expect(drive.largestBatch).toBe(16);
    },
  );

  it('has the same bits in a batch of 16 requests that start and end at different steps', async () => {
    const arrive = (index: number): number => (index * 5) % 23;
    expectSame(subjectOf(await drive.run([seeded, ...others], { maxNumBatchedTokens: 64, arrive })), aloneSeeded);
  });

  it('has the same bits with a prefix hit, and with a hit of the full prompt', async () => {
    const first = { id: 'first', prompt: prompt.slice(0, 100), params: { maxTokens: 3 } };
    const hit = await drive.run([first, subject], { arrive: (index) => index * 20 });
    expect(subjectOf(hit).stats?.cachedTokens).toBe(96);
    expectSame(subjectOf(hit));
    const whole = { id: 'first', prompt, params: { maxTokens } };
    const full = await drive.run([whole, subject], { arrive: (index) => index * 100 });
    // The last block of a prompt is never whole in the cache.
    const largestBlock = Math.max(...drive.runner.kvCacheSpec.groups.map(({ blockSize }) => blockSize));
    expect(subjectOf(full).stats?.cachedTokens).toBe(Math.floor((prompt.length - 1) / largestBlock) * largestBlock);
    expectSame(subjectOf(full));
  });

  it('has the same bits without the prefix cache', async () => {
    expectSame(subjectOf(await drive.run([...others, subject], { enablePrefixCaching: false })));
  });

  it.each(inLongForm([true, false], [true]))(
    'has the same bits when it is preempted and resumed (prefix cache: %s)',
    async (enablePrefixCaching) => {
      // The subject is admitted last, and the pool is too small for all four requests.
      const rivals = Array.from({ length: 3 }, (_, i) => ({
        id: `rival ${i}`,
        prompt: promptOf(90, i + 90),
        params: { maxTokens: 60 },
      }));
      const stateGroups = drive.runner.kvCacheSpec.groups.filter(({ kind }) => kind === 'state');
      // With states, each of the four requests also has the blocks of its window.
      const ofWindows = drive.runner.kvCacheSpec.groups.map((group) =>
        hasStates && group.kind === 'window' ? 2 + 4 * Math.ceil(group.window / group.blockSize) : 0,
      );
      // Blocks of other layouts have more tokens, and a request has fewer of them.
      const ofOthers = architecture === 'gemma4' ? (type === 'Q4_K_M' ? 14 : 22) : 0;
      const blocks = [34, 42, 46][stateGroups.length]! + ofOthers + ofWindows.reduce((sum, count) => sum + count);
      const traces = await drive.run([...rivals, seeded], { blocks, enablePrefixCaching, maxNumBatchedTokens: 64 });
      expect(subjectOf(traces).stats?.preemptions).toBeGreaterThan(0);
      expectSame(subjectOf(traces), aloneSeeded);
    },
  );
});

describe('a request on one layer', () => {
  // One layer is enough: types differ in the matmul of a single row and of a batch.
  const short = { id: 'subject', prompt: prompt.slice(0, 70), params: { maxTokens: 24 } };
  const neighbours = others.slice(0, 6).map((other) => ({ ...other, params: { maxTokens: 6 } }));
  /** At the end they have 15 blocks and the subject 6, so a pool of 20 preempts the subject, which is admitted last. */
  const rivals = [1, 2, 3].map((i) => ({ id: `rival ${i}`, prompt: promptOf(40, i + 90), params: { maxTokens: 40 } }));

  /** With F32, ggml computes the matmuls in any case. */
  const typesWithKernels = weightTypeNames.filter((type) => type !== 'F32');
  const typesOf = (architecture: 'llama' | 'qwen3moe') => [
    ...weightTypeNames.map((type) => [architecture, type, 'default'] as const),
    ...typesWithKernels.map((type) => [architecture, type, "ggml's"] as const),
  ];
  /** Experts have kernels of their own, and ggml's function for experts is one for all types. */
  const ofExperts = typesOf('qwen3moe').filter(
    ([, type, matmuls]) => matmuls === 'default' && typesWithKernels.some((name) => name === type),
  );
  /** The models above have ggml's matmuls, too. */
  const ofNetworks = typesOf('llama').filter(([, , matmuls]) => matmuls === 'default');
  const types = [...inLongForm(typesOf('llama'), ofNetworks), ...inLongForm(typesOf('qwen3moe'), ofExperts)];
  // The default form has every third one.
  it.each(types.filter((_, index) => isLongForm || index % 3 === 0))(
    'of %s with %s weights and %s matmuls has the same bits alone, in chunks, in a batch and after a preemption',
    async (architecture, type, matmuls) => {
      const path = folder.file(`one-layer-${architecture}-${type}.gguf`);
      await writeTinyModel(path, { architecture, type, layers: 1, feedForward: 256 });
      const drive = await Drive.open(path, { kvCacheBytes, matmulKernels: matmuls === 'default' });
      const [alone, chunked, batch, preempted] = [
        await drive.run([short]),
        await drive.run([short], { maxNumBatchedTokens: 7 }),
        await drive.run([...neighbours, short], { maxNumBatchedTokens: 64 }),
        await drive.run([...rivals, short], { maxNumBatchedTokens: 64, blocks: 20 }),
      ].map((traces) => traces.get('subject')!);
      await drive.close();
      expect(new Set(alone!.logits).size).toBe(24);
      expect(preempted!.stats?.preemptions).toBeGreaterThan(0);
      for (const { tokens, logits, blocks } of [chunked!, batch!, preempted!]) {
        expect({ tokens, logits }).toEqual({ tokens: alone!.tokens, logits: alone!.logits });
        for (const [index, crc] of blocks) expect(crc, `KV of block ${index}`).toBe(alone!.blocks.get(index));
      }
    },
  );
});

describe('several spans of one request in one step', () => {
  it('fill holes with the KV and the logits of the first computation', async () => {
    const path = folder.file('holes.gguf');
    await writeTinyModel(path, { architecture: 'qwen3', type: 'Q8_0' });
    const rows: number[] = [];
    const runner = await openRunner(path, {
      onLogits: (_, row) => rows.push(crc32(new Uint8Array(row.buffer, row.byteOffset, row.byteLength))),
    });
    const table = blockTable(1, 10);
    const crcs = (): number[] => Array.from(table.ids, (id) => crc32(runner.memory.bytesOf(blockId(id))));
    await runPrompt(runner, prompt, table);
    const before = crcs();

    for (const invalid of [0, 3, 4, 7]) runner.memory.bytesOf(blockId(table.ids[invalid]!)).fill(0xab);
    await runPrompt(runner, prompt, table, [
      [0, 16],
      [48, 80],
      [112, 128],
      [149, 150],
    ]);
    expect(crcs()).toEqual(before);
    expect(rows[1]).toBe(rows[0]);
    await runner.close();
  });
});

describe('contexts for which ggml changes its attention kernel', () => {
  const long = { id: 'subject', prompt: promptOf(700, 3), params: { maxTokens: 8 } };
  let path: string;

  beforeAll(async () => {
    path = folder.file('long.gguf');
    await writeTinyModel(path, { architecture: 'qwen3', type: 'Q8_0' });
  });

  const tracesOf = async (threads: number, model = path, options: RunnerOverrides = {}): Promise<RequestTrace[]> => {
    const drive = await Drive.open(model, { numerics: 'exact', threads, ...options });
    const traces: RequestTrace[] = [];
    for (const maxNumBatchedTokens of inLongForm([512, 64, 63, 100], [512, 63])) {
      traces.push((await drive.run([long], { maxNumBatchedTokens })).get('subject')!);
    }
    await drive.close();
    return traces;
  };

  it('have the same bits with every chunk size, with one thread and with two', async () => {
    const [reference, ...rest] = [...(await tracesOf(1)), ...(await tracesOf(2))];
    for (const trace of rest) {
      expect(trace.logits).toEqual(reference!.logits);
      expect(trace.blocks).toEqual(reference!.blocks);
    }
  });

  it('have other bits with fast numerics, which shows that these tests detect a difference', async () => {
    // Our kernels are exact with fast numerics too. ggml's kernels for repacked Q4_K compute the rows after a multiple of four differently.
    const repacked = folder.file('repacked.gguf');
    await writeTinyModel(repacked, { architecture: 'qwen3', type: 'Q4_K' });
    const [reference, ...rest] = await tracesOf(1, repacked, { numerics: 'fast', matmulKernels: false });
    expect(rest.some((trace) => trace.logits.join() !== reference!.logits.join())).toBe(true);
  });
});

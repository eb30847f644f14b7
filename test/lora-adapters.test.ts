/** LoRA adapters on real weights: the logits are libllama's, and a request has the same bits whatever else is in its batch (I2, I10). */
import { readFileSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type AdapterOptions, writeAdapter } from '../bench/make-model/adapter-maker.ts';
import type { ModelOptions } from '../bench/make-model/model-maker.ts';
import { peftPrompt, writePeftFiles } from '../scripts/real-models/peft-files.ts';
import type { AdapterRef } from '../src/core/request.ts';
import { TextSpeculator } from '../src/scheduler/speculation/text-speculator.ts';
import { compareWithLibllama, distance } from './support/compare-with-libllama.ts';
import { computeHere } from './support/compute-here.ts';
import { Drive, type DriveRequest, promptOf, type RequestTrace } from './support/drive.ts';
import { hasCompiler } from './support/has-compiler.ts';
import { inLongForm, isLongForm } from './support/long-form.ts';
import { needs } from './support/needs.ts';
import { smallStates, temporaryFolder, writeTinyModel } from './support/tiny-model.ts';

computeHere();
const folder = temporaryFolder();
afterAll(() => folder.remove());

interface Row extends Partial<ModelOptions> {
  readonly architecture: ModelOptions['architecture'];
  readonly type: ModelOptions['type'];
  readonly adapter?: AdapterOptions;
}

async function writeBoth(name: string, { adapter, ...options }: Row): Promise<[model: string, adapter: string]> {
  const [model, path] = [folder.file(`${name}.gguf`), folder.file(`${name}-lora.gguf`)];
  await writeTinyModel(model, options);
  await writeAdapter(path, model, adapter);
  return [model, path];
}

/**
 * With F32 models and adapters, nearly all bits are libllama's but for the order of sums. For adapters of other types, libllama rounds
 * activations. phi3, gemma3 and experts: see `reference.test.ts`.
 */
const compared: readonly (readonly [name: string, tolerance: number, row: Row])[] = [
  ['llama', 0.001, { architecture: 'llama', type: 'F32' }],
  ['llama, also embeddings and head', 0.001, { architecture: 'llama', type: 'F32', adapter: { changesEnds: true } }],
  ['llama, rank 12 in F16', 0.01, { architecture: 'llama', type: 'F32', adapter: { type: 'F16', rank: 12 } }],
  [
    'llama, without alpha in Q8_0',
    0.2,
    { architecture: 'llama', type: 'F32', adapter: { type: 'Q8_0', rank: 32, alpha: 0 } },
  ],
  ['qwen2 in Q8_0', 0.2, { architecture: 'qwen2', type: 'Q8_0' }],
  ['phi3, whose matrices are fused', 0.03, { architecture: 'phi3', type: 'F32', adapter: { type: 'BF16' } }],
  ['gemma3', 0.005, { architecture: 'gemma3', type: 'F32', layers: 3, windowPattern: 3 }],
  ['gemma4', 0.02, { architecture: 'gemma4', type: 'F32' }],
  ['nemotron_h', 0.01, { architecture: 'nemotron_h', type: 'F32', ...smallStates }],
  ['qwen3moe', 0.02, { architecture: 'qwen3moe', type: 'F32' }],
  // libllama ignores what an adapter adds to its other matrices.
  ['deepseek2', 0.01, { architecture: 'deepseek2', type: 'F32', adapter: { targets: /attn_output|ffn_/ } }],
  ['lfm2', 0.001, { architecture: 'lfm2', type: 'F32', layers: 3 }],
  ['granitehybrid', 0.001, { architecture: 'granitehybrid', type: 'F32', layers: 3, ...smallStates }],
  ['qwen35', 0.001, { architecture: 'qwen35', type: 'F32', layers: 3, ...smallStates }],
];
const ofShortForm = /^(llama|phi3|deepseek2|lfm2|qwen35)/;

for (const [_, options, areThere] of [
  ["ggml's kernels", { attention: 'gather', matmulKernels: false, repack: true }, true],
  ['our kernels', { attention: 'native', repack: true }, hasCompiler],
] as const)
  describe(`logits with an adapter and ${_} are those of libllama`, needs(areThere, 'no C compiler'), () => {
    const isOurs = options.attention === 'native';
    const isShown = (name: string): boolean => (isOurs ? /^llama(, also|$)/.test(name) : ofShortForm.test(name));
    const shown = compared.filter(([name]) => isLongForm || isShown(name));
    it.each(shown)('%s', async (name, tolerance, row) => {
      const [model, adapter] = await writeBoth(`${name} ${isOurs}`, row);
      const microBatch = isOurs ? 256 : 32;
      await compareWithLibllama(model, { options, adapter, microBatch, tolerance, nearTie: Math.max(0.05, tolerance) });
    });
  });

describe('logits with an adapter of all matrices, embeddings and head', needs(hasCompiler, 'no C compiler'), () => {
  it('are those of PEFT, beside requests without it', async () => {
    const recorded = JSON.parse(readFileSync('test/data/peft-logits.json', 'utf8')) as {
      readonly [Id in 'plain' | 'adapted']: readonly number[];
    };
    const { model, adapter: path } = await writePeftFiles(folder.path);
    const rows = new Map<string, Float32Array>();
    const drive = await Drive.open(model, {
      attention: 'native',
      onLogits: ({ requestId }, row) => void rows.set(requestId, row.slice()),
    });
    const adapter = await drive.load(path, 'all');
    const request = { prompt: Int32Array.from(peftPrompt), params: { maxTokens: 1 } };
    await drive.run([
      { ...request, id: 'plain' },
      { ...request, id: 'adapted', adapter },
    ]);
    await drive.close();
    for (const id of ['plain', 'adapted'] as const)
      expect(distance(rows.get(id)!, Float32Array.from(recorded[id])), id).toBeLessThan(0.006);
    expect(distance(rows.get('plain')!, Float32Array.from(recorded.adapted))).toBeGreaterThan(0.5);
  });
});

const prompt = promptOf(100, 1);
// More than the last block of the prompt has room for, so that requests need further blocks.
const maxTokens = inLongForm(24, 20);

const exact: readonly (readonly [string, Row, { readonly matmulKernels?: boolean; readonly stageCount?: number }])[] = [
  ['our kernels', { architecture: 'llama', type: 'Q8_0' }, {}],
  ['embeddings and head', { architecture: 'llama', type: 'Q8_0', adapter: { changesEnds: true, rank: 12 } }, {}],
  [
    'embeddings and head on two stages',
    { architecture: 'llama', type: 'Q8_0', adapter: { changesEnds: true } },
    { stageCount: 2, matmulKernels: false },
  ],
  [
    'embeddings that are the head too',
    { architecture: 'gemma3', type: 'Q8_0', layers: 3, windowPattern: 3, adapter: { changesEnds: true } },
    {},
  ],
  ['two stages', { architecture: 'llama', type: 'Q8_0', adapter: { targets: /blk\.1\.|attn_/ } }, { stageCount: 2 }],
  ['padded batches', { architecture: 'llama', type: 'Q4_K' }, { matmulKernels: false }],
  ['windows', { architecture: 'gemma3', type: 'Q8_0', layers: 3, windowPattern: 3 }, {}],
  ['states', { architecture: 'qwen35', type: 'Q8_0', layers: 3, ...smallStates }, {}],
  ['shared layers', { architecture: 'gemma4', type: 'Q8_0' }, {}],
  ['network layers', { architecture: 'nemotron_h', type: 'Q8_0', ...smallStates }, {}],
  ['fused matrices', { architecture: 'phi3', type: 'F16' }, {}],
  ['experts', { architecture: 'qwen3moe', type: 'Q8_0' }, {}],
  ['experts and shared experts', { architecture: 'glm4moe', type: 'Q4_K' }, {}],
  ['latent attention', { architecture: 'deepseek2', type: 'Q8_0' }, {}],
];
const exactShown = exact.filter(([name]) => isLongForm || /our|stages|padded|states|^experts$|head/.test(name));

describe.each(exactShown)('requests with adapters, with %s', (name, row, options) => {
  let drive: Drive;
  let adapters: readonly (AdapterRef | undefined)[];
  let alone: readonly RequestTrace[];
  let baseBefore: RequestTrace;

  /** The same prompt with each adapter and without. */
  const requests = (): DriveRequest[] =>
    adapters.map((adapter, i) => ({ id: `request ${i}`, prompt, params: { maxTokens }, adapter }));
  /** Others, whose prompts are of several lengths. */
  const others = (): DriveRequest[] =>
    Array.from({ length: 6 }, (_, i) => ({
      id: `other ${i}`,
      prompt: promptOf(1 + 17 * i, i + 20),
      params: { maxTokens: 3 + 2 * i },
      adapter: adapters[i % adapters.length],
    }));
  const expectSame = (traces: ReadonlyMap<string, RequestTrace>): void => {
    for (const [i, { tokens, logits, blocks }] of alone.entries()) {
      const found = traces.get(`request ${i}`)!;
      expect(found.tokens).toEqual(tokens);
      expect(found.logits).toEqual(logits);
      for (const [index, crc] of found.blocks) expect(crc, `KV of block ${index}`).toBe(blocks.get(index));
    }
  };

  beforeAll(async () => {
    const [model, path] = await writeBoth(`exact ${name}`, row);
    const second = folder.file(`second ${name}.gguf`);
    await writeAdapter(second, model, { rank: 40, seed: 5, targets: /attn_(q|k|output)\.|ffn_down|ssm_out|attn_qkv/ });
    drive = await Drive.open(model, { kvCacheBytes: (bytes) => 128 * bytes, stateCheckpointTokens: 32, ...options });
    const base = { id: 'base', prompt, params: { maxTokens } };
    baseBefore = (await drive.run([base])).get('base')!;
    adapters = [undefined, await drive.load(path, 'first'), await drive.load(second, 'second')];
    const traces: RequestTrace[] = [];
    for (const request of requests()) traces.push((await drive.run([request])).get(request.id)!);
    alone = traces;
    return () => drive.close();
  });

  it('have other bits with each adapter, and the model alone has the bits that it had before', () => {
    expect(alone[0]).toEqual(baseBefore);
    expect(new Set(alone.map(({ logits }) => logits[0])).size).toBe(3);
    const firstBlocks = alone.map(({ blocks }) => blocks.get(0));
    expect(new Set(firstBlocks).size).toBe(3);
  });

  it.each(inLongForm([1, 7, 64, 512], [7, 512]))(
    'have the same bits together, with steps of %i tokens',
    async (budget) => {
      const traces = await drive.run(
        [...others(), ...requests(), ...requests().map((r) => ({ ...r, id: `again ${r.id}` }))],
        {
          maxNumBatchedTokens: budget,
          arrive: (index) => (index * 3) % 11,
        },
      );
      expectSame(traces);
      for (let i = 0; i < adapters.length; i++) {
        expect(traces.get(`request ${i}`)!.stats?.cachedTokens).toBeLessThanOrEqual(96);
        expect(traces.get(`again request ${i}`)!.tokens).toEqual(alone[i]!.tokens);
      }
    },
  );

  it('do not find blocks of other adapters, and find those of their own', async () => {
    const traces = await drive.run([...requests(), ...requests().map((r) => ({ ...r, id: `later ${r.id}` }))], {
      arrive: (index) => (index < 3 ? index * 50 : 200),
    });
    expectSame(traces);
    for (let i = 0; i < adapters.length; i++) {
      expect(traces.get(`request ${i}`)!.stats?.cachedTokens).toBe(0);
      expect(traces.get(`later request ${i}`)!.stats?.cachedTokens).toBeGreaterThan(0);
      expect(traces.get(`later request ${i}`)!.logits).toEqual(alone[i]!.logits);
    }
  });

  it('have the same bits after preemptions', async () => {
    await drive.run(requests(), { maxNumBatchedTokens: 64 });
    const traces = await drive.run(requests(), { blocks: drive.mostReferenced, maxNumBatchedTokens: 64 });
    expectSame(traces);
    const preemptions = Math.max(...[...traces.values()].map(({ stats }) => stats!.preemptions));
    // With several groups, a request may wait instead.
    if (drive.runner.kvCacheSpec.groups.length === 1) expect(preemptions).toBeGreaterThan(0);
  });

  it('have the same bits with drafts', async () => {
    const hasStates = drive.runner.kvCacheSpec.groups.some(({ kind }) => kind === 'state');
    const speculator = hasStates
      ? undefined
      : new TextSpeculator({ method: 'ngram', numSpeculativeTokens: 4, promptLookupMin: 1, promptLookupMax: 3 });
    expectSame(await drive.run(requests(), { speculator }));
  });
});

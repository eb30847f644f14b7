/**
 * Each architecture, type of weights and kind of KV group on a GPU backend: logits are near those of the CPU, and a request's tokens,
 * logits and KV have the same bits alone, in chunks and in a batch with others.
 */
import { afterAll, describe, expect, it } from 'vitest';
import type { ModelOptions } from '../../bench/make-model/model-maker.ts';
import { blockId } from '../../src/core/ids.ts';
import { architectures as all, traitsOf } from '../../src/ggml/architectures.ts';
import type { Architecture } from '../../src/ggml/model-config.ts';
import { weightTypeNames } from '../../src/ggml/types.ts';
import { distance } from '../support/compare-with-libllama.ts';
import { computeHere } from '../support/compute-here.ts';
import { Drive, promptOf, type RequestTrace, type RunnerOverrides } from '../support/drive.ts';
import { isLongOnGpu, needsGpu, rowsOnGpu } from '../support/gpu.ts';
import { fewLayers, temporaryFolder, writeTinyModel } from '../support/tiny-model.ts';

computeHere();
const folder = temporaryFolder();
afterAll(() => folder.remove());

interface Subject {
  readonly architecture: Architecture;
  readonly type: ModelOptions['type'];
  readonly options?: Partial<ModelOptions>;
}

const oneLayer = { layers: 1 };
const types = weightTypeNames.map((type): Subject => ({ architecture: 'llama', type, options: oneLayer }));
/** The scores of experts of the small qwen3next are so near each other that rounding to Q8_0 decides between them. */
const typeOf: Partial<Record<Architecture, Subject['type']>> = { 'gpt-oss': 'MXFP4', qwen3next: 'BF16' };
/** Each architecture that makes text. */
const architectures = all
  .filter((architecture) => traitsOf(architecture).isEncoder !== true)
  .map((architecture): Subject => ({ architecture, type: typeOf[architecture] ?? 'Q8_0' }));
/** Software Vulkan compiles kernels of these for up to two minutes. gpt-oss has MXFP4, gemma3 the windows and nemotron_h the scans. */
const isSlow = ({ architecture, type }: Subject): boolean =>
  architecture === 'llama' ? /^(MXFP4|IQ4_NL)$/.test(type) : /^(gemma4|deepseek2|granitehybrid)$/.test(architecture);
const subjects = [...types, ...architectures].filter((each) => isLongOnGpu() || !isSlow(each));
const rowsMax = rowsOnGpu();

/** On a GPU: longer than a window, with blocks before and after a checkpoint. */
const promptLength = isLongOnGpu() ? 70 : 20;
const prompt = promptOf(promptLength, 5);
const subject = { id: 'subject', prompt, params: { maxTokens: 4 } };
const others = [promptOf(5, 6), prompt.subarray(0, 17)].map((tokens, i) => ({
  id: `other ${i}`,
  prompt: tokens,
  params: { maxTokens: 3 },
}));

async function withDrive<T>(path: string, options: RunnerOverrides, use: (drive: Drive) => Promise<T>): Promise<T> {
  const kvCacheBytes = (blockBytes: number): number => 96 * blockBytes;
  const drive = await Drive.open(path, { kvCacheBytes, stateCheckpointTokens: 16, ...options });
  try {
    return await use(drive);
  } finally {
    await drive.close();
  }
}

const subjectOf = (traces: ReadonlyMap<string, RequestTrace>): RequestTrace => traces.get('subject')!;

async function firstLogits(path: string): Promise<Float32Array> {
  const rows: Float32Array[] = [];
  const onLogits = (_: unknown, row: Float32Array): void => {
    rows.push(row.slice());
  };
  await withDrive(path, { onLogits }, (drive) => drive.run([{ ...subject, params: { maxTokens: 1 } }]));
  return rows[0]!;
}

/** Of blocks that both have computed: other requests compute some of the shared prefix. */
function expectSame(found: RequestTrace, wanted: RequestTrace): void {
  expect(found.tokens).toEqual(wanted.tokens);
  expect(found.logits).toEqual(wanted.logits);
  for (const [place, crc] of found.blocks) expect(crc, `block ${place}`).toBe(wanted.blocks.get(place));
}

async function expectSameOnGpu({ architecture, type, options }: Subject): Promise<void> {
  const path = folder.file(`${architecture}-${type}.gguf`);
  await writeTinyModel(path, { architecture, type, ...fewLayers(architecture, type), ...options });
  const onCpu = await firstLogits(path);
  let onGpu: Float32Array | undefined;
  const onLogits = (_request: unknown, row: Float32Array): void => {
    onGpu ??= row.slice();
  };
  const onDevice: RunnerOverrides = { device: 'gpu', numerics: 'exact', rowsMax, onLogits };
  await withDrive(path, onDevice, async (drive) => {
    // What others have left in the pool does not matter, even if it is not a number.
    const { memory, kvCacheSpec } = drive.runner;
    const nan = new Uint8Array(memory.blockBytes).fill(0xff);
    for (let block = 1; block < kvCacheSpec.blockCount; block++) memory.write(blockId(block), nan);
    const alone = subjectOf(await drive.run([subject], { maxNumBatchedTokens: rowsMax }));
    expect(distance(onGpu!, onCpu), 'distance from the CPU').toBeLessThan(farthest);
    for (const maxNumBatchedTokens of isLongOnGpu() ? [24, 256] : [2, 3])
      expectSame(subjectOf(await drive.run([...others, subject], { maxNumBatchedTokens })), alone);
  });
}

/** In standard deviations of the logits. GPUs multiply quantized weights by activations that are not rounded. */
const farthest = 0.5;

describe('a model on a GPU', needsGpu(), () => {
  for (const one of subjects) it(`${one.architecture} with ${one.type} weights`, () => expectSameOnGpu(one));
});

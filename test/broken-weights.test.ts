/** Models with weights that are NaN or infinite: an error that names the model or the tensor, and never a text. */
import { open } from 'node:fs/promises';
import { afterAll, describe, expect, it } from 'vitest';
import { createEngine } from '../src/compose.ts';
import type { EngineOptions } from '../src/engine/options.ts';
import { type GgufTensor, readGguf } from '../src/ggml/gguf.ts';
import { inLongForm } from './support/long-form.ts';
import { serveHere } from './support/serve-here.ts';
import { type ModelOptions, temporaryFolder, writeTinyModel } from './support/tiny-model.ts';

const folder = temporaryFolder();
afterAll(() => folder.remove());

/** The bytes of a block of weights, and where its scale (F16) is. */
const scales: Readonly<Record<string, readonly [bytes: number, at: number]>> = {
  F16: [2, 0],
  Q8_0: [34, 0],
  Q4_0: [18, 0],
  Q4_K: [144, 0],
  Q6_K: [210, 208],
};
const NAN = 0x7e00;
const INFINITE = 0x7c00;

/** Writes a number into the first scale of a tensor, or into all. */
async function breakTensor(path: string, name: string, bits: number, isWhole: boolean): Promise<void> {
  const tensor: GgufTensor = (await readGguf(path)).tensors.get(name)!;
  const file = await open(path, 'r+');
  const bytes = Buffer.alloc(tensor.byteLength);
  await file.read(bytes, 0, bytes.length, tensor.fileOffset);
  const [size, at] = tensor.type.name === 'F32' ? [4, 0] : scales[tensor.type.name]!;
  for (let start = at; start < (isWhole ? bytes.length : at + 1); start += size) {
    if (tensor.type.name === 'F32') bytes.writeFloatLE(bits === NAN ? Number.NaN : Number.POSITIVE_INFINITY, start);
    else bytes.writeUInt16LE(bits, start);
  }
  await file.write(bytes, 0, bytes.length, tensor.fileOffset);
  await file.close();
}

async function openBroken(
  model: ModelOptions,
  name: string,
  { bits = NAN, isWhole = true, ...options }: { bits?: number; isWhole?: boolean } & Partial<EngineOptions> = {},
) {
  const path = folder.file('broken.gguf');
  await writeTinyModel(path, model);
  await breakTensor(path, name, bits, isWhole);
  return createEngine({ model: path, threads: 1, kvCacheMemory: 8 << 20, servedModelName: 'served', ...options });
}

/** The code of the error with which each of the requests ends, or its finish reason. */
async function endsOf(engine: Awaited<ReturnType<typeof openBroken>>): Promise<unknown[]> {
  const ends: unknown[] = [];
  for (const params of [{ temperature: 0 }, { temperature: 1, seed: 1, logprobs: 5, promptLogprobs: 2 }]) {
    for await (const { finish } of engine.generate({ prompt: [1, 2, 3, 4, 5], params: { maxTokens: 4, ...params } })) {
      if (finish !== undefined) ends.push((finish.error as { code?: string } | undefined)?.code ?? finish.reason);
    }
  }
  expect(engine.isHealthy()).toBe(true);
  await engine.close();
  return ends;
}

const broken = ['KVASIR_BROKEN_LOGITS', 'KVASIR_BROKEN_LOGITS'];
const llama: ModelOptions = { architecture: 'llama', type: 'Q8_0', tied: false };
const sinks: ModelOptions = { architecture: 'gpt-oss', type: 'Q8_0' };

describe('a broken large tensor ends each request with an error', () => {
  const tensors = ['blk.0.attn_q.weight', 'blk.0.attn_k.weight', 'blk.0.attn_v.weight', 'blk.1.ffn_down.weight'];
  const types = inLongForm(['Q8_0', 'Q4_K_M', 'F16', 'Q4_0'] as const, ['Q8_0'] as const);
  const cases = [...tensors, 'output.weight'].flatMap((tensor) => types.map((type) => [tensor, type] as const));
  it.each(cases)('%s of %s', async (tensor, type) => {
    for (const bits of [NAN, INFINITE]) {
      for (const isWhole of inLongForm([true, false], [false])) {
        expect(await endsOf(await openBroken({ ...llama, type }, tensor, { bits, isWhole }))).toEqual(broken);
      }
    }
  });

  // A sink takes the whole attention if all other scores are dropped.
  it.each(inLongForm<readonly ('auto' | 'gather')[]>(['auto', 'gather'], ['auto']))(
    'of queries and keys with attention sinks, attention %s',
    async (attention) => {
      for (const tensor of ['blk.0.attn_q.weight', 'blk.0.attn_k.weight', 'blk.1.attn_k.weight']) {
        expect(await endsOf(await openBroken(sinks, tensor, { attention })), tensor).toEqual(broken);
      }
    },
  );

  it('on two ranks', async () => {
    const options = { pipelineParallelSize: 2 };
    expect(await endsOf(await openBroken({ ...llama, layers: 4 }, 'blk.0.attn_v.weight', options))).toEqual(broken);
  });
});

describe('a broken small tensor is an error at the start', () => {
  it.each([
    [llama, 'blk.0.attn_norm.weight', NAN, 'NaN'],
    [llama, 'output_norm.weight', INFINITE, 'Infinity'],
    [sinks, 'blk.1.attn_sinks.weight', NAN, 'NaN'],
    [sinks, 'blk.0.ffn_gate_exps.bias', INFINITE, 'Infinity'],
    [{ ...llama, type: 'F32' } as const, 'blk.0.attn_q.weight', NAN, 'NaN'],
  ])('%j %s', async (model, tensor, bits, found) => {
    await expect(openBroken(model, tensor, { bits, isWhole: false })).rejects.toMatchObject({
      code: 'KVASIR_BROKEN_WEIGHTS',
      message: expect.stringContaining(`broken.gguf is broken: its tensor ${tensor} has ${found} as number 0.`),
    });
  });
});

it('embeddings are numbers, or an error that names the model', async () => {
  const engine = await openBroken(llama, 'blk.0.attn_v.weight', { pooling: 'mean' });
  await expect(engine.embed({ prompt: [1, 2, 3] })).rejects.toMatchObject({
    code: 'KVASIR_BROKEN_EMBEDDING',
    message: expect.stringContaining('The model served computed NaN'),
  });
  await engine.close();
});

it('clients of a server get the sentence and the code, and the log has no stack', async () => {
  const engine = await openBroken(llama, 'blk.1.ffn_down.weight', { pooling: 'mean' });
  const server = await serveHere();
  server.loaded.resolve(engine);
  await expect.poll(async () => (await fetch(`${server.origin}/health`)).status).toBe(200);
  const post = async (path: string, body: object) => {
    const answer = await fetch(`${server.origin}${path}`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ model: 'served', ...body }),
    });
    return { status: answer.status, text: await answer.text() };
  };
  const { status, text } = await post('/v1/completions', { prompt: 'a', max_tokens: 2 });
  expect(status).toBe(500);
  expect(JSON.parse(text).error).toMatchObject({
    code: 'KVASIR_BROKEN_LOGITS',
    message: expect.stringMatching(/^The model served computed NaN as the logit of token 0 /),
  });
  expect((await post('/v1/completions', { prompt: 'a', max_tokens: 2, stream: true })).text).toContain(
    'The model served computed NaN',
  );
  expect((await post('/v1/embeddings', { input: 'a' })).text).toContain('KVASIR_BROKEN_EMBEDDING');
  await server.close();
  expect(server.stderr()).not.toMatch(/\n\s+at |request failed/);
});

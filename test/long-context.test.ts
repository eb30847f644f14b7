/**
 * I2 with long contexts: logits and KV of a prompt of 16k tokens (8k in the default form) have the same bits in all chunks and batches. Cached blocks, recomputed
 * holes and two threads do not change them either. With KV of type q8_0, and where KV is gathered, the prompt has 4k tokens.
 */
import { crc32 } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { blockId } from '../src/core/ids.ts';
import type { GgmlRunner } from '../src/runner/ggml-runner.ts';
import { kvTypes } from '../src/runner/kv-memory.ts';
import { computeHere } from './support/compute-here.ts';
import { Drive, openRunner, promptOf, type RequestTrace } from './support/drive.ts';
import { inLongForm } from './support/long-form.ts';
import { blockTable, runPrompt } from './support/run-prompt.ts';
import { temporaryFolder, writeTinyModel } from './support/tiny-model.ts';

const longest = inLongForm(16_384, 8192);
const maxModelLen = longest + 16;

computeHere();
const folder = temporaryFolder();
const path = folder.file('long.gguf');
beforeAll(() => {
  // Two layers, because the KV of the first does not depend on attention. Two query heads share one KV head.
  const shape = { layers: 2, heads: 2, headsKv: 1, feedForward: 256, context: maxModelLen };
  return writeTinyModel(path, { architecture: 'qwen3', type: 'Q8_0', ...shape });
});
afterAll(() => folder.remove());

const blockAt = (runner: GgmlRunner, index: number): Uint8Array => runner.memory.bytesOf(blockId(index + 1));

// A gather copies all KV in every step, which is slow.
describe.each([
  ['auto', 'f16', longest],
  ['auto', 'q8_0', 4096],
  ['gather', 'f16', 4096],
] as const)('a request with attention %s, KV of type %s and %i tokens', (attention, kvCacheDtype, length) => {
  const options = { attention, kvType: kvTypes[kvCacheDtype] };
  const prompt = promptOf(length, 1);
  const subject = { id: 'subject', prompt, params: { maxTokens: 6 } };
  const blocks = length / 16;
  const crcsOf = (runner: GgmlRunner): number[] => Array.from({ length: blocks }, (_, i) => crc32(blockAt(runner, i)));
  let drive: Drive;
  let alone: RequestTrace;

  beforeAll(async () => {
    drive = await Drive.open(path, options);
    alone = (await drive.run([subject], { maxModelLen })).get('subject')!;
    return () => drive.close();
  }, 120_000);

  const expectSame = (trace: RequestTrace): void => {
    expect(trace.tokens).toEqual(alone.tokens);
    expect(trace.logits).toEqual(alone.logits);
    for (const [index, crc] of trace.blocks) expect(crc, `KV of block ${index}`).toBe(alone.blocks.get(index));
  };

  it('has distinct logits and blocks to compare', () => {
    expect(new Set(alone.logits).size).toBe(6);
    expect(new Set(alone.blocks.values()).size).toBe(blocks);
  });

  it('has the same bits in other chunks, beside requests that start and end, and again after cached blocks', async () => {
    const others = Array.from({ length: 7 }, (_, i) => ({
      id: `other ${i}`,
      // One of them shares a prefix with the subject.
      prompt: i === 0 ? [...prompt.slice(0, 500), ...promptOf(300, 60)] : promptOf(1 + 40 * i, i + 50),
      params: { maxTokens: 4 + 9 * i },
    }));
    const arrivals = [0, ...others.map((_, i) => 3 + 5 * i), 100];
    const traces = await drive.run([subject, ...others, { ...subject, id: 'again' }], {
      maxModelLen,
      maxNumBatchedTokens: 203,
      arrive: (index) => arrivals[index] ?? 0,
    });
    expectSame(traces.get('subject')!);
    expect(traces.get('subject')!.blocks.size).toBe(blocks);
    // All blocks are found; the last token is computed for its logits.
    expect(traces.get('again')!.stats?.cachedTokens).toBe(length - 1);
    expectSame(traces.get('again')!);
  }, 120_000);

  it('has the same bits after holes are filled, the first and the last block included', async () => {
    // The first request of a run gets the blocks of an empty pool in order.
    const before = crcsOf(drive.runner);
    expect(before).toEqual([...alone.blocks.values()]);
    const invalid = [0, 1, 100, 187, 250, blocks - 1];
    for (const index of invalid) blockAt(drive.runner, index).fill(0xab);
    const spans = invalid.map((index) => [index * 16, (index + 1) * 16] as const);
    drive.trace('prompt').logits.length = 0;
    await runPrompt(drive.runner, prompt, blockTable(1, blocks), spans);
    expect(crcsOf(drive.runner)).toEqual(before);
    expect(drive.trace('prompt').logits).toEqual(alone.logits.slice(0, 1));
  }, 120_000);

  it('has the same bits with two threads, after KV that one thread has computed', async () => {
    const logits: number[] = [];
    const onLogits = (_: unknown, row: Float32Array): unknown =>
      logits.push(crc32(new Uint8Array(row.buffer, row.byteOffset, row.byteLength)));
    const runner = await openRunner(path, { ...options, threads: 2, onLogits });
    const kept = blocks - 6;
    for (let index = 0; index < kept; index++) blockAt(runner, index).set(blockAt(drive.runner, index));
    await runPrompt(runner, prompt, blockTable(1, blocks), [[kept * 16, length]]);
    expect(crcsOf(runner)).toEqual(crcsOf(drive.runner));
    expect(logits).toEqual(alone.logits.slice(0, 1));
    await runner.close();
  }, 120_000);
});

/**
 * Models with sliding windows: their layers are in several KV groups over one pool. A long request holds only the blocks of its
 * window in the window groups. `prefix-hits.test.ts` has hits at every block boundary.
 */
import { afterAll, describe, expect, it } from 'vitest';
import { createGroup } from '../src/kv/create-group.ts';
import { computeHere } from './support/compute-here.ts';
import { Drive, promptOf } from './support/drive.ts';
import { inLongForm } from './support/long-form.ts';
import { temporaryFolder, writeTinyModel } from './support/tiny-model.ts';

computeHere();
const folder = temporaryFolder();
afterAll(() => folder.remove());

/** Attention over all tokens takes four times as long for twice as many. */
const length = inLongForm(32_768, 14_336);

describe(`a request of ${length} tokens to a model with a window of 512 tokens in five of six layers`, () => {
  it('holds window-sized KV in the window groups, so it fits into a pool of a fifth of its KV', async () => {
    const path = folder.file('long.gguf');
    const shape = { layers: 6, windowPattern: 6, window: 512, context: 2 * length };
    const small = { embedding: 64, heads: 1, headsKv: 1, headDim: 32, feedForward: 64 };
    await writeTinyModel(path, { architecture: 'gemma3', type: 'F16', ...shape, ...small });
    const drive = await Drive.open(path);
    const { groups } = drive.runner.kvCacheSpec;
    expect(groups.map(({ kind }) => kind)).toEqual(['full', ...Array.from({ length: 5 }, () => 'window')]);
    const needed = groups.map((group) => createGroup(group).blocksMax(length + 8));
    const whole = length / 16 + 1;
    expect(needed).toEqual([whole, 33, 33, 33, 33, 33]);

    const subject = { id: 'subject', prompt: promptOf(length, 1), params: { maxTokens: 8 } };
    const blocks = 1 + needed.reduce((sum, count) => sum + count, 0);
    expect(blocks).toBeLessThan((6 * length) / 16 / 5);
    const trace = (await drive.run([subject], { blocks, maxModelLen: 2 * length })).get('subject')!;
    expect(trace.tokens).toHaveLength(8);
    expect(trace.stats).toMatchObject({ preemptions: 0, computedTokens: length + 7 });
    expect(drive.mostReferenced).toBe(blocks - 1);

    // With room for the blocks that one step computes, in fewer steps, with the same bits.
    const steps = drive.steps;
    const wide = (await drive.run([subject], { maxModelLen: 2 * length })).get('subject')!;
    expect(drive.steps).toBeLessThan(steps);
    expect(drive.mostReferenced).toBeLessThanOrEqual(whole + 5 * (33 + 512 / 16));
    expect(wide.logits).toEqual(trace.logits);
    await drive.close();
  }, 120_000);
});

/**
 * Models with sliding windows: their layers are in several KV groups over one pool. A long request holds only the blocks of its
 * window in the window groups, and a prefix hit at any block boundary gives the same bits.
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

describe('a prefix hit', () => {
  it.each([
    ['gemma3', { architecture: 'gemma3', type: 'Q8_0', layers: 3, windowPattern: 3 }],
    ['gpt-oss', { architecture: 'gpt-oss', type: 'MXFP4' }],
  ] as const)(
    'to %s has the same bits at every block boundary, also before the window of the last token',
    async (name, model) => {
      const path = folder.file(`hits-${name}.gguf`);
      await writeTinyModel(path, model);
      const drive = await Drive.open(path);
      const prompt = promptOf(150, 1);
      const subject = { id: 'subject', prompt, params: { maxTokens: 4 } };
      const alone = (await drive.run([subject])).get('subject')!;
      for (let length = 15; length < 150; length += 16) {
        const prefix = { id: 'prefix', prompt: prompt.slice(0, length + 1), params: { maxTokens: 1 } };
        const hit = (await drive.run([prefix, subject], { arrive: (index) => index * 5 })).get('subject')!;
        expect(hit.stats, `after ${length + 1} tokens`).toMatchObject({
          cachedTokens: length + 1,
          computedTokens: 150 - (length + 1) + 3,
        });
        expect({ tokens: hit.tokens, logits: hit.logits }).toEqual({ tokens: alone.tokens, logits: alone.logits });
        for (const [place, crc] of hit.blocks) expect(crc).toBe(alone.blocks.get(place));
      }
      await drive.close();
    },
  );
});

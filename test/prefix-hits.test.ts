/**
 * A prefix hit at every block boundary of a prompt, for each architecture with several KV groups, experts, latent attention or a temperature: tokens,
 * logits and KV have the same bits as without the hit, and only the tokens after the hit are computed.
 */
import { afterAll, expect, it } from 'vitest';
import type { ModelOptions } from '../bench/make-model/model-maker.ts';
import { computeHere } from './support/compute-here.ts';
import { Drive, promptOf } from './support/drive.ts';
import { inLongForm } from './support/long-form.ts';
import {
  gemma4WithExperts,
  longContexts,
  smallStates,
  temporaryFolder,
  tinyHybrid,
  writeTinyModel,
} from './support/tiny-model.ts';

computeHere();
const folder = temporaryFolder();
afterAll(() => folder.remove());

/** The prompt is longer than three windows. */
const shortForm: readonly (readonly [string, ModelOptions])[] = [
  ['gemma3', { architecture: 'gemma3', type: 'Q8_0', layers: 3, windowPattern: 3 }],
  ['gpt-oss', { architecture: 'gpt-oss', type: 'MXFP4' }],
  ['lfm2 with a window', { architecture: 'lfm2', type: 'Q8_0', ...tinyHybrid }],
];
const models: readonly (readonly [string, ModelOptions])[] = [
  ...shortForm,
  ['gemma4', { architecture: 'gemma4', type: 'Q8_0' }],
  ['gemma4 with experts', { architecture: 'gemma4', type: 'Q8_0', ...gemma4WithExperts }],
  ['lfm2', { architecture: 'lfm2', type: 'Q8_0' }],
  ['granitehybrid', { architecture: 'granitehybrid', type: 'Q8_0', layers: 3, ...smallStates }],
  ['qwen35', { architecture: 'qwen35', type: 'Q8_0', layers: 3, ...smallStates }],
  ['qwen35moe', { architecture: 'qwen35moe', type: 'Q8_0', layers: 3, ...smallStates }],
  ['qwen3moe', { architecture: 'qwen3moe', type: 'Q8_0' }],
  ['deepseek2', { architecture: 'deepseek2', type: 'F16' }],
  ['olmo2 with a window', { architecture: 'olmo2', type: 'Q8_0', ...longContexts.olmo2 }],
  ['mistral3 with a temperature', { architecture: 'mistral3', type: 'Q8_0', ...longContexts.mistral3 }],
];

it.each(inLongForm(models, shortForm))(
  'a prefix hit to %s has the same bits at every block boundary',
  async (name, model) => {
    const path = folder.file(`${name}.gguf`);
    await writeTinyModel(path, model);
    const drive = await Drive.open(path, { stateCheckpointTokens: 16 });
    // Blocks of large states have more tokens.
    const blockSize = Math.max(...drive.runner.kvCacheSpec.groups.map((group) => group.blockSize));
    expect(blockSize).toBeLessThanOrEqual(32);
    const prompt = promptOf(150, 1);
    const subject = { id: 'subject', prompt, params: { maxTokens: 4 } };
    const alone = (await drive.run([subject])).get('subject')!;
    for (let hitTokens = blockSize; hitTokens < 150; hitTokens += blockSize) {
      const prefix = { id: 'prefix', prompt: prompt.slice(0, hitTokens), params: { maxTokens: 1 } };
      const hit = (await drive.run([prefix, subject], { arrive: (index) => index * 5 })).get('subject')!;
      expect(hit.stats, `after ${hitTokens} tokens`).toMatchObject({
        cachedTokens: hitTokens,
        computedTokens: 150 - hitTokens + 3,
      });
      expect({ tokens: hit.tokens, logits: hit.logits }).toEqual({ tokens: alone.tokens, logits: alone.logits });
      for (const [place, crc] of hit.blocks) expect(crc).toBe(alone.blocks.get(place));
    }
    await drive.close();
  },
);

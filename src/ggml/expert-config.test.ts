import { writeFileSync } from 'node:fs';
import { afterAll, describe, expect, it } from 'vitest';
import { type GgufFieldValue, ggufBytes } from '../../test/support/gguf-bytes.ts';
import { temporaryFolder } from '../../test/support/tiny-model.ts';
import { readExpertConfig } from './expert-config.ts';
import { readGguf } from './gguf.ts';

const folder = temporaryFolder();
afterAll(() => folder.remove());

const usual: Record<string, GgufFieldValue> = { expert_count: { u32: 8 }, expert_used_count: { u32: 2 } };

async function read(changes: Record<string, GgufFieldValue | undefined>) {
  const path = folder.file('experts.gguf');
  const keys = Object.entries({ ...usual, ...changes }).flatMap(([name, value]) =>
    value === undefined ? [] : [[`qwen3moe.${name}`, value] as const],
  );
  writeFileSync(path, ggufBytes({ keys, tensors: [] }));
  return readExpertConfig(await readGguf(path), 'qwen3moe', 600);
}

describe('the experts of a model', () => {
  it('follow from its metadata', async () => {
    const width = { expert_feed_forward_length: { u32: 100 } };
    expect(await read(width)).toEqual({ count: 8, used: 2, feedForwardLength: 100 });
    const neutral = { expert_group_count: { u32: 1 }, expert_weights_scale: { f32: 1 } };
    expect(await read({ ...width, ...neutral })).toEqual({ count: 8, used: 2, feedForwardLength: 100 });
  });

  it('share the width of the network if the file does not say the width of an expert', async () => {
    expect(await read({})).toEqual({ count: 8, used: 2, feedForwardLength: 300 });
  });

  const wrong: readonly (readonly [string, Record<string, GgufFieldValue | undefined>, RegExp])[] = [
    ['no number of experts', { expert_count: undefined }, /no metadata qwen3moe.expert_count/],
    ['no experts', { expert_count: { u32: 0 } }, /expert_count must be between 1 and 1024/],
    [
      'more chosen experts than experts',
      { expert_used_count: { u32: 9 } },
      /expert_used_count must be between 1 and 8/,
    ],
    ['groups of experts', { expert_group_count: { u32: 4 } }, /this router \(expert_group_count = 4\)/],
    ['scaled weights', { expert_weights_scale: { f32: 2.5 } }, /this router \(expert_weights_scale = 2.5\)/],
  ];
  it.each(wrong)('are refused with a message that names the problem: %s', async (_, changes, message) => {
    await expect(read(changes)).rejects.toThrow(message);
  });
});

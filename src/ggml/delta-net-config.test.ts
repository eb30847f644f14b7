import { writeFileSync } from 'node:fs';
import { afterAll, describe, expect, it } from 'vitest';
import { type GgufFieldValue, ggufBytes } from '../../test/support/gguf-bytes.ts';
import { temporaryFolder } from '../../test/support/tiny-model.ts';
import { deltaNetChannels, deltaNetElements, readDeltaNetConfig, readDeltaNetLayers } from './delta-net-config.ts';
import { readGguf } from './gguf.ts';

const folder = temporaryFolder();
afterAll(() => folder.remove());

const usual: Record<string, GgufFieldValue> = {
  'ssm.conv_kernel': { u32: 4 },
  'ssm.inner_size': { u32: 256 },
  'ssm.state_size': { u32: 64 },
  'ssm.time_step_rank': { u32: 4 },
  'ssm.group_count': { u32: 2 },
};

async function fileWith(changes: Record<string, GgufFieldValue | undefined>) {
  const path = folder.file('delta-net.gguf');
  const keys = Object.entries({ ...usual, ...changes }).flatMap(([name, value]) =>
    value === undefined ? [] : [[`qwen35.${name}`, value] as const],
  );
  writeFileSync(path, ggufBytes({ keys, tensors: [] }));
  return readGguf(path);
}

describe('the shape of a gated delta net', () => {
  it('follows from the metadata', async () => {
    const config = readDeltaNetConfig(await fileWith({}), 'qwen35');
    expect(config).toEqual({ taps: 4, heads: 4, keyHeads: 2, headDim: 64 });
    expect(deltaNetChannels(config)).toBe((2 + 2 + 4) * 64);
    expect(deltaNetElements(config)).toBe(3 * 512 + 4 * 64 * 64);
  });

  it('is in all layers but each fourth, or each n-th', async () => {
    expect(readDeltaNetLayers(await fileWith({}), 'qwen35', 8)).toEqual([0, 1, 2, 4, 5, 6]);
    const third = await fileWith({ full_attention_interval: { u32: 3 } });
    expect(readDeltaNetLayers(third, 'qwen35', 8)).toEqual([0, 1, 3, 4, 6, 7]);
  });

  const wrong: readonly (readonly [string, Record<string, GgufFieldValue | undefined>, RegExp])[] = [
    ['no number of heads', { 'ssm.time_step_rank': undefined }, /no metadata qwen35.ssm.time_step_rank/],
    ['heads of keys that do not divide the heads', { 'ssm.group_count': { u32: 3 } }, /a divisor of time_step_rank/],
    ['values longer than keys', { 'ssm.inner_size': { u32: 512 } }, /keys and values of different lengths/],
    ['a convolution of one token', { 'ssm.conv_kernel': { u32: 1 } }, /ssm.conv_kernel must be between 2 and 64/],
  ];
  it.each(wrong)('is refused with %s', async (_, changes, message) => {
    const file = await fileWith(changes);
    expect(() => readDeltaNetConfig(file, 'qwen35')).toThrow(message);
  });
});

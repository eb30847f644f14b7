import { writeFileSync } from 'node:fs';
import { afterAll, describe, expect, it } from 'vitest';
import { type GgufFieldValue, ggufBytes } from '../../test/support/gguf-bytes.ts';
import { temporaryFolder } from '../../test/support/tiny-model.ts';
import { readGguf } from './gguf.ts';
import { mambaChannels, mambaElements, readMambaConfig } from './mamba-config.ts';

const folder = temporaryFolder();
afterAll(() => folder.remove());

const usual: Record<string, GgufFieldValue> = {
  conv_kernel: { u32: 4 },
  inner_size: { u32: 512 },
  state_size: { u32: 64 },
  time_step_rank: { u32: 8 },
  group_count: { u32: 2 },
};

async function read(changes: Record<string, GgufFieldValue | undefined>) {
  const path = folder.file('mamba.gguf');
  const keys = Object.entries({ ...usual, ...changes }).flatMap(([name, value]) =>
    value === undefined ? [] : [[`granitehybrid.ssm.${name}`, value] as const],
  );
  writeFileSync(path, ggufBytes({ keys, tensors: [] }));
  return readMambaConfig(await readGguf(path), 'granitehybrid');
}

describe('the shape of Mamba-2', () => {
  it('follows from the metadata', async () => {
    const config = await read({});
    expect(config).toEqual({ taps: 4, heads: 8, headDim: 64, stateSize: 64, groups: 2 });
    expect(mambaChannels(config)).toBe(512 + 2 * 2 * 64);
    expect(mambaElements(config)).toBe(3 * 768 + 512 * 64);
  });

  const wrong: readonly (readonly [string, Record<string, GgufFieldValue | undefined>, RegExp])[] = [
    ['no number of heads', { time_step_rank: undefined }, /no metadata granitehybrid.ssm.time_step_rank/],
    ['no channels', { inner_size: { u32: 0 } }, /ssm.inner_size must be between 1 and/],
    ['heads that do not divide the channels', { time_step_rank: { u32: 7 } }, /a divisor of inner_size, which is 512/],
    ['groups that do not divide the heads', { group_count: { u32: 3 } }, /a divisor of time_step_rank, which is 8/],
    ['a convolution of one token', { conv_kernel: { u32: 1 } }, /ssm.conv_kernel must be between 2 and 64/],
  ];
  it.each(wrong)('is refused with %s', async (_, changes, message) => {
    await expect(read(changes)).rejects.toThrow(message);
  });
});

import { describe, expect, it } from 'vitest';
import { type BlockIndex, groupIndex } from '../../core/ids.ts';
import type { KvBlock } from '../connector.ts';
import { suiteKey } from '../tier/tier.suite.ts';
import { loadable, readRequestLimits } from './request-limits.ts';

const block = (index: number, group = 0): KvBlock => ({
  group: groupIndex(group),
  index: index as BlockIndex,
  key: suiteKey(index, group),
});
const disk = { medium: 'STORAGE', locality: 'LOCAL' } as const;
const bucket = { medium: 'STORAGE', locality: 'REMOTE' } as const;
const memory = { medium: 'CPU', locality: 'LOCAL' } as const;

describe('limits of a request', () => {
  it('keeps no long value of a client in its warnings', () => {
    const long = 'x'.repeat(900_000);
    const warnings: string[] = [];
    const warn = (message: string) => void warnings.push(message);
    readRequestLimits({ max_load_tokens: long, max_offload_tokens: [long], kv_load_tiers: { medium: long } }, warn);
    readRequestLimits({ kv_load_tiers: [{ medium: long }, long] }, warn);
    expect(warnings.length).toBe(5);
    for (const warning of warnings) expect(warning.length).toBeLessThan(250);
  });

  it.each([
    [undefined, Infinity],
    [{ max_load_tokens: 64 }, 64],
    [{ max_load_tokens: 0 }, 0],
    [{ max_load_tokens: null }, Infinity],
  ])('%j allows loads of %d tokens', (params, tokens) => {
    expect(readRequestLimits(params).maxLoadTokens).toBe(tokens);
  });

  it.each([-1, 1.5, true, '64', [64]])('%j is not a number of tokens: it is ignored with a warning', (value) => {
    for (const name of ['max_load_tokens', 'max_offload_tokens']) {
      const warnings: string[] = [];
      const limits = readRequestLimits({ [name]: value }, (message) => warnings.push(message));
      expect(limits.maxLoadTokens).toBe(Infinity);
      expect(limits.maxOffloadTokens).toBe(Infinity);
      expect(warnings).toEqual([expect.stringContaining(`kv_transfer_params.${name} is ignored`)]);
    }
  });

  it('each group loads its first wanted blocks up to the limit, in whole blocks', () => {
    const wanted = [block(2), block(3), block(5), block(2, 1), block(3, 1)];
    const limits = readRequestLimits({ max_load_tokens: 40 });
    expect(loadable(wanted, limits, [16, 32])).toEqual([block(2), block(3), block(2, 1)]);
    expect(loadable(wanted, readRequestLimits({ max_load_tokens: 0 }), [16, 32])).toEqual([]);
    expect(loadable(wanted, readRequestLimits(undefined), [16, 32])).toBe(wanted);
  });

  it.each([
    [undefined, [true, true, true]],
    [[], [true, false, false]],
    [[{ medium: 'STORAGE' }], [true, true, true]],
    [[{ medium: 'STORAGE', locality: 'LOCAL' }], [true, true, false]],
    [[{ locality: 'REMOTE' }], [true, false, true]],
    [[{ medium: 'CPU' }], [true, false, false]],
  ])('kv_load_tiers %j allows host memory, a disk and a bucket: %j', (tiers, allowed) => {
    const limits = readRequestLimits({ kv_load_tiers: tiers ?? null });
    expect([memory, disk, bucket].map((place) => limits.isAllowed(place))).toEqual(allowed);
  });

  it.each([
    [[{ medium: 'storage' }], [true, true, true]],
    [[{ medium: 'Cpu' }], [true, false, false]],
    [[{}], [true, true, true]],
    [[{ medium: null, locality: 'remote' }], [true, false, true]],
    [[{ medium: 'storage', locality: 'local' }], [true, true, false]],
    [
      [{ medium: 'cpu' }, { medium: 'storage' }],
      [true, true, true],
    ],
  ])('parse_tier_filter_valid: %j, in any case of letters, allows %j', (tiers, allowed) => {
    const limits = readRequestLimits({ kv_load_tiers: tiers }, (message) => expect.unreachable(message));
    expect([memory, disk, bucket].map((place) => limits.isAllowed(place))).toEqual(allowed);
  });

  it('parse_tier_filter_skips_bad_entries: the others count, and each has a warning', () => {
    const warnings: string[] = [];
    const tiers = [{ locality: 'remote' }, 'not an object', { medium: 'bogus' }, { medium: 'cpu' }, { locality: 3 }];
    const limits = readRequestLimits({ kv_load_tiers: tiers }, (message) => warnings.push(message));
    expect([memory, disk, bucket].map((place) => limits.isAllowed(place))).toEqual([true, false, true]);
    expect(warnings.map((warning) => /kv_load_tiers\[(\d)\]/.exec(warning)?.[1])).toEqual(['1', '2', '4']);
  });

  it.each(['not a list', [1], [{ medium: 'unknown' }], [{ locality: 'nowhere' }]])(
    'parse_tier_filter_invalid_returns_all: kv_load_tiers %j is ignored with a warning',
    (tiers) => {
      const warnings: string[] = [];
      const limits = readRequestLimits({ kv_load_tiers: tiers as never }, (message) => warnings.push(message));
      expect(limits.isAllowed(bucket)).toBe(true);
      expect(warnings).toEqual([expect.stringMatching(/kv_load_tiers(\[0\])? is ignored/)]);
    },
  );
});

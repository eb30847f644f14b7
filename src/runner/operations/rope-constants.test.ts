/** RoPE's frequencies as transformers computes them, from the keys that the converter writes (`tools/rope/record.py`). */
import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import type { Architecture } from '../../ggml/architectures.ts';
import type { GgufFile } from '../../ggml/gguf.ts';
import { GgufMetadata, type GgufScalar } from '../../ggml/gguf-metadata.ts';
import { type RopeConfig, readRopeConfig } from '../../ggml/rope-config.ts';
import { ropeConstants, ropeDigest } from './rope-constants.ts';

interface Recorded {
  readonly architecture: Architecture;
  /** After `rope.`. */
  readonly keys: Readonly<Record<string, number>>;
  readonly dimension: number;
  readonly originalContext: number;
  readonly frequencies: readonly number[];
  /** Of cosines and sines. */
  readonly magnitude: number;
}

const recorded = JSON.parse(readFileSync('test/data/yarn-frequencies.json', 'utf8')) as readonly Recorded[];

function configOf({
  architecture,
  keys,
  dimension,
  originalContext,
}: Omit<Recorded, 'frequencies' | 'magnitude'>): RopeConfig {
  const values: [string, GgufScalar][] = [
    ['scaling.type', { type: 'string', value: 'yarn' }],
    ['scaling.original_context_length', { type: 'u32', value: originalContext }],
    ...Object.entries(keys).map(([key, value]): [string, GgufScalar] => [
      key,
      { type: 'f32', value: Math.fround(value) },
    ]),
  ];
  const metadata = new GgufMetadata('x', new Map(values.map(([key, value]) => [`${architecture}.rope.${key}`, value])));
  const file = { path: 'x', metadata, tensors: new Map() } as unknown as GgufFile;
  return readRopeConfig(file, architecture, { length: dimension, contextLength: 65_536, longest: 65_536 });
}

/** By pair, with the divisors. */
function frequenciesOf(rope: RopeConfig): number[] {
  const { step, scale, kept } = ropeConstants(rope);
  return Array.from(
    kept,
    (share, pair) => (step ** pair * (scale * (1 - share) + share)) / (rope.divisors?.[pair] ?? 1),
  );
}

describe.each(recorded)('YaRN of $architecture with $keys', (given) => {
  it('has the frequencies and the magnitude of transformers', () => {
    const rope = configOf(given);
    const frequencies = frequenciesOf(rope);
    expect(frequencies).toHaveLength(given.frequencies.length);
    for (const [pair, frequency] of frequencies.entries())
      expect(frequency / given.frequencies[pair]!, `pair ${pair}`).toBeCloseTo(1, 5);
    expect(ropeConstants(rope).magnitude).toBeCloseTo(given.magnitude, 5);
  });
});

describe('YaRN', () => {
  const usual = { architecture: 'llama', keys: { 'scaling.factor': 4 }, dimension: 64, originalContext: 4096 } as const;
  const with_ = (keys: Record<string, number>) => configOf({ ...usual, keys: { ...usual.keys, ...keys } });

  it('has another identity of KV for each of its numbers, and for a range that is not rounded', () => {
    const ropes = [
      with_({}),
      with_({ 'scaling.yarn_attn_factor': 0.8 }),
      with_({ 'scaling.yarn_beta_fast': 8 }),
      with_({ 'scaling.yarn_beta_slow': 2 }),
      configOf({ ...usual, architecture: 'gpt-oss' }),
      configOf({ ...usual, architecture: 'qwen2' }),
    ];
    expect(new Set(ropes.map((rope) => ropeDigest([rope]))).size).toBe(ropes.length);
  });

  it('has its usual numbers where a file has 0', () => {
    expect(with_({ 'scaling.yarn_beta_fast': 0, 'scaling.yarn_beta_slow': 0 })).toEqual(with_({}));
  });

  it.each(['yarn_attn_factor', 'yarn_beta_fast', 'yarn_beta_slow'])('refuses a negative %s', (name) => {
    expect(() => with_({ [`scaling.${name}`]: -1 })).toThrow(new RegExp(`${name} must be positive`));
  });
});

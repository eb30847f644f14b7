import { expect, it } from 'vitest';
import type { GgufScalar } from './gguf-metadata.ts';
import { readSamplingDefaults } from './sampling-defaults.ts';

const read = (values: Readonly<Record<string, GgufScalar>>) =>
  readSamplingDefaults({
    entries: new Map(Object.entries(values).map(([key, value]) => [`general.sampling.${key}`, value])),
  });
const f32 = (value: number): GgufScalar => ({ type: 'f32', value: Math.fround(value) });

it('are read from general.sampling, as they were before they were rounded', () => {
  const topK: GgufScalar = { type: 'i32', value: 20 };
  const all = { temp: f32(0.7), top_k: topK, top_p: f32(0.8), min_p: f32(0.05), penalty_repeat: f32(1.05) };
  expect(read(all)).toEqual({ temperature: 0.7, topK: 20, topP: 0.8, minP: 0.05, repetitionPenalty: 1.05 });
  expect(read({ top_p: f32(0.95) })).toEqual({ topP: 0.95 });
  expect(read({})).toEqual({});
});

it('a value that no request could have is left out', () => {
  const wrong: Record<string, GgufScalar> = {
    temp: f32(-1),
    top_k: f32(2.5),
    top_p: f32(0),
    min_p: f32(Number.NaN),
    penalty_repeat: { type: 'string', value: '1.1' },
  };
  expect(read(wrong)).toEqual({});
});

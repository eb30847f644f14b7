import { describe, expect, it } from 'vitest';
import { expectSameBits } from './same-bits.ts';

describe('expectSameBits', () => {
  const values = Float32Array.of(1, Number.NaN, -0, 4);

  it('accepts equal bits, also in the middle of a buffer', () => {
    expectSameBits(values, values.slice());
    expectSameBits(Float32Array.of(0, ...values).subarray(1), values);
  });

  it('names the first different element', () => {
    expect(() => expectSameBits(values, Float32Array.of(1, Number.NaN, 0, 5))).toThrow(
      'element 2 of 4 is -0 instead of 0',
    );
    expect(() => expectSameBits(values, values.subarray(0, 3))).toThrow();
  });
});

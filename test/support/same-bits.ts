import { expect } from 'vitest';

type Numbers = Float32Array | Float64Array | Int32Array;

/** Expects numbers with equal bits. `toEqual` compares element by element, which takes seconds for a million numbers. */
export function expectSameBits<T extends Numbers>(found: T, wanted: T): void {
  expect(found.length).toBe(wanted.length);
  const [a, b] = [bytesOf(found), bytesOf(wanted)];
  if (a.equals(b)) return;
  const at = Math.floor(a.findIndex((byte, i) => byte !== b[i]) / found.BYTES_PER_ELEMENT);
  const show = (values: T): string => `${Object.is(values[at], -0) ? '-0' : values[at]}`;
  expect.fail(`element ${at} of ${found.length} is ${show(found)} instead of ${show(wanted)}`);
}

const bytesOf = ({ buffer, byteOffset, byteLength }: Numbers): Buffer => Buffer.from(buffer, byteOffset, byteLength);

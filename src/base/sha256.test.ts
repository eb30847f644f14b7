import { createHash } from 'node:crypto';
import { expect, test } from 'vitest';
import { Prng } from './prng.ts';
import { sha256 } from './sha256.ts';

test('equals the sha256 of node:crypto for messages of any length', () => {
  const random = new Prng(1);
  for (let length = 0; length < 300; length++) {
    const message = Uint8Array.from({ length }, () => random.between(0, 255));
    expect(Buffer.from(sha256(message)).toString('hex')).toBe(createHash('sha256').update(message).digest('hex'));
  }
});

test('returns the same array in every call', () => {
  expect(sha256(new Uint8Array(1))).toBe(sha256(new Uint8Array(2)));
});

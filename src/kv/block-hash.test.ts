import { createHash } from 'node:crypto';
import { expect, test } from 'vitest';
import type { TokenId } from '../core/ids.ts';
import { TokenBuffer } from '../core/tokens.ts';
import { type ChainRoot, DIGEST_WORDS, HashChain } from './block-hash.ts';

let calls = 0;
const sha256 = (bytes: Uint8Array): Uint8Array => {
  calls++;
  return createHash('sha256').update(bytes).digest();
};
const plain: ChainRoot = { fingerprint: 'model', cacheSalt: undefined };

function digests(tokens: number[], blockSize: number, root: ChainRoot = plain): string[] {
  const chain = new HashChain(sha256, blockSize, root);
  chain.extend(new TokenBuffer(tokens));
  return Array.from({ length: chain.count }, (_, block) =>
    Array.from(chain.words.subarray(block * DIGEST_WORDS, (block + 1) * DIGEST_WORDS), (word) =>
      word.toString(16),
    ).join(),
  );
}

test('only full blocks have a digest, which depends on all blocks before', () => {
  const a = digests([1, 2, 3, 4, 5, 6, 7], 2);
  const b = digests([1, 2, 9, 4, 5, 6], 2);
  expect(a).toHaveLength(3);
  expect(b[0]).toBe(a[0]);
  expect(b[1]).not.toBe(a[1]);
  expect(b[2]).not.toBe(a[2]);
});

test('other fingerprints, salts and block sizes give other digests (I10)', () => {
  const tokens = [1, 2, 3, 4];
  const variants = [
    digests(tokens, 2),
    digests(tokens, 4),
    digests(tokens, 2, { fingerprint: 'other', cacheSalt: undefined }),
    digests(tokens, 2, { fingerprint: 'model', cacheSalt: '' }),
    digests(tokens, 2, { fingerprint: 'model', cacheSalt: 'a' }),
    digests(tokens, 2, { fingerprint: 'modela', cacheSalt: '' }),
  ].map((list) => list[0]);
  expect(new Set(variants).size).toBe(variants.length);
});

test('a chain that is extended many times hashes each block once', () => {
  const tokens = new TokenBuffer([1, 2, 3]);
  const chain = new HashChain(sha256, 2, plain);
  calls = 0;
  for (let token = 4; token < 40; token++) {
    chain.extend(tokens);
    tokens.push(token as TokenId);
  }
  chain.extend(tokens);
  expect(calls).toBe(chain.count);
  expect(
    digests(
      Array.from({ length: 39 }, (_, i) => i + 1),
      2,
    ),
  ).toHaveLength(chain.count);
});

test('the hashed bytes are fixed, so a stored block keeps its key across versions', () => {
  const text = (value: string) => [value.length, 0, 0, 0, ...[...value].flatMap((c) => [c.charCodeAt(0), 0])];
  const root = sha256(
    Uint8Array.from([...text('kvasir-kv-1'), 2, 0, 0, 0, ...text('model'), 1, 0, 0, 0, ...text('s')]),
  );
  const block = sha256(Uint8Array.from([...root, 1, 0, 0, 0, 255, 255, 0, 0]));
  const view = new DataView(block.buffer, block.byteOffset, 32);
  const expected = Array.from({ length: 8 }, (_, i) => view.getUint32(i * 4, true).toString(16)).join();
  expect(digests([1, 65535], 2, { fingerprint: 'model', cacheSalt: 's' })).toEqual([expected]);
});

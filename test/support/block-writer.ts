/**
 * A process that stores blocks until it is killed: `node block-writer.js <root> <first> <step> <maxBytes>`. It stores
 * blocks first, first + step, first + 2 * step, ... four at a time, and prints the number of each stored block.
 */
import { createHash } from 'node:crypto';
import type { BlockKey } from '../../src/connector/block-key.ts';
import type { KvIdentity } from '../../src/connector/connector.ts';
import { DiskTier } from '../../src/connector/tier/disk/tier-disk.ts';

export const writerIdentity: KvIdentity = {
  fingerprint: 'the writers’ model',
  modelName: 'written',
  dtype: 'f16',
  rank: 0,
  worldSize: 1,
  blockBytes: 1 << 20,
  groups: [{ blockSize: 16, layers: [0] }],
};

export const writerKey = (n: number): BlockKey => `0-${createHash('sha256').update(`${n}`).digest('hex')}` as BlockKey;

export function writerBytes(n: number): Uint8Array {
  const words = new Uint32Array(writerIdentity.blockBytes / 4);
  for (let i = 0; i < words.length; i++) words[i] = Math.imul(i + 1, 0x9e3779b1) ^ Math.imul(n + 1, 0x85ebca6b);
  return new Uint8Array(words.buffer);
}

async function write(root: string, first: number, step: number, maxBytes: number): Promise<void> {
  const tier = await DiskTier.open({ root, identity: writerIdentity, maxBytes });
  const { signal } = new AbortController();
  let next = first;
  const lane = async (): Promise<void> => {
    for (;;) {
      const n = next;
      next += step;
      await tier.store(writerKey(n), writerBytes(n), signal);
      process.stdout.write(`${n}\n`);
    }
  };
  await Promise.all([lane(), lane(), lane(), lane()]);
}

if (process.argv[1]?.endsWith('block-writer.js') === true) {
  const [root, first, step, maxBytes] = process.argv.slice(2);
  await write(root!, Number(first), Number(step), Number(maxBytes));
}

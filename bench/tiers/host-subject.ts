import { headerBytes } from '../../src/connector/tier/block-header.ts';
import { HostTier } from '../../src/connector/tier/host/tier-host.ts';
import { CheckedTier } from './checked-tier.ts';
import type { SubjectOptions, TierSubject } from './tier-subject.ts';

/** The host tier has room for the blocks of one repetition, so each store of a later one evicts a block, as in use. */
export function hostSubject({ identity, crc32, blocks }: SubjectOptions): TierSubject {
  const { blockBytes } = identity;
  const tier = new CheckedTier(new HostTier({ identity, maxBytes: blocks * (headerBytes + blockBytes), crc32 }));
  const memory = new Uint8Array(blocks * blockBytes);
  const blockAt = (index: number): Uint8Array => memory.subarray(index * blockBytes, (index + 1) * blockBytes);
  return {
    name: 'host',
    limit: { store: 'memcpy', load: 'memcpy' },
    // Calls of the host tier end before they return.
    callsAtOnce: { store: 1, load: 1 },
    store: (key, bytes) => tier.store(key, bytes),
    load: (key, into) => tier.load(key, into),
    delete: async () => undefined,
    storeLimit: async (index, bytes) => blockAt(index).set(bytes),
    loadLimit: async (index, into) => into.set(blockAt(index)),
    clearLimit: async () => undefined,
    close: () => tier.close(),
  };
}

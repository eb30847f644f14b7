import { sha256 } from '../src/base/sha256.ts';
import { blockKey } from '../src/connector/block-key.ts';
import { blockIndex, groupIndex } from '../src/core/ids.ts';
import type { KvCacheSpec } from '../src/core/kv-spec.ts';
import type { EngineRequest } from '../src/core/request.ts';
import { TokenBuffer } from '../src/core/tokens.ts';
import { HashChain } from '../src/kv/block-hash.ts';
import { type FaultStores, somePlaces } from './fault-stores.ts';

/** Stores KV of another model for the same tokens in the same stores of all ranks: other keys, other numbers (I10). */
export function storeForeign(stores: readonly FaultStores[], { groups }: KvCacheSpec, request: EngineRequest): void {
  const tokens = new TokenBuffer(request.promptTokens);
  const root = { fingerprint: 'another model', cacheSalt: request.cacheSalt, adapter: request.adapter?.digest };
  groups.forEach(({ blockSize }, group) => {
    const chain = new HashChain(sha256, blockSize, root);
    chain.extend(tokens);
    for (let index = 0; index < chain.count; index++) {
      const key = blockKey(groupIndex(group), chain.words, blockIndex(index));
      for (const ofRank of stores) ofRank.save(key, { entries: new Int32Array(16), label: -2 }, somePlaces(index));
    }
  });
}

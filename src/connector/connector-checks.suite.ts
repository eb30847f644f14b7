import { assert } from '../base/assert.ts';
import { Prng } from '../base/prng.ts';
import { sha256 } from '../base/sha256.ts';
import type { BlockMemory } from '../core/block-memory.ts';
import {
  type BlockId,
  blockCount,
  blockId,
  blockIndex,
  groupIndex,
  NULL_BLOCK,
  type TokenId,
  tokenCount,
} from '../core/ids.ts';
import type { KvCacheSpec } from '../core/kv-spec.ts';
import type { SampledToken, SequencePlan, StepPlan } from '../core/step.ts';
import { TokenBuffer } from '../core/tokens.ts';
import { HashChain } from '../kv/block-hash.ts';
import type { HiddenStates, PipelineStage, Runner, StageResult } from '../runner/contract.ts';
import { type BlockKey, blockKey } from './block-key.ts';
import type { KvIdentity } from './connector.ts';
import { suiteIdentity } from './tier/tier.suite.ts';

export const suiteBlockSize = 16;
export const layersPerRank = 3;
/** Equal keys for every model, so that only the connector can distinguish blocks of another model. */
export const suiteFingerprint = 'keys of the suite';
const vocabSize = 1000;
/** Small, because these tests are about the order of calls, not about bytes. */
const blockBytes = 512;

/** The identities of the ranks of a pipeline. */
export const suiteWorld = (size: number): KvIdentity[] =>
  Array.from({ length: size }, (_, rank) => ({
    ...suiteIdentity,
    blockBytes,
    rank,
    worldSize: size,
    groups: [
      { blockSize: suiteBlockSize, layers: Array.from({ length: layersPerRank }, (_, i) => i + layersPerRank * rank) },
    ],
  }));

/** A prompt of `blocks` full blocks and one more token. Shorter prompts of the same name are its prefixes. */
export function promptOf(name: string, blocks: number): Int32Array {
  const prng = new Prng(new DataView(sha256(new TextEncoder().encode(name)).buffer).getUint32(0));
  return Int32Array.from({ length: blocks * suiteBlockSize + 1 }, () => prng.between(0, vocabSize - 1));
}

/** The keys of a prompt's full blocks. */
export function keysOf(prompt: Int32Array): BlockKey[] {
  const chain = new HashChain(sha256, suiteBlockSize, { fingerprint: suiteFingerprint, cacheSalt: undefined });
  chain.extend(new TokenBuffer(prompt));
  return Array.from({ length: chain.count }, (_, block) => blockKey(groupIndex(0), chain.words, blockIndex(block)));
}

/**
 * One rank of a model in which the KV of a token is a hash of the rank and of all tokens so far. The runner writes and
 * reads through the block tables of the plan. For every token that it computes, it checks the KV of all tokens before it.
 */
export class CheckingRunner implements Runner {
  readonly kvCacheSpec: KvCacheSpec;
  readonly vocabSize = vocabSize;
  readonly stage: PipelineStage;
  readonly blockMemory: BlockMemory;
  isClosed: boolean = false;
  readonly #rank: number;
  readonly #pool: Uint32Array;
  readonly #wordsPerToken: number;

  constructor({ rank, worldSize, blockBytes }: KvIdentity, poolBlocks: number) {
    this.#rank = rank;
    const firstLayer = rank * layersPerRank;
    const endLayer = firstLayer + layersPerRank;
    this.stage = { firstLayer, endLayer, layerCount: worldSize * layersPerRank };
    const layers = [firstLayer, firstLayer + 1, firstLayer + 2];
    this.kvCacheSpec = {
      groups: [{ kind: 'full', blockSize: tokenCount(suiteBlockSize), layers }],
      blockBytes,
      blockCount: blockCount(poolBlocks),
      fingerprint: suiteFingerprint,
    };
    this.#pool = new Uint32Array((poolBlocks * blockBytes) / 4);
    this.#wordsPerToken = blockBytes / 4 / suiteBlockSize;
    const bytes = new Uint8Array(this.#pool.buffer);
    const bytesOf = (block: BlockId): Uint8Array => bytes.subarray(block * blockBytes, (block + 1) * blockBytes);
    this.blockMemory = { blockCount: poolBlocks, blockBytes, bytesOf };
  }

  async execute(plan: StepPlan, hidden?: HiddenStates): Promise<StageResult> {
    assert(!this.isClosed, 'a step after close');
    const isLast = this.stage.endLayer === this.stage.layerCount;
    assert((hidden === undefined) === (this.#rank === 0), 'all ranks but the first get hidden states');
    assert(
      hidden === undefined || hidden.length === plan.tokenCount,
      'hidden states for another number of tokens than in the plan',
    );
    // As in a model, the KV is written some time after the call.
    await new Promise(setImmediate);
    const sampled = plan.sequences.map((sequence): SampledToken | undefined => {
      const last = this.#compute(sequence);
      return sequence.sample === undefined || !isLast ? undefined : { token: (last % vocabSize) as TokenId };
    });
    return { stepId: plan.stepId, sampled, ...(isLast ? {} : { hidden: new Float32Array(plan.tokenCount) }) };
  }

  async close(): Promise<void> {
    this.isClosed = true;
  }

  /** Fails unless the block has the KV of these tokens from position `start` on, which are in one block. */
  check(tokens: readonly number[], start: number, block: BlockId, owner: string): void {
    const hashes = prefixHashes(tokens);
    for (let position = start; position < tokens.length; position++)
      if (!this.#hasKv(block, position, hashes[position]!)) this.#fail(owner, position, block);
  }

  #compute({ requestId, tokens, spans, blockTables, writeTables }: SequencePlan): number {
    const [table] = blockTables;
    const [writes] = writeTables ?? blockTables;
    const hashes = prefixHashes(tokens.view());
    let end = 0;
    for (const span of spans) {
      ({ end } = span);
      for (let position = 0; position < span.end; position++) {
        const index = Math.floor(position / suiteBlockSize);
        const written = blockId(writes!.ids[index]!);
        if (position >= span.start && written !== NULL_BLOCK) this.#write(written, position, hashes[position]!);
        const read = blockId(table!.ids[index]!);
        if (!this.#hasKv(read, position, hashes[position]!)) this.#fail(requestId, position, read);
      }
    }
    return hashes[end - 1]!;
  }

  #write(block: BlockId, position: number, hash: number): void {
    const at = this.#placeOf(block, position);
    for (let word = 0; word < this.#wordsPerToken; word++) this.#pool[at + word] = this.#wordOf(hash, word);
  }

  #hasKv(block: BlockId, position: number, hash: number): boolean {
    const at = this.#placeOf(block, position);
    for (let word = 0; word < this.#wordsPerToken; word++)
      if (this.#pool[at + word] !== this.#wordOf(hash, word)) return false;
    return true;
  }

  #placeOf(block: BlockId, position: number): number {
    return (block * suiteBlockSize + (position % suiteBlockSize)) * this.#wordsPerToken;
  }

  #wordOf(hash: number, word: number): number {
    return mix(hash, this.#rank * this.#wordsPerToken + word + 1);
  }

  #fail(owner: string, position: number, block: BlockId): never {
    assert(false, `${owner}: the KV of token ${position} in block ${block} is wrong on rank ${this.#rank}`);
  }
}

function prefixHashes(tokens: ArrayLike<number>): Uint32Array {
  const hashes = new Uint32Array(tokens.length);
  for (let i = 0, hash = 1; i < tokens.length; i++) hashes[i] = hash = mix(hash, tokens[i]! + 1);
  return hashes;
}

function mix(a: number, b: number): number {
  let hash = Math.imul(a ^ Math.imul(b, 0x9e3779b1), 0x85ebca6b);
  hash = Math.imul(hash ^ (hash >>> 15), 0xc2b2ae35);
  return (hash ^ (hash >>> 13)) >>> 0;
}

import { expect, test } from 'vitest';
import { planTokensNaively } from '../../test/support/planner-reference.ts';
import { Prng } from '../base/prng.ts';
import { sha256 } from '../base/sha256.ts';
import { type BlockPlace, placeName } from '../core/block-place.ts';
import {
  type BlockCount,
  type BlockId,
  blockIndex,
  groupIndex,
  NULL_BLOCK,
  type TokenCount,
  type TokenId,
} from '../core/ids.ts';
import type { KvGroupSpec } from '../core/kv-spec.ts';
import { TokenBuffer } from '../core/tokens.ts';
import { KvCache } from './kv-cache.ts';
import type { KvRequest } from './kv-request.ts';
import type { GroupValidity } from './planner.ts';

const runs = Number(process.env.KVASIR_FUZZ_RUNS ?? 300);
const firstSeed = Number(process.env.KVASIR_FUZZ_SEED ?? 1);

/**
 * Brute force: a request that computes its prompt or decodes loses random blocks, its own and cached ones. It then computes
 * exactly the tokens that the definition of the planner gives for all valid KV in the pool and in a store: an earlier checkpoint
 * or window costs no token that it saves.
 *
 * Does not cover other requests, failed loads and pools without free blocks. A store does not replace a block of a full or
 * window group of which the request has computed the first tokens: such a block is never loaded.
 */
test(`after a loss of blocks, a request computes the fewest tokens, in ${runs} random states`, () => {
  const seen = { loaded: 0, computed: 0, decoding: 0 };
  for (let seed = firstSeed; seed < firstSeed + runs; seed++) {
    const world = new World(new Prng(seed));
    world.computeSome();
    world.loseBlocks();
    const expected = world.expected();
    seen.loaded += world.loadFromStore();
    const computed = world.computeRest();
    seen.computed += computed.length;
    if (world.isDecoding) seen.decoding++;
    expect(computed, `rerun with KVASIR_FUZZ_SEED=${seed} KVASIR_FUZZ_RUNS=1`).toEqual(expected);
  }
  if (runs >= 300) for (const count of Object.values(seen)) expect(count, JSON.stringify(seen)).toBeGreaterThan(50);
});

class World {
  readonly #prng: Prng;
  readonly #groups: readonly KvGroupSpec[];
  readonly #cache: KvCache;
  readonly #request: KvRequest;
  /** Names of the places whose blocks the store has. */
  readonly #stored: ReadonlySet<string>;
  isDecoding: boolean = false;

  constructor(prng: Prng) {
    this.#prng = prng;
    this.#groups = Array.from({ length: prng.between(1, 3) }, () => randomGroup(prng));
    const groups = this.#groups;
    const spec = { groups, blockBytes: 64, blockCount: 400 as BlockCount, fingerprint: 'test' };
    this.#cache = new KvCache(spec, { enablePrefixCaching: true, hash: sha256 });
    const prompt = Array.from({ length: prng.between(2, 60) }, (_, i) => i);
    if (prng.chance(0.5)) {
      // An earlier request has left blocks in the prefix cache.
      const earlier = this.#admit(prompt.slice(0, prng.between(1, prompt.length)));
      this.#compute(earlier, Infinity);
      this.#cache.close(earlier);
      this.#loseSome(this.#cached(earlier));
    }
    this.#request = this.#admit(prompt);
    const density = prng.pick([0, 0.3, 0.9]);
    const places = groups.flatMap(({ blockSize }, group) =>
      Array.from({ length: Math.floor(80 / blockSize) }, (_, index) => ({
        group: groupIndex(group),
        index: blockIndex(index),
      })),
    );
    this.#stored = new Set(places.filter(() => prng.chance(density)).map(placeName));
  }

  /** Computes a part of the prompt, or all of it and some output tokens. */
  computeSome(): void {
    const prng = this.#prng;
    const isPrompt = prng.chance(0.4);
    this.#compute(this.#request, isPrompt ? prng.between(1, 3) : Infinity);
    for (let output = prng.between(0, 20); output >= 0; output--) {
      if (this.#request.nextPosition() < this.#request.tokens.length) return;
      this.isDecoding = true;
      this.#request.tokens.push((1000 + output) as TokenId);
      this.#cache.tokenAppended(this.#request);
      if (output > 0) this.#compute(this.#request, Infinity);
    }
  }

  loseBlocks(): void {
    const own = this.#request.tables.flatMap((table) => [...table.ids.subarray(0, table.length)] as BlockId[]);
    this.#loseSome([...own, ...this.#cached(this.#request)]);
  }

  /** The tokens to be computed, by the definition. */
  expected(): number[] {
    const { cached, residency } = this.#cache.parts;
    const { tokens, tables, chains, slot } = this.#request;
    const groups = this.#groups.map((spec, group): GroupValidity => {
      const { blockSize, kind } = spec;
      const indexCount = Math.ceil(tokens.length / blockSize);
      const validTokens = new Int32Array(indexCount);
      const running: { position: number }[] = [];
      chains[group]!.extend(tokens);
      for (let index = blockIndex(0); index < indexCount; index++) {
        const block = index < tables[group]!.length ? tables[group]!.at(index) : NULL_BLOCK;
        const own = residency.isFilledBy(block, slot) ? residency.validTokens[block]! : 0;
        const isFull = block !== NULL_BLOCK && !residency.isOwned(block);
        const isKeyed = index < chains[group]!.count;
        const isCached = isKeyed && cached.find(groupIndex(group), chains[group]!.words, index) !== NULL_BLOCK;
        const isStored = isKeyed && this.#stored.has(placeName({ group: groupIndex(group), index }));
        if (kind === 'state') {
          if (own > 0) running.push({ position: index * blockSize + own });
          validTokens[index] = isFull || isCached || isStored ? blockSize : 0;
        } else validTokens[index] = isFull || isCached || (isStored && own === 0) ? blockSize : own;
      }
      const window = kind === 'window' ? spec.window : Infinity;
      return { kind, blockSize, window, indexCount, validTokens, running };
    });
    const marks = planTokensNaively(tokens.length, groups);
    return Array.from({ length: tokens.length }, (_, token) => token).filter((token) => marks[token] === 1);
  }

  /** As after a lost block: asks for all uncomputed blocks, and loads those that the plan needs. Returns how many. */
  loadFromStore(): number {
    const { pool } = this.#cache.parts;
    const found: BlockPlace[] = this.#cache
      .uncomputed(this.#request)
      .filter((place) => this.#stored.has(placeName(place)));
    const loads = this.#cache.startLoads(this.#request, found);
    for (const load of loads) {
      pool.pin(load.block);
      expect(this.#cache.loadArrived(load)).toBe(true);
      pool.unpin(load.block);
    }
    return loads.length;
  }

  computeRest(): number[] {
    const computed = this.#compute(this.#request, Infinity);
    this.#cache.close(this.#request);
    return computed;
  }

  #admit(prompt: readonly number[]): KvRequest {
    const request = this.#cache.open(new TokenBuffer(prompt), undefined);
    expect(this.#cache.canAdmit(request, 0)).toBe(true);
    this.#cache.admit(request);
    return request;
  }

  /** Returns the tokens that were computed. */
  #compute(request: KvRequest, steps: number): number[] {
    const computed: number[] = [];
    for (let step = 0; step < steps; step++) {
      const spans = this.#cache.scheduleTokens(request, this.#prng.pick([1, 5, 16, 64]));
      if (spans.length === 0) break;
      for (const { start, end } of spans) for (let token: number = start; token < end; token++) computed.push(token);
      this.#cache.commitTokens(request, spans);
      // After the last token, the next one must be appended before the plan can be checked.
      this.#cache.checkInvariants(request.nextPosition() === request.tokens.length);
    }
    return computed;
  }

  /** The cached blocks with the KV of the request. */
  #cached({ chains }: KvRequest): BlockId[] {
    const { cached } = this.#cache.parts;
    const blocks = chains.flatMap((chain, group) =>
      Array.from({ length: chain.count }, (_, index) => cached.find(groupIndex(group), chain.words, blockIndex(index))),
    );
    return blocks.filter((block) => block !== NULL_BLOCK);
  }

  #loseSome(blocks: readonly BlockId[]): void {
    const density = this.#prng.pick([0.05, 0.3, 1]);
    const lost = new Set(blocks.filter((block) => block !== NULL_BLOCK && this.#prng.chance(density)));
    this.#cache.invalidate([...lost]);
  }
}

function randomGroup(prng: Prng): KvGroupSpec {
  const kind = prng.pick(['full', 'window', 'state'] as const);
  const base = { blockSize: prng.pick([1, 2, 4, 8, 16]) as TokenCount, layers: [0] };
  return kind === 'window' ? { kind, ...base, window: prng.between(2, 20) as TokenCount } : { kind, ...base };
}

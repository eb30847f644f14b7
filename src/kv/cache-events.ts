import type { BlockId, BlockIndex, GroupIndex } from '../core/ids.ts';
import { DIGEST_WORDS } from './block-hash.ts';
import type { KvRequest } from './kv-request.ts';
import type { PrefixIndex } from './prefix-index.ts';

/** A change of the content of the prefix cache: of its keys, not of its blocks. Two blocks with one key are one entry. */
export type CacheEvent = StoredBlock | RemovedBlock | { readonly kind: 'cleared' };

export interface StoredBlock {
  readonly kind: 'stored';
  readonly group: GroupIndex;
  /** `DIGEST_WORDS` words. */
  readonly digest: Uint32Array;
  /** The digest of the block before; undefined for the first block. */
  readonly parent: Uint32Array | undefined;
  readonly tokens: Int32Array;
  /** Of the first block of a request with a cache salt. */
  readonly cacheSalt: string | undefined;
  /** Of a request with a LoRA adapter. */
  readonly adapterName: string | undefined;
}

export interface RemovedBlock {
  readonly kind: 'removed';
  readonly group: GroupIndex;
  readonly digest: Uint32Array;
}

/**
 * Records the changes of the prefix cache in their order, from its creation on. `take` is called after each step, so the list
 * is never longer than the changes of one step.
 */
export class CacheEventLog {
  readonly #cached: PrefixIndex;
  readonly #blockSizes: readonly number[];
  #events: CacheEvent[] = [];
  #isClearing: boolean = false;
  /** Called when there are events after there were none. */
  onEvents: (() => void) | undefined;

  /** `blockSizes`: by group. */
  constructor(cached: PrefixIndex, blockSizes: readonly number[]) {
    this.#cached = cached;
    this.#blockSizes = blockSizes;
    cached.onRemove = (block) => this.#removed(block);
  }

  take(): readonly CacheEvent[] {
    const events = this.#events;
    this.#events = [];
    return events;
  }

  /** Called after the block was inserted. */
  stored(block: BlockId, request: KvRequest, group: GroupIndex, index: BlockIndex): void {
    if (this.#cached.hasTwin(block)) return;
    const { words } = request.chains[group]!;
    const size = this.#blockSizes[group]!;
    const at = index * DIGEST_WORDS;
    this.#add({
      kind: 'stored',
      group,
      digest: words.slice(at, at + DIGEST_WORDS),
      parent: index === 0 ? undefined : words.slice(at - DIGEST_WORDS, at),
      tokens: request.tokens.view(index * size, (index + 1) * size).slice(),
      cacheSalt: index === 0 ? request.cacheSalt : undefined,
      adapterName: request.adapterName,
    });
  }

  /** `removeAll` removes all blocks from the cache: one event instead of one for each block. */
  clearing(removeAll: () => void): void {
    this.#isClearing = true;
    removeAll();
    this.#isClearing = false;
    this.#add({ kind: 'cleared' });
  }

  /** Called before the block is removed. */
  #removed(block: BlockId): void {
    if (this.#isClearing || this.#cached.hasTwin(block)) return;
    this.#add({ kind: 'removed', group: this.#cached.groupOf(block)!, digest: this.#cached.digestOf(block).slice() });
  }

  #add(event: CacheEvent): void {
    if (this.#events.push(event) === 1) this.onEvents?.();
  }
}

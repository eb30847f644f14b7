import type { BlockIndex, GroupIndex } from '../../core/ids.ts';
import type { BlockKey } from '../block-key.ts';
import type { KvBlock, SaveBlock, ValidBlock } from '../connector.ts';

export interface StoreFilterOptions {
  /** A block is stored when it is offered for the n-th time. Below 2: at the first time. */
  readonly storeThreshold: number;
  readonly trackedOffersMax: number;
  /** Per group: a block is stored when all so many blocks of its chunk are valid. */
  readonly blocksPerChunk: readonly number[];
}

/** Decides which valid blocks are offered to the tiers: whole chunks only, and none that is too rarely needed. */
export class StoreFilter {
  readonly #options: StoreFilterOptions;
  /** How often each block was offered; least recently offered first. */
  readonly #offers = new Map<BlockKey, { readonly count: number; readonly step: number }>();
  #step = 0;

  constructor(options: StoreFilterOptions) {
    this.#options = options;
  }

  /** The blocks of a step do not make each other forgotten: else none of an offer that is larger than the record would ever be stored. */
  stepBegins(): void {
    this.#step++;
  }

  /** Whether the block was offered often enough. Counts this offer. */
  isOftenNeeded(key: BlockKey): boolean {
    const { storeThreshold, trackedOffersMax } = this.#options;
    if (storeThreshold < 2) return true;
    const count = (this.#offers.get(key)?.count ?? 0) + 1;
    this.#offers.delete(key);
    if (count >= storeThreshold) return true;
    if (this.#offers.size >= trackedOffersMax) {
      const oldest = this.#offers.entries().next().value;
      if (oldest === undefined || oldest[1].step === this.#step) return false;
      this.#offers.delete(oldest[0]);
    }
    this.#offers.set(key, { count, step: this.#step });
    return false;
  }

  /** Collects the blocks of one request into chunks. Undefined: every block is a chunk. */
  newChunks(): RequestChunks | undefined {
    const { blocksPerChunk } = this.#options;
    return blocksPerChunk.every((count) => count === 1) ? undefined : new RequestChunks(blocksPerChunk);
  }
}

/** The valid blocks of one request whose chunks are not complete. */
export class RequestChunks {
  readonly #blocksPerChunk: readonly number[];
  /** Per group and chunk: the keys of its valid blocks by their place in the chunk. */
  readonly #partial = new Map<string, Map<number, BlockKey>>();

  constructor(blocksPerChunk: readonly number[]) {
    this.#blocksPerChunk = blocksPerChunk;
  }

  /** The block is valid in the pool already, for instance because of a prefix hit. */
  addValid({ group, index, key }: KvBlock): void {
    this.#add(group, index, key);
  }

  /** The keys of the chunk that this block completes, in order; undefined if blocks of the chunk are not valid yet. */
  add({ group, index, key }: ValidBlock): readonly BlockKey[] | undefined {
    const count = this.#blocksPerChunk[group]!;
    const chunk = this.#add(group, index, key);
    if (chunk.size < count) return undefined;
    return Array.from({ length: count }, (_, at) => chunk.get(at)!);
  }

  #add(group: GroupIndex, index: BlockIndex, key: BlockKey): Map<number, BlockKey> {
    const count = this.#blocksPerChunk[group]!;
    const name = `${group}.${Math.floor(index / count)}`;
    const chunk = this.#partial.get(name) ?? new Map<number, BlockKey>();
    this.#partial.set(name, chunk.set(index % count, key));
    return chunk;
  }
}

/** The blocks of a chunk that the pool still has. */
export function blocksOf(
  keys: readonly BlockKey[],
  validBlock: (key: BlockKey) => SaveBlock['block'] | undefined,
): SaveBlock[] {
  return keys.flatMap((key) => {
    const block = validBlock(key);
    return block === undefined ? [] : [{ key, block }];
  });
}

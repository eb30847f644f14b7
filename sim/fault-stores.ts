import { assert } from '../src/base/assert.ts';
import type { Prng } from '../src/base/prng.ts';
import type { BlockKey } from '../src/connector/block-key.ts';
import type { StoredBlock } from './fake-runner.ts';

export const places = ['near', 'far'] as const;

/** One place or both. The number decides, so that all ranks store their parts of a block in the same places. */
export const somePlaces = (number: number): readonly string[] => [[places[0]], [places[1]], places][number % 3]!;

/** The parts of blocks of one rank, in two stores of one connector: a block that fails in one store may load from the other. */
export class FaultStores {
  readonly #prng: Prng;
  readonly #blocksMax: number;
  readonly #stores = new Map<string, Map<BlockKey, StoredBlock>>(places.map((place) => [place, new Map()]));
  /** The keys of all blocks that were ever stored. */
  readonly #keys: BlockKey[] = [];
  /** Called when a block was stored. */
  onSave: (key: BlockKey) => void = () => undefined;

  /** `blocksMax`: the most blocks in one store; the oldest is evicted. */
  constructor(prng: Prng, blocksMax: number) {
    this.#prng = prng;
    this.#blocksMax = blocksMax;
  }

  has(place: string, key: BlockKey): boolean {
    return this.#stores.get(place)!.has(key);
  }

  get(place: string, key: BlockKey): StoredBlock | undefined {
    return this.#stores.get(place)!.get(key);
  }

  anyKey(): BlockKey | undefined {
    return this.#keys.length === 0 ? undefined : this.#prng.pick(this.#keys);
  }

  save(key: BlockKey, block: StoredBlock, where: readonly string[]): void {
    for (const place of where) {
      const known = this.get(place, key);
      if (known?.entries.some((value, at) => value !== block.entries[at]) === true)
        assert(false, `I5: two different contents were saved with the key ${key}`);
      if (known !== undefined && known.label !== block.label)
        assert(false, `I10: ${key} is the key of two salts or models`);
      this.#put(this.#stores.get(place)!, key, block);
    }
    this.#keys.push(key);
    this.onSave(key);
  }

  #put(store: Map<BlockKey, StoredBlock>, key: BlockKey, block: StoredBlock): void {
    store.set(key, block);
    if (store.size <= this.#blocksMax) return;
    for (const oldest of store.keys()) {
      store.delete(oldest);
      return;
    }
  }

  /** Removes all blocks, or some. */
  clear(): void {
    const share = this.#prng.pick([0.2, 1]);
    for (const store of this.#stores.values())
      for (const key of [...store.keys()]) if (this.#prng.chance(share)) store.delete(key);
  }

  /** Removes one random block from all places. */
  remove(): void {
    const key = this.anyKey();
    for (const place of places) if (key !== undefined) this.#stores.get(place)!.delete(key);
  }
}

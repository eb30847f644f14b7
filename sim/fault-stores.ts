import { assert } from '../src/base/assert.ts';
import type { Prng } from '../src/base/prng.ts';
import type { BlockKey } from '../src/connector/block-key.ts';
import type { StoredBlock } from './fake-runner.ts';

export const places = ['near', 'far'] as const;

/** Two stores of one connector: a block that fails in one store may load from the other. */
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

  get(place: string, key: BlockKey): StoredBlock | undefined {
    return this.#stores.get(place)!.get(key);
  }

  /** The place of the block. A place that is not usable is the answer only if no usable place has the block. */
  placeOf(key: BlockKey, isUsable: (place: string) => boolean): string | undefined {
    let first: string | undefined;
    for (const place of places) {
      if (!this.#stores.get(place)!.has(key)) continue;
      if (isUsable(place)) return place;
      first ??= place;
    }
    return first;
  }

  anyKey(): BlockKey | undefined {
    return this.#keys.length === 0 ? undefined : this.#prng.pick(this.#keys);
  }

  /** Saves the block in one place or in both. */
  save(key: BlockKey, block: StoredBlock): void {
    const where = this.#prng.pick([[places[0]], [places[1]], places]);
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

  /** An administrator clears the stores, or removes some blocks from them. */
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

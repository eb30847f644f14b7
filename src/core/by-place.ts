import { type BlockPlace, placeName } from './block-place.ts';

/**
 * Finds items by their place, each once. Makes a map only if the places do not come in the order of the items: its names and entries are
 * most of what a load of many blocks would allocate.
 */
export class ByPlace<Item extends BlockPlace> {
  readonly #items: readonly Item[];
  readonly #isTaken: Uint8Array;
  /** All items before it are taken or were passed. */
  #next = 0;
  /** The items that were not taken, after the first place out of order. */
  #others: Map<string, Item> | undefined;

  constructor(items: readonly Item[]) {
    this.#items = items;
    this.#isTaken = new Uint8Array(items.length);
  }

  /** The item at this place; undefined if there is none, or if it was taken. */
  take(place: BlockPlace): Item | undefined {
    if (this.#others !== undefined) return this.#takeOther(place);
    for (let i = this.#next; i < this.#items.length; i++) {
      const item = this.#items[i]!;
      if (item.index !== place.index || item.group !== place.group) continue;
      this.#isTaken[i] = 1;
      this.#next = i + 1;
      return item;
    }
    this.#others = new Map();
    for (let i = 0; i < this.#items.length; i++)
      if (this.#isTaken[i] === 0) this.#others.set(placeName(this.#items[i]!), this.#items[i]!);
    return this.#takeOther(place);
  }

  #takeOther(place: BlockPlace): Item | undefined {
    const name = placeName(place);
    const item = this.#others!.get(name);
    if (item !== undefined) this.#others!.delete(name);
    return item;
  }
}

import { assert } from '../../base/assert.ts';

/** Sizes by name in the order of last use, and their sum. */
export class LruBytes<Name> {
  readonly #sizes = new Map<Name, number>();
  #total = 0;

  get totalBytes(): number {
    return this.#total;
  }

  get count(): number {
    return this.#sizes.size;
  }

  has(name: Name): boolean {
    return this.#sizes.has(name);
  }

  /** Undefined if the name is unknown. */
  bytesOf(name: Name): number | undefined {
    return this.#sizes.get(name);
  }

  /** Adds the name or replaces its size. The name becomes the most recently used. */
  set(name: Name, bytes: number): void {
    assert(Number.isSafeInteger(bytes) && bytes >= 0, `${bytes} bytes`);
    this.delete(name);
    this.#sizes.set(name, bytes);
    this.#total += bytes;
  }

  /** Makes the name the most recently used; false if it is unknown. */
  touch(name: Name): boolean {
    const bytes = this.#sizes.get(name);
    if (bytes === undefined) return false;
    this.#sizes.delete(name);
    this.#sizes.set(name, bytes);
    return true;
  }

  delete(name: Name): boolean {
    const bytes = this.#sizes.get(name);
    if (bytes === undefined) return false;
    this.#sizes.delete(name);
    this.#total -= bytes;
    return true;
  }

  /** Least recently used first. */
  names(): IterableIterator<Name> {
    return this.#sizes.keys();
  }

  /** The least recently used names with at least `bytes`; undefined if there are not enough that can be evicted. */
  oldest(bytes: number, isEvictable: (name: Name) => boolean): Name[] | undefined {
    const chosen: Name[] = [];
    let rest = bytes;
    for (const [name, size] of this.#sizes) {
      if (rest <= 0) break;
      if (!isEvictable(name)) continue;
      chosen.push(name);
      rest -= size;
    }
    return rest <= 0 ? chosen : undefined;
  }

  checkInvariants(): void {
    let sum = 0;
    for (const bytes of this.#sizes.values()) sum += bytes;
    assert(sum === this.#total, `sizes add up to ${sum}, the total says ${this.#total}`);
  }
}

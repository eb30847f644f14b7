import { assert } from '../../../base/assert.ts';
import type { EvictionPolicy } from './eviction-policy.ts';
import { RecencyList } from './recency-list.ts';

/** Evicts the least recently used blocks. */
export class LruPolicy<Name> implements EvictionPolicy<Name> {
  readonly #stored = new RecencyList<Name>();

  insert(name: Name): void {
    assert(!this.#stored.has(name), `${String(name)} is inserted twice`);
    this.#stored.use(name);
  }

  touch(names: readonly Name[]): void {
    for (let i = names.length - 1; i >= 0; i--) if (this.#stored.has(names[i]!)) this.#stored.use(names[i]!);
  }

  remove(name: Name): void {
    this.#stored.delete(name);
  }

  evict(count: number, isEvictable: (name: Name) => boolean): readonly Name[] | undefined {
    const victims: Name[] = [];
    if (count > 0) {
      for (const name of this.#stored.oldestFirst()) {
        if (isEvictable(name) && victims.push(name) === count) break;
      }
    }
    if (victims.length < count) return undefined;
    for (const name of victims) this.#stored.delete(name);
    return victims;
  }

  names(): Iterable<Name> {
    return this.#stored.oldestFirst();
  }

  checkInvariants(): void {
    this.#stored.checkInvariants();
  }
}

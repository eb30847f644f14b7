import { assert } from '../../../base/assert.ts';
import type { EvictionPolicy } from './eviction-policy.ts';
import { RecencyList } from './recency-list.ts';

/**
 * Adaptive replacement cache (Megiddo and Modha, FAST 2003), in the form of vLLM's offloading:
 *
 *     ghosts once | stored once || stored often | ghosts often       each list: least recently used first
 *          B1     |     T1      ||      T2      |      B2
 *
 * A block begins in `once` (T1) and moves to `often` (T2) when it is used again. Evicted names stay for a while in the
 * ghost lists (B1, B2). A use of a ghost of B1 says that `once` is too short, so the target length of `once` grows. A
 * use of a ghost of B2 lets it shrink. Evictions take the oldest of `once` if it has at least its target length, else
 * the oldest of `often`.
 */
export class ArcPolicy<Name> implements EvictionPolicy<Name> {
  readonly #capacity: number;
  readonly #once = new RecencyList<Name>();
  readonly #often = new RecencyList<Name>();
  readonly #ghostsOnce = new RecencyList<Name>();
  readonly #ghostsOften = new RecencyList<Name>();
  #target = 0;

  /** `capacity`: the number of blocks for which the tier has room, and the length of each ghost list at most. */
  constructor(capacity: number) {
    this.#capacity = capacity;
  }

  /** The wanted length of the list of blocks that were used once. Not an integer in general. */
  get target(): number {
    return this.#target;
  }

  /** The names of each list, least recently used first. */
  get lists(): Readonly<Record<'once' | 'often' | 'ghostsOnce' | 'ghostsOften', readonly Name[]>> {
    return {
      once: [...this.#once.oldestFirst()],
      often: [...this.#often.oldestFirst()],
      ghostsOnce: [...this.#ghostsOnce.oldestFirst()],
      ghostsOften: [...this.#ghostsOften.oldestFirst()],
    };
  }

  insert(name: Name): void {
    assert(!this.#once.has(name) && !this.#often.has(name), `${String(name)} is inserted twice`);
    this.#ghostsOnce.delete(name);
    this.#ghostsOften.delete(name);
    this.#once.use(name);
  }

  touch(names: readonly Name[]): void {
    for (let i = names.length - 1; i >= 0; i--) this.#touch(names[i]!);
  }

  remove(name: Name): void {
    for (const list of [this.#once, this.#often, this.#ghostsOnce, this.#ghostsOften]) list.delete(name);
  }

  evict(count: number, isEvictable: (name: Name) => boolean): readonly Name[] | undefined {
    const victims = this.#victims(count, isEvictable);
    if (victims === undefined) return undefined;
    for (const name of victims) {
      const ghosts = this.#once.delete(name) ? this.#ghostsOnce : this.#ghostsOften;
      this.#often.delete(name);
      ghosts.use(name);
      if (ghosts.size > this.#capacity) ghosts.delete(ghosts.oldest!);
    }
    return victims;
  }

  *names(): Iterable<Name> {
    yield* this.#once.oldestFirst();
    yield* this.#often.oldestFirst();
  }

  checkInvariants(): void {
    const lists = [this.#once, this.#often, this.#ghostsOnce, this.#ghostsOften];
    const names = new Set<Name>();
    let count = 0;
    for (const list of lists) {
      list.checkInvariants();
      for (const name of list.oldestFirst()) names.add(name);
      count += list.size;
    }
    assert(names.size === count, 'a name is in two lists');
    for (const ghosts of [this.#ghostsOnce, this.#ghostsOften]) {
      assert(ghosts.size <= this.#capacity, `${ghosts.size} ghosts, at most ${this.#capacity}`);
    }
    assert(this.#target >= 0 && this.#target <= this.#capacity, `a target of ${this.#target}`);
  }

  #touch(name: Name): void {
    const [ghostsOnce, ghostsOften] = [this.#ghostsOnce.size, this.#ghostsOften.size];
    if (this.#once.delete(name) || this.#often.has(name)) {
      this.#often.use(name);
    } else if (this.#ghostsOnce.has(name)) {
      this.#target = Math.min(this.#capacity, this.#target + Math.max(1, ghostsOften / ghostsOnce));
      this.#ghostsOnce.use(name);
    } else if (this.#ghostsOften.has(name)) {
      this.#target = Math.max(0, this.#target - Math.max(1, ghostsOnce / ghostsOften));
      this.#ghostsOften.use(name);
    }
  }

  /** The next `count` victims; nothing changes. */
  #victims(count: number, isEvictable: (name: Name) => boolean): readonly Name[] | undefined {
    const [once, often] = [evictableOf(this.#once, isEvictable), evictableOf(this.#often, isEvictable)];
    const victims: Name[] = [];
    let onceSize = this.#once.size;
    while (victims.length < count) {
      const first = onceSize >= Math.floor(this.#target) ? once : often;
      const list = first.next !== undefined ? first : first === once ? often : once;
      if (list.next === undefined) return undefined;
      victims.push(list.next);
      if (list === once) onceSize--;
      list.advance();
    }
    return victims;
  }
}

interface Cursor<Name> {
  /** The oldest evictable name that was not passed yet. */
  next: Name | undefined;
  advance(): void;
}

function evictableOf<Name>(list: RecencyList<Name>, isEvictable: (name: Name) => boolean): Cursor<Name> {
  const names = list.oldestFirst();
  const cursor: Cursor<Name> = {
    next: undefined,
    advance: () => {
      let { value, done } = names.next();
      while (done !== true && !isEvictable(value as Name)) ({ value, done } = names.next());
      cursor.next = done === true ? undefined : (value as Name);
    },
  };
  cursor.advance();
  return cursor;
}

import { assert } from '../../../base/assert.ts';

interface Node<Name> {
  readonly name: Name;
  older: Node<Name> | undefined;
  newer: Node<Name> | undefined;
}

/**
 * Names in the order of their last use. Every change takes constant time. A `Map` in insertion order would not do: after
 * many deletions at its start, each iteration skips the deleted entries again.
 */
export class RecencyList<Name> {
  readonly #nodes = new Map<Name, Node<Name>>();
  #oldest: Node<Name> | undefined;
  #newest: Node<Name> | undefined;

  get size(): number {
    return this.#nodes.size;
  }

  has(name: Name): boolean {
    return this.#nodes.has(name);
  }

  /** Adds the name as the most recently used, or makes it so. */
  use(name: Name): void {
    const known = this.#nodes.get(name);
    const node = known ?? { name, older: undefined, newer: undefined };
    if (known === undefined) this.#nodes.set(name, node);
    else if (node === this.#newest) return;
    else this.#unlink(node);
    node.older = this.#newest;
    node.newer = undefined;
    if (this.#newest === undefined) this.#oldest = node;
    else this.#newest.newer = node;
    this.#newest = node;
  }

  /** False if the name is unknown. */
  delete(name: Name): boolean {
    const node = this.#nodes.get(name);
    if (node === undefined) return false;
    this.#nodes.delete(name);
    this.#unlink(node);
    return true;
  }

  /** The least recently used name. */
  get oldest(): Name | undefined {
    return this.#oldest?.name;
  }

  /** Least recently used first. The list must not change during the iteration. */
  *oldestFirst(): IterableIterator<Name> {
    for (let node = this.#oldest; node !== undefined; node = node.newer) yield node.name;
  }

  checkInvariants(): void {
    let count = 0;
    let older: Node<Name> | undefined;
    for (let node = this.#oldest; node !== undefined; node = node.newer) {
      assert(node.older === older, 'a name has another predecessor than the list');
      assert(this.#nodes.get(node.name) === node, 'the list has a name that the map does not have');
      older = node;
      count++;
      assert(count <= this.#nodes.size, 'the list has more names than the map');
    }
    assert(older === this.#newest, 'the newest name is not at the end of the list');
    assert(count === this.#nodes.size, `the list has ${count} names, the map ${this.#nodes.size}`);
  }

  #unlink(node: Node<Name>): void {
    if (node.older === undefined) this.#oldest = node.newer;
    else node.older.newer = node.newer;
    if (node.newer === undefined) this.#newest = node.older;
    else node.newer.older = node.older;
  }
}

/** Decides which blocks leave a full tier. It knows the names of the stored blocks; the tier knows which are pinned. */
export interface EvictionPolicy<Name> {
  /** Adds a block that was stored. It must not be known yet. */
  insert(name: Name): void;

  /**
   * The blocks of one request were used, in the order of the request. The first becomes the most recently used, so that
   * the later positions of a request are evicted first: they are useless without the earlier ones. Names that are not
   * stored are allowed, because a policy may learn from blocks that it evicted.
   */
  touch(names: readonly Name[]): void;

  /** Removes a block for another reason than eviction. No effect if it is unknown. */
  remove(name: Name): void;

  /**
   * Removes `count` blocks for which `isEvictable` is true, in the order of eviction. Undefined: there are fewer, and no
   * block was removed.
   */
  evict(count: number, isEvictable: (name: Name) => boolean): readonly Name[] | undefined;

  /** The stored blocks, in no particular order. */
  names(): Iterable<Name>;

  checkInvariants(): void;
}

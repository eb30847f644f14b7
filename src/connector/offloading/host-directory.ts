import type { BlockKey } from '../block-key.ts';

/**
 * The scheduler's record of the blocks that the host tiers of all ranks have. It is made from the workers' reports, so
 * it can be wrong for a moment. A load verifies, so a wrong entry is only a miss.
 */
export class HostDirectory {
  /** Oldest first. */
  readonly #keys = new Set<BlockKey>();
  readonly #countMax: number;

  /** `countMax`: more blocks are not in host memory, so the oldest entries are wrong. */
  constructor(countMax: number) {
    this.#countMax = countMax;
  }

  get size(): number {
    return this.#keys.size;
  }

  has(key: BlockKey): boolean {
    return this.#keys.has(key);
  }

  /** All ranks have the block. */
  add(key: BlockKey): void {
    this.#keys.delete(key);
    this.#keys.add(key);
    if (this.#keys.size > this.#countMax) this.#keys.delete(this.#keys.values().next().value as BlockKey);
  }

  /** At least one rank does not have the block. */
  remove(key: BlockKey): void {
    this.#keys.delete(key);
  }
}

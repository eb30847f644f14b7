import type { BlockKey } from '../block-key.ts';

/** Blocks that the directory gained or lost, in order. */
export interface DirectoryChange {
  readonly kind: 'stored' | 'removed';
  readonly keys: BlockKey[];
}

/**
 * The scheduler's record of the blocks that the host tiers of all ranks have. It is made from the workers' reports, so
 * it can be wrong for a moment. A load verifies, so a wrong entry is only a miss.
 */
export class HostDirectory {
  /** Oldest first. */
  readonly #keys = new Set<BlockKey>();
  readonly #countMax: number;
  #changes: DirectoryChange[] = [];

  /** `countMax`: more blocks are not in host memory, so the oldest entries are wrong. */
  constructor(countMax: number) {
    this.#countMax = countMax;
  }

  get size(): number {
    return this.#keys.size;
  }

  /** Oldest first. */
  get keys(): ReadonlySet<BlockKey> {
    return this.#keys;
  }

  has(key: BlockKey): boolean {
    return this.#keys.has(key);
  }

  /** All ranks have the block. */
  add(key: BlockKey): void {
    if (!this.#keys.delete(key)) this.#note('stored', key);
    this.#keys.add(key);
    if (this.#keys.size > this.#countMax) this.remove(this.#keys.values().next().value as BlockKey);
  }

  /** At least one rank does not have the block. */
  remove(key: BlockKey): void {
    if (this.#keys.delete(key)) this.#note('removed', key);
  }

  /** The changes since the last call. Called after each step. */
  takeChanges(): readonly DirectoryChange[] {
    const changes = this.#changes;
    this.#changes = [];
    return changes;
  }

  #note(kind: DirectoryChange['kind'], key: BlockKey): void {
    const last = this.#changes.at(-1);
    if (last?.kind === kind) last.keys.push(key);
    else this.#changes.push({ kind, keys: [key] });
  }
}

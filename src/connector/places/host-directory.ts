import type { BlockKey } from '../block-key.ts';
import type { KvEvent } from '../connector.ts';

export const hostPlace = 'host';

/** Blocks that the directory gained or lost, in order. */
interface Change {
  readonly kind: KvEvent['kind'];
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
  #changes: Change[] = [];

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

  /** All ranks have these blocks. */
  stored(keys: readonly BlockKey[]): void {
    for (const key of keys) {
      if (!this.#keys.delete(key)) this.#note('stored', key);
      this.#keys.add(key);
      if (this.#keys.size > this.#countMax) this.lost(this.#keys.values().next().value as BlockKey);
    }
  }

  /** The block was loaded: it is in host memory now, if it was not before. */
  loaded(key: BlockKey): void {
    if (!this.has(key)) this.stored([key]);
  }

  evicted(keys: readonly BlockKey[]): void {
    for (const key of keys) this.lost(key);
  }

  /** At least one rank does not have the block. */
  lost(key: BlockKey): void {
    if (this.#keys.delete(key)) this.#note('removed', key);
  }

  /** The changes since the last call. Called after each step. */
  takeEvents(): readonly KvEvent[] {
    const changes = this.#changes;
    this.#changes = [];
    return changes.map((change) => ({ ...change, place: hostPlace }));
  }

  #note(kind: Change['kind'], key: BlockKey): void {
    const last = this.#changes.at(-1);
    if (last?.kind === kind) last.keys.push(key);
    else this.#changes.push({ kind, keys: [key] });
  }
}

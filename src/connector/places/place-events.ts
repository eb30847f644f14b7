import type { BlockKey } from '../block-key.ts';
import type { KvEvent, KvIdentity, PlaceChange } from '../connector.ts';
import { hasKvOn } from '../tier/blocks-of-rank.ts';

/** Blocks that not all ranks have stored yet; the oldest are forgotten. */
const partialMax = 1 << 14;

/**
 * The events of the tiers below host memory, from the reports of the ranks. A block is stored when all ranks with KV in it
 * have stored their parts, and removed when one rank has evicted its part.
 */
export class PlaceEvents {
  readonly #hasKv: readonly ((key: BlockKey) => boolean)[];
  /** By place and key, on how many ranks the block is stored; oldest first. Blocks that all ranks have are forgotten. */
  readonly #partial = new Map<string, number>();

  /** `identities`: one per rank. */
  constructor(identities: readonly Pick<KvIdentity, 'groups'>[]) {
    this.#hasKv = identities.map(hasKvOn);
  }

  eventsOf(changes: readonly PlaceChange[]): KvEvent[] {
    return changes.flatMap(({ place, stored, evicted }) => {
      const events: KvEvent[] = [];
      const whole = stored.filter((key) => this.#isWhole(place, key));
      if (whole.length > 0) events.push({ kind: 'stored', keys: whole, place });
      if (evicted.length > 0) events.push({ kind: 'removed', keys: evicted, place });
      for (const key of evicted) this.#partial.delete(nameOf(place, key));
      return events;
    });
  }

  /** Counts a rank that has stored the block. */
  #isWhole(place: string, key: BlockKey): boolean {
    if (this.#hasKv.length === 1) return true;
    const ranks = this.#hasKv.filter((hasKv) => hasKv(key)).length;
    const name = nameOf(place, key);
    const count = (this.#partial.get(name) ?? 0) + 1;
    this.#partial.delete(name);
    if (count === ranks) return true;
    this.#partial.set(name, count);
    if (this.#partial.size > partialMax) this.#partial.delete(this.#partial.keys().next().value as string);
    return false;
  }
}

const nameOf = (place: string, key: BlockKey): string => `${place}/${key}`;

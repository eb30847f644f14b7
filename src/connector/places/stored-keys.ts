import type { Clock } from '../../base/clock.ts';
import type { BlockKey } from '../block-key.ts';
import type { KvBlock, KvEvent } from '../connector.ts';

/** How many stored keys are remembered. */
const knownMax = 1 << 18;
/**
 * How long a block counts as stored after it was found or saved. Other processes may evict it. After this time, a block
 * that a request uses is looked up again, and saved again if it is missing.
 */
const storedTrustMs = 60_000;
/** The shortest time between two such look-ups, because computing the keys of a request takes time. */
const refreshMs = 1_000;

/** The blocks of a place that saves go to and that other processes change too, as far as this engine has heard of them. */
export class StoredKeys {
  readonly #place: string;
  readonly #clock: Clock;
  /** When each key was last found or saved; oldest first. */
  readonly #seenMs = new Map<BlockKey, number>();
  /** Keys that were stored and are missing now, with their salts: saved again if the pool still has their blocks. */
  #missing = new Map<BlockKey, string | undefined>();
  #refreshedMs = -Infinity;
  #events: KvEvent[] = [];

  constructor(place: string, clock: Clock) {
    this.#place = place;
    this.#clock = clock;
  }

  /** Whether the key was recently found in the store or saved. */
  has(key: BlockKey): boolean {
    const seenMs = this.#seenMs.get(key);
    return seenMs !== undefined && this.#clock.nowMs() - seenMs < storedTrustMs;
  }

  stored(keys: readonly BlockKey[]): void {
    for (const key of keys) this.#seen(key);
    if (keys.length > 0) this.#events.push({ kind: 'stored', keys, place: this.#place });
  }

  evicted(keys: readonly BlockKey[]): void {
    for (const key of keys) this.lost(key);
    if (keys.length > 0) this.#events.push({ kind: 'removed', keys, place: this.#place });
  }

  /** The block could not be loaded. It is saved when it is computed again. */
  lost(key: BlockKey): void {
    this.#seenMs.delete(key);
  }

  /** The answers of a look-up: a place, or `false`. A missing block is saved when it becomes valid. Undefined: not known. */
  lookedUp(keys: readonly BlockKey[], answers: readonly (string | false | undefined)[]): void {
    for (const [i, key] of keys.entries()) {
      const answer = answers[i];
      if (typeof answer === 'string') this.#seen(key);
      else if (answer === false) this.lost(key);
    }
  }

  /** Those of the keys that were stored long ago, if it is time to look up some. */
  old(valid: () => readonly KvBlock[]): readonly BlockKey[] {
    const nowMs = this.#clock.nowMs();
    if (nowMs - this.#refreshedMs < refreshMs) return [];
    this.#refreshedMs = nowMs;
    return [...new Set(valid().map(({ key }) => key))].filter((key) => this.#seenMs.has(key) && !this.has(key));
  }

  /** The block is no longer stored: it is saved again at the next step. `cacheSalt`: of its request. */
  saveAgain(key: BlockKey, cacheSalt?: string): void {
    this.#missing.set(key, cacheSalt);
  }

  get isSavingAgain(): boolean {
    return this.#missing.size > 0;
  }

  /** With the cache salt of each. */
  takeMissing(): ReadonlyMap<BlockKey, string | undefined> {
    const missing = this.#missing;
    this.#missing = new Map();
    return missing;
  }

  takeEvents(): readonly KvEvent[] {
    const events = this.#events;
    this.#events = [];
    return events;
  }

  #seen(key: BlockKey): void {
    this.#seenMs.delete(key);
    this.#seenMs.set(key, this.#clock.nowMs());
    if (this.#seenMs.size <= knownMax) return;
    for (const oldest of this.#seenMs.keys()) {
      this.#seenMs.delete(oldest);
      return;
    }
  }
}

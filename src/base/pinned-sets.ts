import { assert } from './assert.ts';

/** A set of keys to pin. */
export interface SetToPin<Key> {
  /** Equal sets have equal names. */
  readonly name: string;
  /** In the order in which they are worth keeping. */
  readonly keys: readonly Key[];
  readonly ttlMs: number;
}

/** A pinned set: its first keys, as many as the bound of all sets allows. */
export interface PinnedSet<Key> extends SetToPin<Key> {
  readonly untilMs: number;
}

interface Pin<Key> extends PinnedSet<Key> {
  untilMs: number;
  isUsed: boolean;
}

/**
 * Named sets of keys, each with a time to live that uses of its keys begin again. All sets together have a bounded number of keys. Nothing
 * changes by itself: a set ends at the first `setTime` after its time.
 */
export class PinnedSets<Key> {
  /** Of all sets together. */
  readonly keysMax: number;
  readonly #pins = new Map<string, Pin<Key>>();
  /** The pins that have each key. */
  readonly #pinsOf = new Map<Key, Set<Pin<Key>>>();
  #expired = 0;

  constructor(keysMax: number) {
    this.keysMax = keysMax;
  }

  get size(): number {
    return this.#pins.size;
  }

  /** Different keys of all sets. */
  get keyCount(): number {
    return this.#pinsOf.size;
  }

  /** Sets that ended because their time to live was over. */
  get expiredCount(): number {
    return this.#expired;
  }

  list(): readonly PinnedSet<Key>[] {
    return [...this.#pins.values()];
  }

  has(key: Key): boolean {
    return this.#pinsOf.has(key);
  }

  /** Pins the first keys, as many as there is room for; undefined: none. Replaces the set of this name. */
  pin({ name, keys: wanted, ttlMs }: SetToPin<Key>, nowMs: number): PinnedSet<Key> | undefined {
    this.unpin(name);
    const keys: Key[] = [];
    let room = this.keysMax - this.#pinsOf.size;
    for (const key of wanted) {
      if (!this.#pinsOf.has(key) && room-- <= 0) break;
      keys.push(key);
    }
    if (keys.length === 0) return undefined;
    const pin: Pin<Key> = { name, keys, untilMs: nowMs + ttlMs, ttlMs, isUsed: false };
    this.#pins.set(name, pin);
    for (const key of keys) {
      const pins = this.#pinsOf.get(key);
      if (pins === undefined) this.#pinsOf.set(key, new Set([pin]));
      else pins.add(pin);
    }
    return pin;
  }

  /** False: there is no such set. */
  unpin(name: string): boolean {
    const pin = this.#pins.get(name);
    if (pin === undefined) return false;
    this.#pins.delete(name);
    for (const key of pin.keys) {
      const pins = this.#pinsOf.get(key)!;
      pins.delete(pin);
      if (pins.size === 0) this.#pinsOf.delete(key);
    }
    return true;
  }

  /** The time to live of the sets with this key begins again at the next `setTime`. */
  used(key: Key): void {
    for (const pin of this.#pinsOf.get(key) ?? []) pin.isUsed = true;
  }

  /** Whether a set has ended. */
  setTime(nowMs: number): boolean {
    let hasExpired = false;
    for (const pin of [...this.#pins.values()]) {
      if (pin.isUsed) pin.untilMs = nowMs + pin.ttlMs;
      pin.isUsed = false;
      if (pin.untilMs > nowMs) continue;
      this.unpin(pin.name);
      this.#expired++;
      hasExpired = true;
    }
    return hasExpired;
  }

  checkInvariants(): void {
    let count = 0;
    for (const [key, pins] of this.#pinsOf) {
      assert(pins.size > 0, 'a key is pinned without a pin');
      for (const pin of pins)
        assert(this.#pins.get(pin.name) === pin && pin.keys.includes(key), 'a pin that has ended keeps a key');
      count += pins.size;
    }
    for (const { keys } of this.#pins.values()) count -= keys.length;
    assert(count === 0, 'a key of a pin is not pinned');
    assert(this.#pinsOf.size <= this.keysMax, `${this.#pinsOf.size} keys are pinned, at most ${this.keysMax} may be`);
  }
}

import { PinnedSets, type SetToPin } from '../../base/pinned-sets.ts';
import type { BlockKey } from '../block-key.ts';
import type { TierPinReport } from '../tier-orders.ts';

/** The part of a tier that pinned blocks may have. */
const pinnedShare = 0.5;

/**
 * The prefixes that a tier does not evict, stored or not. A pin moves no block, and ends after its time to live without a load or store of its
 * blocks in this tier. It does not keep blocks from orders, and not from the tier's own time to live.
 */
export class TierPins {
  readonly #pins: PinnedSets<BlockKey>;
  readonly #nowMs: () => number;

  /** `blocksMax`: for which the tier has room. */
  constructor(blocksMax: number, nowMs: () => number) {
    this.#pins = new PinnedSets(Math.floor(blocksMax * pinnedShare));
    this.#nowMs = nowMs;
  }

  /** How many of the keys are pinned: the first ones. */
  pin(prefix: SetToPin<BlockKey>): number {
    this.expire();
    return this.#pins.pin(prefix, this.#nowMs())?.keys.length ?? 0;
  }

  /** How many keys were pinned by this name. */
  unpin(name: string): number {
    const keys = this.#pins.list().find((pin) => pin.name === name)?.keys.length ?? 0;
    this.#pins.unpin(name);
    return keys;
  }

  /** Different blocks of all pins. */
  get blockCount(): number {
    this.expire();
    return this.#pins.keyCount;
  }

  /** Before evictions: ends the pins whose time is over. */
  expire(): void {
    if (this.#pins.size > 0) this.#pins.setTime(this.#nowMs());
  }

  keeps(key: BlockKey): boolean {
    return this.#pins.size > 0 && this.#pins.has(key);
  }

  /** The block was loaded or stored: the time to live of its pins begins again, unless it is over. */
  used(key: BlockKey): void {
    if (!this.keeps(key)) return;
    this.expire();
    this.#pins.used(key);
    this.expire();
  }

  report(): TierPinReport {
    this.expire();
    const nowMs = this.#nowMs();
    const pins = this.#pins.list().map(({ name, keys, ttlMs, untilMs }) => ({
      ...{ name, ttlMs, blocks: keys.length },
      leftMs: Math.max(0, untilMs - nowMs),
    }));
    const { keyCount: blocks, keysMax: blocksMax, expiredCount: expired } = this.#pins;
    return { pins, blocks, blocksMax, expired };
  }

  checkInvariants(): void {
    this.#pins.checkInvariants();
  }
}

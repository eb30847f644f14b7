import { assert } from '../../../base/assert.ts';

/** The system maps memory when it is first written, so an arena costs nothing before its slots are used. */
const arenaBytesDefault = 256 << 20;

export interface SlotArenasOptions {
  readonly slotBytes: number;
  readonly slotCountMax: number;
  /** The size of an arena at most, but at least one slot. */
  readonly arenaBytes?: number;
  /** Memory of this size, for tests. Throws RangeError if there is none, as an ArrayBuffer does. */
  readonly allocate?: (bytes: number) => Uint8Array;
}

/**
 * Memory in slots of equal size. It grows by arenas, so it may be larger than an ArrayBuffer can be, and a store never
 * allocates memory of its own. Freed slots are used again first, the last one freed before the others: its pages are
 * mapped and possibly still in a CPU cache.
 */
export class SlotArenas {
  readonly #slotBytes: number;
  readonly #slotsPerArena: number;
  readonly #allocate: (bytes: number) => Uint8Array;
  readonly #arenas: Uint8Array[] = [];
  readonly #free: number[] = [];
  #slotCountMax: number;
  /** Slots that were used at least once: 0 .. `#touched` - 1. */
  #touched = 0;

  constructor({ slotBytes, slotCountMax, arenaBytes = arenaBytesDefault, allocate }: SlotArenasOptions) {
    assert(Number.isSafeInteger(slotBytes) && slotBytes > 0, `slots of ${slotBytes} bytes`);
    assert(Number.isSafeInteger(slotCountMax) && slotCountMax >= 0, `${slotCountMax} slots`);
    this.#slotBytes = slotBytes;
    this.#slotCountMax = slotCountMax;
    this.#slotsPerArena = Math.max(1, Math.min(slotCountMax, Math.floor(arenaBytes / slotBytes)));
    // Without zeroes: writing them would map all pages.
    this.#allocate = allocate ?? ((bytes) => new Uint8Array(Buffer.allocUnsafeSlow(bytes).buffer));
  }

  /** Smaller than at the start if the system had no memory for another arena. */
  get slotCountMax(): number {
    return this.#slotCountMax;
  }

  get usedCount(): number {
    return this.#touched - this.#free.length;
  }

  get freeCount(): number {
    return this.#slotCountMax - this.usedCount;
  }

  /** A free slot with unknown content; undefined if there is none. */
  take(): number | undefined {
    const freed = this.#free.pop();
    if (freed !== undefined) return freed;
    if (this.#touched >= this.#slotCountMax) return undefined;
    if (this.#touched === this.#arenas.length * this.#slotsPerArena && !this.#grow()) return undefined;
    return this.#touched++;
  }

  giveBack(slot: number): void {
    assert(slot >= 0 && slot < this.#touched, `slot ${slot} was never taken`);
    this.#free.push(slot);
  }

  bytesOf(slot: number): Uint8Array {
    const arena = this.#arenas[Math.floor(slot / this.#slotsPerArena)];
    assert(arena !== undefined, `slot ${slot} has no memory`);
    const start = (slot % this.#slotsPerArena) * this.#slotBytes;
    return arena.subarray(start, start + this.#slotBytes);
  }

  /** `used`: the slots that the caller has. */
  checkInvariants(used: ReadonlySet<number>): void {
    const free = new Set(this.#free);
    assert(free.size === this.#free.length, 'a slot is free twice');
    for (const slot of free) assert(!used.has(slot), `slot ${slot} is free and used`);
    assert(used.size === this.usedCount, `${used.size} slots are used, ${this.usedCount} were taken`);
    assert(this.#touched <= this.#slotCountMax, `${this.#touched} slots, at most ${this.#slotCountMax}`);
  }

  /** False if the system has no memory. The slots so far are then all that there will be. */
  #grow(): boolean {
    const slots = Math.min(this.#slotsPerArena, this.#slotCountMax - this.#arenas.length * this.#slotsPerArena);
    try {
      this.#arenas.push(this.#allocate(slots * this.#slotBytes));
      return true;
    } catch (error) {
      if (!(error instanceof RangeError)) throw error;
      this.#slotCountMax = this.#touched;
      return false;
    }
  }
}

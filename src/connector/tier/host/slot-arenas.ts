import { assert } from '../../../base/assert.ts';

/** The system maps memory when it is first written, so an arena costs nothing before its slots are used. */
const arenaBytesDefault = 256 << 20;
/** How much memory is mapped before it is used: what a model of 0.6B stores for 2,300 tokens in F16. */
const aheadBytesDefault = 256 << 20;
/** The system maps a piece in about a millisecond. */
const pieceBytesDefault = 1 << 20;

export interface SlotArenasOptions {
  readonly slotBytes: number;
  readonly slotCountMax: number;
  /** The size of an arena at most, but at least one slot. */
  readonly arenaBytes?: number;
  readonly aheadBytes?: number;
  readonly pieceBytes?: number;
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
  readonly #aheadBytes: number;
  readonly #pieceBytes: number;
  readonly #allocate: (bytes: number) => Uint8Array;
  readonly #arenas: Uint8Array[] = [];
  readonly #free: number[] = [];
  #slotCountMax: number;
  /** Slots that were used at least once: 0 .. `#touched` - 1. */
  #touched = 0;
  /** Of the bytes of all arenas in a row, the end of the pieces from `nextUnmapped`. */
  #mappedEnd = 0;

  constructor(options: SlotArenasOptions) {
    const { slotBytes, slotCountMax, arenaBytes = arenaBytesDefault, allocate } = options;
    assert(Number.isSafeInteger(slotBytes) && slotBytes > 0, `slots of ${slotBytes} bytes`);
    assert(Number.isSafeInteger(slotCountMax) && slotCountMax >= 0, `${slotCountMax} slots`);
    this.#slotBytes = slotBytes;
    this.#slotCountMax = slotCountMax;
    this.#slotsPerArena = Math.max(1, Math.min(slotCountMax, Math.floor(arenaBytes / slotBytes)));
    this.#aheadBytes = options.aheadBytes ?? aheadBytesDefault;
    this.#pieceBytes = options.pieceBytes ?? pieceBytesDefault;
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

  /** A free slot with unknown content; undefined if there is none. Without memory for more slots, there are only those so far. */
  take(): number | undefined {
    const freed = this.#free.pop();
    if (freed !== undefined) return freed;
    if (this.#touched >= this.#slotCountMax) return undefined;
    const slotsWithMemory = this.#arenas.length * this.#slotsPerArena;
    if (this.#touched === slotsWithMemory && !this.#grow()) {
      this.#slotCountMax = this.#touched;
      return undefined;
    }
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

  /**
   * The next piece of the slots that were never used, for mapping it before its use (`MemoryAhead`). Undefined if the memory
   * ahead of the used slots has been returned before. A slot may be taken while its memory is mapped.
   */
  nextUnmapped(): Uint8Array | undefined {
    const used = this.#touched * this.#slotBytes;
    const start = Math.max(used, this.#mappedEnd);
    const end = Math.min(used + this.#aheadBytes, this.#slotCountMax * this.#slotBytes);
    if (start >= end) return undefined;
    const arenaBytes = this.#slotsPerArena * this.#slotBytes;
    const index = Math.floor(start / arenaBytes);
    if (index === this.#arenas.length && !this.#grow()) return undefined;
    const from = start - index * arenaBytes;
    const piece = this.#arenas[index]!.subarray(from, from + Math.min(this.#pieceBytes, end - start));
    this.#mappedEnd = start + piece.length;
    return piece;
  }

  /** `used`: the slots that the caller has. */
  checkInvariants(used: ReadonlySet<number>): void {
    const free = new Set(this.#free);
    assert(free.size === this.#free.length, 'a slot is free twice');
    for (const slot of free) assert(!used.has(slot), `slot ${slot} is free and used`);
    assert(used.size === this.usedCount, `${used.size} slots are used, ${this.usedCount} were taken`);
    assert(this.#touched <= this.#slotCountMax, `${this.#touched} slots, at most ${this.#slotCountMax}`);
  }

  /** False if the system has no memory. */
  #grow(): boolean {
    const slots = Math.min(this.#slotsPerArena, this.#slotCountMax - this.#arenas.length * this.#slotsPerArena);
    try {
      this.#arenas.push(this.#allocate(slots * this.#slotBytes));
      return true;
    } catch (error) {
      if (!(error instanceof RangeError)) throw error;
      return false;
    }
  }
}

import { availableParallelism } from 'node:os';
import { systemClock } from '../base/clock.ts';
import { IdleCpus } from '../base/idle-cpus.ts';
import { type AddressRange, mapRange } from '../base/map-memory.ts';
import { MemoryAhead } from '../base/memory-ahead.ts';
import type { Timers } from '../base/timers.ts';
import type { KvMemory } from './kv-memory.ts';

/** As much as a model of 0.6B needs for 2,300 tokens in F16. */
const aheadBytesDefault = 256 << 20;
/** The system maps a piece in some milliseconds. */
const pieceBytes = 2 << 20;

/** What is known of a pool: its blocks lie one after the other. */
type Pool = Pick<KvMemory, 'baseAddress' | 'blockBytes' | 'blockCount'>;

/**
 * Maps blocks of a pool on a CPU before their first use, while the machine is idle. Without it, a prompt whose blocks are new to
 * the system computes up to a tenth longer.
 */
export class KvMemoryAhead {
  readonly #unmapped: UnmappedBlocks;
  readonly #rowsPerBlock: readonly number[];
  readonly #ahead: MemoryAhead<AddressRange>;

  /** `rowsPerBlock`: by KV group. */
  constructor(pool: Pool, rowsPerBlock: readonly number[], timers: Timers) {
    const cpus = new IdleCpus(systemClock, availableParallelism());
    this.#unmapped = new UnmappedBlocks(pool);
    this.#rowsPerBlock = rowsPerBlock;
    this.#ahead = new MemoryAhead({
      nextPiece: () => this.#unmapped.next(),
      map: mapRange,
      isBusy: () => cpus.isBusy,
      timers,
    });
    this.#ahead.wake();
  }

  /** A step writes these slots (`KvMemory.slotOf`), by KV group. */
  used(slots: readonly Int32Array[]): void {
    for (let group = 0; group < slots.length; group++)
      if (this.#unmapped.used(slots[group]!, this.#rowsPerBlock[group]!)) this.#ahead.wake();
  }

  /** After it, the pool's memory may be freed. */
  close(): Promise<void> {
    return this.#ahead.close();
  }
}

/** The part of a pool that will be used next. New blocks are used in ascending order. */
export class UnmappedBlocks {
  readonly #pool: Pool;
  readonly #aheadBytes: number;
  /** Bytes from the start of the pool: up to the last used block, and to the end of the last piece. */
  #usedEnd = 0;
  #mappedEnd = 0;

  constructor(pool: Pool, aheadBytes = aheadBytesDefault) {
    this.#pool = pool;
    this.#aheadBytes = aheadBytes;
  }

  /** True: more is to be mapped than before. */
  used(slots: Int32Array, rowsPerBlock: number): boolean {
    let last = -1;
    for (const slot of slots) if (slot > last) last = slot;
    const { blockBytes } = this.#pool;
    const end = (Math.floor(last / rowsPerBlock) + 1) * blockBytes;
    if (end <= this.#usedEnd) return false;
    this.#usedEnd = end;
    return true;
  }

  /** Each part of the pool once. Undefined: enough is mapped for now. */
  next(): AddressRange | undefined {
    const { baseAddress, blockBytes, blockCount } = this.#pool;
    const start = Math.max(this.#usedEnd, this.#mappedEnd);
    const end = Math.min(this.#usedEnd + this.#aheadBytes, blockCount * blockBytes);
    if (start >= end) return undefined;
    this.#mappedEnd = Math.min(start + pieceBytes, end);
    return { address: baseAddress + start, byteLength: this.#mappedEnd - start };
  }
}

import { assert } from '../../../base/assert.ts';
import { headerBytes } from '../block-header.ts';
import type { ByteSink } from './s3-bucket.ts';
import { S3Failure } from './s3-failure.ts';

/** Where one of the blocks of a range goes. */
export interface ScatterTarget {
  /** The memory for the payload; undefined after the load was aborted. */
  into: Uint8Array | undefined;
  /**
   * Called when the header and the payload are complete, or when the object has no more bytes. `storedBytes`: how many
   * bytes of the block are in the object.
   */
  arrived(header: Uint8Array, storedBytes: number): void;
}

/** Writes consecutive blocks of an object directly into the memory of their loads. */
export class BlockScatter implements ByteSink {
  readonly #targets: readonly ScatterTarget[];
  readonly #firstSlot: number;
  readonly #slotCount: number;
  readonly #slotBytes: number;
  readonly #header = new Uint8Array(headerBytes);
  #objectBytes = 0;
  /** The target in progress, and how many of its bytes have arrived. */
  #target = 0;
  #at = 0;
  #received = 0;

  /** `targets`: the blocks at `firstSlot`, `firstSlot + 1`, ... of an object with `slotCount` blocks. */
  constructor(
    targets: readonly ScatterTarget[],
    where: { readonly firstSlot: number; readonly slotCount: number; readonly slotBytes: number },
  ) {
    this.#targets = targets;
    this.#firstSlot = where.firstSlot;
    this.#slotCount = where.slotCount;
    this.#slotBytes = where.slotBytes;
  }

  begin(objectBytes: number): void {
    this.#objectBytes = objectBytes;
  }

  write(chunk: Uint8Array): void {
    let at = 0;
    while (at < chunk.length) {
      assert(this.#target < this.#targets.length, 'more bytes than the range has');
      const part = chunk.subarray(at, at + this.#partLeft());
      this.#copy(part);
      at += part.length;
      this.#at += part.length;
      this.#received += part.length;
      if (this.#at === this.#slotBytes) this.#finish();
    }
  }

  /** The answer is complete: blocks that have not arrived are not in the object. Throws if the answer is too short. */
  end(): void {
    const inObject = Math.max(0, this.#objectBytes - this.#firstSlot * this.#slotBytes);
    const wanted = Math.min(inObject, this.#targets.length * this.#slotBytes);
    if (this.#received < wanted) {
      throw new S3Failure('failed', 'ShortAnswer', `${this.#received} of ${wanted} bytes arrived`);
    }
    while (this.#target < this.#targets.length) this.#finish();
  }

  /** Bytes of the header or of the payload that are still to come. */
  #partLeft(): number {
    return (this.#at < headerBytes ? headerBytes : this.#slotBytes) - this.#at;
  }

  #copy(part: Uint8Array): void {
    if (this.#at < headerBytes) this.#header.set(part, this.#at);
    else this.#targets[this.#target]!.into?.set(part, this.#at - headerBytes);
  }

  #finish(): void {
    const slot = this.#firstSlot + this.#target;
    const target = this.#targets[this.#target]!;
    this.#target++;
    this.#at = 0;
    target.arrived(this.#header, this.#storedBytes(slot));
    this.#header.fill(0);
  }

  /** Bytes after the last block belong to that block, so an object that is too long is detected. */
  #storedBytes(slot: number): number {
    const left = Math.max(0, this.#objectBytes - slot * this.#slotBytes);
    return slot === this.#slotCount - 1 ? left : Math.min(left, this.#slotBytes);
  }
}

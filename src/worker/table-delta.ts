import { assert } from '../base/assert.ts';
import type { BlockTable } from '../core/step.ts';
import type { Int32Reader, Int32Writer } from './int32-stream.ts';

/** A copy of a request's block table that both ends keep between steps. */
export class TableMirror implements BlockTable {
  #ids = new Int32Array(16);
  #length = 0;

  get ids(): Int32Array {
    return this.#ids;
  }

  get length(): number {
    return this.#length;
  }

  resize(length: number): void {
    assert(length >= 0, `a block table of ${length} blocks`);
    if (length > this.#ids.length) {
      const grown = new Int32Array(Math.max(length, this.#ids.length * 2));
      grown.set(this.#ids.subarray(0, this.#length));
      this.#ids = grown;
    }
    this.#length = length;
  }

  copy(other: BlockTable): void {
    this.resize(other.length);
    this.#ids.set(other.ids.subarray(0, other.length));
  }
}

/**
 * Writes the difference between `base` and `table`: the length, and runs of ids that differ (`count; start, length,
 * ids...`). A request that grows changes the end of its table. A sliding window also changes an entry in the middle, when
 * it releases a block. O(length) comparisons, but bytes only for entries that differ.
 */
export function writeDelta(out: Int32Writer, base: BlockTable, table: BlockTable): void {
  out.push(table.length);
  const countAt = out.skip();
  const { ids } = table;
  const before = base.ids;
  const shared = Math.min(base.length, table.length);
  let runs = 0;
  for (let i = 0; i < table.length; i++) {
    if (i < shared && ids[i] === before[i]) continue;
    const start = i;
    while (i < table.length && (i >= shared || ids[i] !== before[i])) i++;
    out.push(start);
    out.push(i - start);
    out.pushAll(ids.subarray(start, i));
    runs++;
  }
  out.at(countAt, runs);
}

/** Applies a delta to `table`, which must equal the `base` of the delta. */
export function applyDelta(from: Int32Reader, table: TableMirror): void {
  const lengthBefore = table.length;
  table.resize(from.next());
  let end = 0;
  for (let runs = from.next(); runs > 0; runs--) {
    const start = from.next();
    const ids = from.take(from.next());
    assert(start >= end, `a run at ${start} after a run that ends at ${end}`);
    end = start + ids.length;
    assert(end <= table.length, `a run to ${end} of a block table of ${table.length}`);
    table.ids.set(ids, start);
  }
  // Every new entry is in the last run, or there is no new entry.
  const isComplete = table.length <= lengthBefore || end === table.length;
  assert(isComplete, `a block table of ${table.length} blocks whose last run ends at ${end}`);
}

/** Ascending, disjoint, non-empty spans [start, end) in one reusable typed array. */
export class SpanList {
  #edges = new Int32Array(8);
  #count = 0;

  get count(): number {
    return this.#count;
  }

  start(index: number): number {
    return this.#edges[index * 2]!;
  }

  end(index: number): number {
    return this.#edges[index * 2 + 1]!;
  }

  clear(): void {
    this.#count = 0;
  }

  push(start: number, end: number): void {
    const at = this.#count * 2;
    if (at === this.#edges.length) {
      const grown = new Int32Array(at * 2);
      grown.set(this.#edges);
      this.#edges = grown;
    }
    this.#edges[at] = start;
    this.#edges[at + 1] = end;
    this.#count++;
  }

  /** Puts spans that were pushed from right to left into ascending order. */
  reverse(): void {
    const edges = this.#edges;
    for (let low = 0, high = this.#count - 1; low < high; low++, high--) {
      for (let side = 0; side < 2; side++) {
        const kept = edges[low * 2 + side]!;
        edges[low * 2 + side] = edges[high * 2 + side]!;
        edges[high * 2 + side] = kept;
      }
    }
  }

  /** Whether one span contains all of [start, end). */
  covers(start: number, end: number): boolean {
    for (let i = 0; i < this.#count; i++) if (this.start(i) <= start && end <= this.end(i)) return true;
    return false;
  }

  /** Whether a span contains any position of [start, end). */
  overlaps(start: number, end: number): boolean {
    for (let i = 0; i < this.#count; i++) if (this.start(i) < end && start < this.end(i)) return true;
    return false;
  }

  hasStart(position: number): boolean {
    for (let i = 0; i < this.#count; i++) if (this.start(i) === position) return true;
    return false;
  }

  toArray(): { start: number; end: number }[] {
    return Array.from({ length: this.#count }, (_, i) => ({ start: this.start(i), end: this.end(i) }));
  }
}

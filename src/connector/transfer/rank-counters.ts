/** The counters of a report of all ranks. A process that died has no levels (`now.*`): what it has reported of them is subtracted. */
export class RankCounters {
  readonly #levels: Map<string, number>[] = [];
  #sums: Record<string, number> = {};

  /** Since `begin`. */
  get sums(): Readonly<Record<string, number>> {
    return this.#sums;
  }

  begin(): void {
    this.#sums = {};
  }

  add(rank: number, counters: Readonly<Record<string, number>>): void {
    for (const name in counters) {
      const count = counters[name]!;
      this.#sums[name] = (this.#sums[name] ?? 0) + count;
      if (!name.startsWith('now.')) continue;
      this.#levels[rank] ??= new Map();
      this.#levels[rank].set(name, (this.#levels[rank].get(name) ?? 0) + count);
    }
  }

  died(rank: number): void {
    const levels = this.#levels[rank] ?? [];
    delete this.#levels[rank];
    for (const [name, level] of levels) if (level !== 0) this.#sums[name] = (this.#sums[name] ?? 0) - level;
  }
}

import { byName } from '../../base/by-name.ts';
import { addStats, type ConnectorStats, changeOfStats } from '../connector-stats.ts';

/**
 * The counters and statistics of a report of all ranks. A process that died has no levels: what it has reported of them is
 * subtracted. The levels among counters are those whose names begin with `now.`, of connectors without statistics.
 */
export class RankCounters {
  readonly #levels: Map<string, number>[] = [];
  readonly #levelsOfStats: ConnectorStats[] = [];
  #sums: Record<string, number> = byName();
  #stats: ConnectorStats | undefined;

  /** Since `begin`. */
  get sums(): Readonly<Record<string, number>> {
    return this.#sums;
  }

  /** Since `begin`; undefined: none. */
  get stats(): ConnectorStats | undefined {
    return this.#stats;
  }

  begin(): void {
    this.#sums = {};
    this.#stats = undefined;
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

  addStats(rank: number, stats: ConnectorStats): void {
    this.#stats ??= {};
    addStats(this.#stats, stats);
    if (stats.levels === undefined) return;
    this.#levelsOfStats[rank] ??= {};
    addStats(this.#levelsOfStats[rank], { levels: stats.levels });
  }

  died(rank: number): void {
    const levels = this.#levels[rank] ?? [];
    delete this.#levels[rank];
    for (const [name, level] of levels) if (level !== 0) this.#sums[name] = (this.#sums[name] ?? 0) - level;
    const stats = this.#levelsOfStats[rank];
    delete this.#levelsOfStats[rank];
    if (stats === undefined) return;
    this.#stats ??= {};
    addStats(this.#stats, changeOfStats({}, stats));
  }
}

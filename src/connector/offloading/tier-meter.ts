/** Upper bounds of the latency buckets in milliseconds; the last bucket has no bound. */
export const latencyBoundsMs = [0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000] as const;

/** Counts what one tier does. All totals grow, so that reports of ranks and steps can be added. */
export class TierMeter {
  readonly #counts: Record<string, number> = {};

  loaded(bytes: number, ms: number): void {
    this.#moved('loaded', 'load', bytes, ms);
  }

  stored(bytes: number, ms: number): void {
    this.#moved('stored', 'store', bytes, ms);
  }

  /** A load gave no block. `reason`: why. */
  loadFailed(reason: string): void {
    this.#add(`loadFailed.${reason}`, 1);
  }

  storeFailed(reason: string): void {
    this.#add(`storeFailed.${reason}`, 1);
  }

  /** A block was not written, because the tier is slower than the engine. */
  dropped(): void {
    this.#add('dropped', 1);
  }

  /** A block that another server was about to load was not written before its lease was over. */
  leaseExpired(): void {
    this.#add('leaseExpired', 1);
  }

  counters(): Readonly<Record<string, number>> {
    return this.#counts;
  }

  #moved(done: 'loaded' | 'stored', call: 'load' | 'store', bytes: number, ms: number): void {
    this.#add(`${done}Blocks`, 1);
    this.#add(`${done}Bytes`, bytes);
    this.#add(`${call}Ms`, ms);
    const bucket = latencyBoundsMs.findIndex((bound) => ms <= bound);
    this.#add(`${call}Latency.${bucket < 0 ? latencyBoundsMs.length : bucket}`, 1);
  }

  #add(name: string, count: number): void {
    this.#counts[name] = (this.#counts[name] ?? 0) + count;
  }
}

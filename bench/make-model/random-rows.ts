/** The distribution of a tensor's values: `mean + N(0, deviation)`, each row times `exp(N(0, rowSpread))`. */
export interface Filling {
  readonly mean: number;
  readonly deviation: number;
  readonly rowSpread: number;
}

/** The array of the last model. Tests write many small models with the same seed, and drawing takes longer than the rest. */
let last: { readonly seed: number; readonly pool: Float32Array; readonly state: number } | undefined;

/** Rows of normally distributed numbers from random positions of one array, because drawing each number takes minutes. */
export class RandomRows {
  readonly #pool: Float32Array;
  #state: number;

  /** `elements`: the approximate number of elements that the caller needs; for a small number the array is small. */
  constructor(seed: number, elements: number) {
    const length = elements < 1e7 ? 1 << 19 : 1 << 22;
    this.#state = seed | 0;
    if (last?.seed === seed && last.pool.length === length) {
      this.#pool = last.pool;
      this.#state = last.state;
      return;
    }
    this.#pool = new Float32Array(length);
    for (let i = 0; i < length; i += 2) {
      // Box and Muller's method: two uniform numbers give two normal ones.
      const radius = Math.sqrt(-2 * Math.log(1 - this.#uniform()));
      const angle = 2 * Math.PI * this.#uniform();
      this.#pool[i] = radius * Math.cos(angle);
      this.#pool[i + 1] = radius * Math.sin(angle);
    }
    last = { seed, pool: this.#pool, state: this.#state };
  }

  fill(target: Float32Array, rows: number, columns: number, filling: Filling): void {
    const { mean, deviation, rowSpread } = filling;
    const pool = this.#pool;
    for (let row = 0; row < rows; row++) {
      const from = Math.floor(this.#uniform() * (pool.length - columns - 1));
      const scale = deviation * Math.exp(rowSpread * (pool[from + columns] ?? 0));
      const at = row * columns;
      for (let i = 0; i < columns; i++) target[at + i] = mean + scale * (pool[from + i] ?? 0);
    }
  }

  /** Mulberry32: 32 bits of state are enough for random offsets. */
  #uniform(): number {
    this.#state = (this.#state + 0x6d2b79f5) | 0;
    let t = Math.imul(this.#state ^ (this.#state >>> 15), 1 | this.#state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  }
}

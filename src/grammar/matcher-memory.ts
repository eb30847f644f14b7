/** Shared by the grammars of an engine: when they hold too much together, each starts with empty caches. */
export class MatcherMemory {
  readonly #bytesMax: number;
  #bytes = 0;
  generation = 0;

  constructor(bytesMax: number) {
    this.#bytesMax = bytesMax;
  }

  add(bytes: number): void {
    this.#bytes += bytes;
    if (this.#bytes <= this.#bytesMax) return;
    this.#bytes = 0;
    this.generation++;
  }
}

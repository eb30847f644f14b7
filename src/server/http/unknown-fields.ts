/** Fields that clients sent and that no endpoint knows. As in vLLM, they are ignored. Each is logged once. */
export class UnknownFields {
  readonly #names = new Set<string>();
  #log: (message: string) => void = () => undefined;
  #count = 0;

  /** How many were ignored. */
  get count(): number {
    return this.#count;
  }

  logTo(log: (message: string) => void): void {
    this.#log = log;
  }

  /** `parameter`: the name with its path. */
  note(parameter: string): void {
    this.#count++;
    const name = parameter.replace(/\[\d+\]/g, '[]');
    if (this.#names.has(name) || this.#names.size >= namesMax) return;
    this.#names.add(name);
    this.#log(
      `requests have a field \`${name}\` that is not known here: it is ignored (--strict-fields refuses such requests)`,
    );
  }
}

/** Clients choose the names. */
const namesMax = 1000;

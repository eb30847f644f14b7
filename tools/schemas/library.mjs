// What a library's file does: `node zod.mjs` writes its cases, one a line; `node zod.mjs judge` reads lines of outputs and writes those that
// the library's own validator refuses.
import { createInterface } from 'node:readline';

export class Cases {
  #library;
  #cases = [];

  constructor(library) {
    this.#library = library;
  }

  /** `accepts`: of the library. `valid`: natural values with their members in the author's order. */
  add(name, { schema, accepts, valid = [], invalid = [] }) {
    let json;
    try {
      json = JSON.parse(JSON.stringify(schema()));
    } catch (error) {
      console.error('unrepresentable', name, error.message.slice(0, 80));
      return;
    }
    for (const value of valid) if (!accepts(value)) console.error(this.#library, 'refuses', name, JSON.stringify(value));
    this.#cases.push({ library: this.#library, name, schema: json, valid, invalid, accepts });
  }

  async run() {
    if (process.argv[2] !== 'judge') {
      for (const { accepts, ...written } of this.#cases) process.stdout.write(`${JSON.stringify(written)}\n`);
      return;
    }
    const byName = new Map(this.#cases.map((given) => [given.name, given]));
    for await (const line of createInterface({ input: process.stdin })) {
      const { name, outputs } = JSON.parse(line);
      const { accepts } = byName.get(name);
      const wrong = outputs.filter((text) => !isAccepted(accepts, text));
      process.stdout.write(`${JSON.stringify({ name, wrong })}\n`);
    }
  }
}

function isAccepted(accepts, text) {
  try {
    return accepts(JSON.parse(text));
  } catch {
    return false;
  }
}

import { mix } from '../fake-model.ts';

/** The router sees prompts in chunks of this many tokens. */
const chunkTokens = 64;

/** Hashes of the prompt's first chunk, first two chunks, ...; the last part chunk has none. */
export function prefixHashes(prompt: Int32Array): number[] {
  const hashes: number[] = [];
  let hash = 0;
  for (let i = 0; i < prompt.length; i++) {
    hash = mix(hash, prompt[i]!);
    if ((i + 1) % chunkTokens === 0) hashes.push(hash);
  }
  return hashes;
}

/** The prompts that a router has sent to one replica lately: what the replica probably has in its pool. */
export class PrefixMap {
  readonly #chunksMax: number;
  /** The chunk that was used least recently is first. */
  readonly #chunks = new Set<number>();

  constructor(tokensMax: number) {
    this.#chunksMax = Math.max(Math.floor(tokensMax / chunkTokens), 1);
  }

  /** Tokens of the longest known prefix. */
  matchedTokens(hashes: readonly number[]): number {
    const missing = hashes.findIndex((hash) => !this.#chunks.has(hash));
    return chunkTokens * (missing === -1 ? hashes.length : missing);
  }

  add(hashes: readonly number[]): void {
    // The last chunks are removed first, as the pool does.
    for (let i = hashes.length - 1; i >= 0; i--) {
      this.#chunks.delete(hashes[i]!);
      this.#chunks.add(hashes[i]!);
    }
    for (const oldest of this.#chunks) {
      if (this.#chunks.size <= this.#chunksMax) break;
      this.#chunks.delete(oldest);
    }
  }

  clear(): void {
    this.#chunks.clear();
  }
}

import { setMaxListeners } from 'node:events';
import type { BlockKey } from '../../src/connector/block-key.ts';
import type { Tier } from '../../src/connector/tier/tier.ts';
import { transferFailed } from '../errors.ts';

/** All calls share it, so it has many listeners. */
const never = new AbortController().signal;
setMaxListeners(0, never);

/** The calls of a tier; each answer that is not the success of the call is an error. */
export class CheckedTier {
  readonly #tier: Tier;

  constructor(tier: Tier) {
    this.#tier = tier;
  }

  async store(key: BlockKey, bytes: Uint8Array): Promise<void> {
    const answer = await this.#tier.store(key, bytes, never);
    if (answer !== 'stored') throw transferFailed({ tier: this.#tier.name, reason: answer });
  }

  async load(key: BlockKey, into: Uint8Array): Promise<void> {
    const reason = await this.#tier.load(key, into, never);
    if (reason !== undefined) throw transferFailed({ tier: this.#tier.name, reason });
  }

  async delete(keys: readonly BlockKey[]): Promise<void> {
    for (const key of keys) await this.#tier.delete(key);
  }

  close(): Promise<void> {
    return this.#tier.close();
  }
}

import type { OutputHead } from '../weights.ts';
import { type HeadParts, HeadRows } from './head-rows.ts';
import { PooledRows } from './pooled-rows.ts';

export interface PromptHeadParts extends Omit<HeadParts, 'output'> {
  readonly head: OutputHead;
}

/** What turns hidden states of prompts into results, in graphs of their own. Each is made for the first request that needs it. */
export class PromptHeads {
  readonly #parts: PromptHeadParts;
  #rows: HeadRows | undefined;
  #pooled: PooledRows | undefined;

  constructor(parts: PromptHeadParts) {
    this.#parts = parts;
  }

  /** For logprobs; undefined if the model makes no text. */
  get rows(): HeadRows | undefined {
    const { head } = this.#parts;
    if (head.output !== undefined) this.#rows ??= new HeadRows({ ...this.#parts, output: head.output });
    return this.#rows;
  }

  /** Undefined if the engine pools. */
  get pooled(): PooledRows | undefined {
    const { config, head } = this.#parts;
    const { pooledHead } = config;
    if (pooledHead !== undefined)
      this.#pooled ??= new PooledRows({ ...this.#parts, head: pooledHead, layers: head.pooled });
    return this.#pooled;
  }

  close(): void {
    this.#rows?.close();
    this.#pooled?.close();
  }
}

import type { AsyncEngine } from '../../src/engine/contract.ts';
import { interrupted } from '../errors.ts';
import { converse } from './conversations.ts';
import type { RunTimes, WorkloadRunner } from './run-times.ts';
import type { Workload } from './workload.ts';

/** Kvasir as its users have it: what was said before is found in the prefix cache. */
export class EngineRunner implements WorkloadRunner {
  readonly name = 'kvasir';
  readonly #engine: AsyncEngine;
  readonly #signal: AbortSignal;

  constructor(engine: AsyncEngine, signal: AbortSignal) {
    this.#engine = engine;
    this.#signal = signal;
  }

  run(workload: Workload, times: RunTimes): Promise<number> {
    return converse(workload, (prompt, maxTokens) => this.#generate(prompt, maxTokens), times);
  }

  async *#generate(prompt: Int32Array, maxTokens: number): AsyncGenerator<ArrayLike<number>> {
    const params = { maxTokens, temperature: 0, ignoreEos: true };
    for await (const { tokenIds } of this.#engine.generate({ prompt, params }, { signal: this.#signal })) {
      if (this.#signal.aborted) throw interrupted();
      yield tokenIds;
    }
    if (this.#signal.aborted) throw interrupted();
  }
}

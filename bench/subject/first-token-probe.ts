import { setTimeout as sleep } from 'node:timers/promises';
import type { RequestStats } from '../../src/core/request.ts';
import { interrupted, prefixNotSaved, turnTooShort } from '../errors.ts';
import { PAUSE_MS } from '../pauses.ts';
import type { MeasuredEngine } from './engine-subject.ts';

/** Measures the first token of one request at a time. */
export class FirstTokenProbe {
  readonly #measured: MeasuredEngine;
  readonly #signal: AbortSignal;
  /** The counter of stored blocks. */
  readonly #counter: string;
  #savedBlocks = 0;

  constructor(measured: MeasuredEngine, signal: AbortSignal, counter = 'savedBlocks') {
    this.#measured = measured;
    this.#counter = counter;
    this.#signal = signal;
  }

  async first(prompt: Int32Array): Promise<{ readonly ms: number; readonly stats: RequestStats }> {
    await sleep(PAUSE_MS);
    const request = { prompt, params: { maxTokens: 1, temperature: 0, ignoreEos: true } };
    const started = performance.now();
    let last: { readonly ms: number; readonly stats: RequestStats } | undefined;
    for await (const { stats } of this.#measured.engine.generate(request, { signal: this.#signal })) {
      last = { ms: performance.now() - started, stats };
    }
    if (this.#signal.aborted) throw interrupted();
    if (last === undefined) throw turnTooShort({ wanted: 1, got: 0 });
    return last;
  }

  /** Waits until `count` more blocks are stored than at the last call. */
  async saved(count: number): Promise<void> {
    this.#savedBlocks += count;
    const deadline = performance.now() + 60_000;
    for (;;) {
      const { [this.#counter]: savedBlocks = 0 } = this.#measured.engine.stats().transfers.counters;
      if (savedBlocks >= this.#savedBlocks) return;
      if (this.#signal.aborted) throw interrupted();
      if (performance.now() > deadline) throw prefixNotSaved({ saved: savedBlocks, wanted: this.#savedBlocks });
      await sleep(5);
    }
  }
}

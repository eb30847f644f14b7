import { setImmediate as nextTurn } from 'node:timers/promises';
import { assert } from '../../src/base/assert.ts';
import type { RandomTokens } from '../random-tokens.ts';
import { REFERENCE_BATCH } from '../subject/libllama-conversations.ts';
import type { LlamaReference } from '../subject/llama-reference.ts';
import type { Streamer } from './streamer.ts';

interface Open {
  readonly sequence: number;
  position: number;
  unread: Int32Array;
  /** New tokens that the reader has not got. */
  arrived: number;
  wake: () => void;
}

/**
 * libllama with batches as in llama.cpp's server: the next token of each stream, and as many prompt tokens as fit, in the order of
 * arrival. Tokens are random instead of sampled.
 */
export class LibllamaStreamer implements Streamer {
  readonly name = 'libllama';
  readonly #reference: LlamaReference;
  readonly #random: RandomTokens;
  readonly #sequencesMax: number;
  readonly #open = new Map<number, Open>();
  #isRunning: boolean = false;

  /** `sequencesMax`: requests that may be open at once. */
  constructor(reference: LlamaReference, sequencesMax: number, random: RandomTokens) {
    this.#reference = reference;
    this.#sequencesMax = sequencesMax;
    this.#random = random;
  }

  async *stream(prompt: Int32Array, maxTokens: number): AsyncGenerator<number> {
    const request: Open = { sequence: this.#freeSequence(), position: 0, unread: prompt, arrived: 0, wake: () => {} };
    this.#open.set(request.sequence, request);
    try {
      for (let left = maxTokens; left > 0; ) {
        if (request.arrived === 0)
          await new Promise<void>((resolve) => {
            request.wake = resolve;
            void this.#run();
          });
        const count = Math.min(request.arrived, left);
        request.arrived = 0;
        left -= count;
        yield count;
      }
    } finally {
      this.#open.delete(request.sequence);
      this.#reference.removeFrom(0, request.sequence);
    }
  }

  #freeSequence(): number {
    for (let sequence = 0; sequence < this.#sequencesMax; sequence++) if (!this.#open.has(sequence)) return sequence;
    assert(false, `${this.#sequencesMax} requests are open`);
  }

  /** Computes batches while requests are open. */
  async #run(): Promise<void> {
    if (this.#isRunning) return;
    this.#isRunning = true;
    while (this.#open.size > 0) {
      this.#computeBatch();
      await nextTurn();
    }
    this.#isRunning = false;
  }

  #computeBatch(): void {
    const rows = {
      tokens: [] as number[],
      positions: [] as number[],
      sequences: [] as number[],
      wanted: [] as number[],
    };
    const complete: Open[] = [];
    const decodesFirst = [...this.#open.values()].sort(
      (a, b) => Number(a.unread.length > 1) - Number(b.unread.length > 1),
    );
    for (const request of decodesFirst) {
      const count = Math.min(request.unread.length, REFERENCE_BATCH - rows.tokens.length);
      for (let i = 0; i < count; i++) {
        rows.tokens.push(request.unread[i]!);
        rows.positions.push(request.position++);
        rows.sequences.push(request.sequence);
        rows.wanted.push(i === request.unread.length - 1 ? 1 : 0);
      }
      request.unread = request.unread.subarray(count);
      if (count > 0 && request.unread.length === 0) complete.push(request);
    }
    this.#reference.decodeBatch(rows);
    for (const request of complete) {
      request.unread = this.#random.take(1);
      request.arrived++;
      request.wake();
    }
  }
}

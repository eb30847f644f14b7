import { turnTooShort } from '../errors.ts';
import { contextTokens, RandomTokens } from '../random-tokens.ts';
import { converse } from './conversations.ts';
import { DecodeWindow } from './decode-window.ts';
import type { RunTimes } from './run-times.ts';
import type { ServerPeer } from './server-peer.ts';
import type { Rate, Subject } from './subject.ts';
import type { Workload } from './workload.ts';

/** A server, measured by its clients. Contexts are prefixes that the server has cached from earlier requests. */
export class ServerSubject implements Subject {
  readonly name = 'server';
  readonly #peer: ServerPeer;
  readonly #vocabSize: number;
  readonly #batch: number;
  readonly #random: RandomTokens;

  constructor(peer: ServerPeer, vocabSize: number, batch: number) {
    this.#peer = peer;
    this.#vocabSize = vocabSize;
    this.#batch = batch;
    this.#random = new RandomTokens(Date.now(), vocabSize);
  }

  async prepare(depth: number): Promise<void> {
    if (depth > 0) await Promise.all(this.#contexts(depth).map((context) => this.#complete(context, 1)));
  }

  async prefill(depth: number, length: number): Promise<Rate> {
    const prompt = new Int32Array([...contextTokens(depth, this.#vocabSize, 0), ...this.#random.take(length)]);
    const startedMs = performance.now();
    const { cachedTokens } = await this.#complete(prompt, 1);
    // If the server does not report its cached tokens, assume that the whole context was cached.
    return { tokens: prompt.length - (cachedTokens ?? depth), seconds: (performance.now() - startedMs) / 1000 };
  }

  async decode(depth: number, length: number): Promise<Rate> {
    const prompts = depth > 0 ? this.#contexts(depth) : Array.from({ length: this.#batch }, () => this.#random.take(1));
    // The first token belongs to the prompt, and the last can come together with the end of the answer.
    const tokensEach = length + 2;
    const window = new DecodeWindow(this.#batch, tokensEach, () => performance.now());
    await Promise.all(prompts.map((prompt, i) => this.#complete(prompt, tokensEach, (count) => window.add(i, count))));
    const { from, to, tokens } = window.result();
    return { tokens, seconds: (to - from) / 1000 };
  }

  run(workload: Workload, times: RunTimes): Promise<number> {
    return converse(workload, (prompt, maxTokens) => this.#tokens(prompt, maxTokens), times);
  }

  #contexts(depth: number): Int32Array[] {
    return Array.from({ length: this.#batch }, (_, sequence) => contextTokens(depth, this.#vocabSize, sequence));
  }

  async #complete(
    prompt: Int32Array,
    maxTokens: number,
    onTokens?: (count: number) => void,
  ): Promise<{ readonly cachedTokens: number | undefined }> {
    let count = 0;
    let cachedTokens: number | undefined;
    for await (const chunk of this.#peer.complete(prompt, maxTokens)) {
      cachedTokens = chunk.cachedTokens ?? cachedTokens;
      count += chunk.tokens.length;
      onTokens?.(chunk.tokens.length);
    }
    if (count !== maxTokens) throw turnTooShort({ wanted: maxTokens, got: count });
    return { cachedTokens };
  }

  async *#tokens(prompt: Int32Array, maxTokens: number): AsyncGenerator<readonly number[]> {
    for await (const { tokens } of this.#peer.complete(prompt, maxTokens)) if (tokens.length > 0) yield tokens;
  }
}

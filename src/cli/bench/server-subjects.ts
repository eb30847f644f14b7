import { converse } from './conversations.ts';
import { turnTooShort } from './errors.ts';
import { contextTokens, RandomTokens } from './random-tokens.ts';
import type { RunTimes, WorkloadRunner } from './run-times.ts';
import type { ServerPeer } from './server-peer.ts';
import type { Rate, Subject } from './subject.ts';
import type { Workload } from './workload.ts';

export const serverName = 'server';

/** A server's latency as its clients see it; the context is what it still has from the request before. */
export class ServerSubject implements Subject {
  readonly name = serverName;
  readonly #peer: ServerPeer;
  readonly #vocabSize: number;
  readonly #random: RandomTokens;

  constructor(peer: ServerPeer, vocabSize: number) {
    this.#peer = peer;
    this.#vocabSize = vocabSize;
    this.#random = new RandomTokens(Date.now(), vocabSize);
  }

  async prepare(depth: number): Promise<void> {
    if (depth > 0) await this.#complete(contextTokens(depth, this.#vocabSize), 1);
  }

  async prefill(depth: number, length: number): Promise<Rate> {
    const context = contextTokens(depth, this.#vocabSize);
    const prompt = new Int32Array([...context, ...this.#random.take(length)]);
    const { startedMs, endedMs, cachedTokens } = await this.#complete(prompt, 1);
    // Where the server does not say what it had cached, it is taken at its best.
    return { tokens: prompt.length - (cachedTokens ?? depth), seconds: (endedMs - startedMs) / 1000 };
  }

  async decode(depth: number, length: number): Promise<Rate> {
    const prompt = depth > 0 ? contextTokens(depth, this.#vocabSize) : this.#random.take(1);
    const { first, last, count } = await this.#complete(prompt, length + 1);
    return { tokens: count - first.count, seconds: (last.atMs - first.atMs) / 1000 };
  }

  async #complete(prompt: Int32Array, maxTokens: number) {
    const startedMs = performance.now();
    let first: { readonly atMs: number; readonly count: number } | undefined;
    let last: { readonly atMs: number } | undefined;
    let count = 0;
    let cachedTokens: number | undefined;
    for await (const chunk of this.#peer.complete(prompt, maxTokens)) {
      cachedTokens = chunk.cachedTokens ?? cachedTokens;
      if (chunk.tokens.length === 0) continue;
      const atMs = performance.now();
      count += chunk.tokens.length;
      first ??= { atMs, count };
      last = { atMs };
    }
    if (first === undefined || last === undefined) throw turnTooShort({ wanted: maxTokens, got: 0 });
    return { startedMs, endedMs: performance.now(), first, last, count, cachedTokens };
  }
}

/** The same server under a workload. Where it does not name its tokens, zeros stand for them in what is said later. */
export class ServerRunner implements WorkloadRunner {
  readonly name = serverName;
  readonly #peer: ServerPeer;

  constructor(peer: ServerPeer) {
    this.#peer = peer;
  }

  run(workload: Workload, times: RunTimes): Promise<number> {
    return converse(workload, (prompt, maxTokens) => this.#generate(prompt, maxTokens), times);
  }

  async *#generate(prompt: Int32Array, maxTokens: number): AsyncGenerator<readonly number[]> {
    for await (const { tokens } of this.#peer.complete(prompt, maxTokens)) if (tokens.length > 0) yield tokens;
  }
}

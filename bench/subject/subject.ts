import type { RunTimes } from './run-times.ts';
import type { Workload } from './workload.ts';

/** An engine that benches measure: Kvasir's, libllama, or a server. */
export interface Subject {
  readonly name: string;
  /** Brings the first `depth` tokens of the context into the KV cache. Not timed. */
  prepare(depth: number): Promise<void>;
  /** Computes `length` new tokens behind them, up to the next token's logits. */
  prefill(depth: number, length: number): Promise<Rate>;
  /** Generates `length` tokens behind them, one after the other; of several sequences, `length` of each, all at once. */
  decode(depth: number, length: number): Promise<Rate>;
  /**
   * Runs conversations at once, each turn as soon as the turn before it has ended. Resolves with the seconds from the first
   * request to the last token. Contexts that were prepared may be gone afterwards.
   */
  run(workload: Workload, times: RunTimes): Promise<number>;
}

export interface Rate {
  readonly tokens: number;
  readonly seconds: number;
  /** Of decoding, where it is known. */
  readonly overhead?: StepOverhead;
}

/** Where the time of a step of decoding goes, on average: all of it, and what is not ggml's computing. */
export interface StepOverhead {
  readonly stepMs: number;
  /** Planning, laying out, sampling, applying: nothing computes meanwhile. */
  readonly outsideMs: number;
  /** Of these, laying out, and sampling. */
  readonly prepareMs: number;
  readonly sampleMs: number;
  /**
   * What the engine's thread works while ggml computes: text is made and told. It slows computing down where no core is free
   * for it. Absent where the system does not tell.
   */
  readonly besideMs?: number;
}

export const tokensPerSecond = ({ tokens, seconds }: Rate): number => tokens / seconds;

import type { RunTimes } from './run-times.ts';
import type { Workload } from './workload.ts';

/** An engine that benches measure: Kvasir, libllama, or a server. */
export interface Subject {
  readonly name: string;
  /** Computes the KV of the first `depth` tokens of the context. Not timed. */
  prepare(depth: number): Promise<void>;
  /** Computes `length` new tokens after the context, with the logits of the next token. */
  prefill(depth: number, length: number): Promise<Rate>;
  /** Generates `length` tokens after the context, in each of the batch's sequences. */
  decode(depth: number, length: number): Promise<Rate>;
  /**
   * Runs conversations at once; each turn starts at the end of the turn before. Resolves with the seconds from the first
   * request to the last token. Prepared contexts may be evicted afterwards.
   */
  run(workload: Workload, times: RunTimes): Promise<number>;
}

export interface Rate {
  readonly tokens: number;
  readonly seconds: number;
  /** For decoding, if it is known. */
  readonly overhead?: StepOverhead;
}

/** The average time of a decode step, and its parts in which ggml does not compute. */
export interface StepOverhead {
  readonly stepMs: number;
  /** Planning, preparing the batch, sampling, applying: ggml does not compute meanwhile. */
  readonly outsideMs: number;
  /** Parts of `outsideMs`: preparing the batch, and sampling. */
  readonly prepareMs: number;
  readonly sampleMs: number;
  /**
   * CPU time of the engine's thread while ggml computes: detokenizing and delivering text. It slows down computing if no
   * core is free. Absent if the system does not report it.
   */
  readonly besideMs?: number;
}

export const tokensPerSecond = ({ tokens, seconds }: Rate): number => tokens / seconds;

/** What a bench measures: an engine that can be asked to do one thing at a time. */
export interface Subject {
  readonly name: string;
  /** Brings the first `depth` tokens of the context into the KV cache. Not timed. */
  prepare(depth: number): Promise<void>;
  /** Computes `length` new tokens behind them, up to the next token's logits. */
  prefill(depth: number, length: number): Promise<Rate>;
  /** Generates `length` tokens behind them, one after the other; of several sequences, `length` of each, all at once. */
  decode(depth: number, length: number): Promise<Rate>;
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

export function median(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b);
  const middle = sorted.length >> 1;
  const [low = 0, high = 0] = [sorted[Math.ceil(sorted.length / 2) - 1], sorted[middle]];
  return (low + high) / 2;
}

/** Four digits say more than any bench knows. */
export const rounded = (value: number): number => Number(value.toPrecision(4));

/** What a bench measures: an engine that can be asked to do one thing at a time. */
export interface Subject {
  readonly name: string;
  /** Brings the first `depth` tokens of the context into the KV cache. Not timed. */
  prepare(depth: number): Promise<void>;
  /** Computes `length` new tokens behind them, up to the next token's logits. */
  prefill(depth: number, length: number): Promise<Rate>;
  /** Generates `length` tokens behind them, one after the other. */
  decode(depth: number, length: number): Promise<Rate>;
}

export interface Rate {
  readonly tokens: number;
  readonly seconds: number;
  /** Seconds in which the engine did something else than compute the graph, where that is known. */
  readonly overheadSeconds?: number;
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

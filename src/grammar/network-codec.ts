import type { Call, ControlTokens, Counter, Edge, Network, State } from './network.ts';
import type { Refusal } from './structured-grammar.ts';

/** A grammar that another thread compiles. */
export interface BuildJob {
  /** `GrammarSource.job` */
  readonly job: object;
  readonly controlTokens: ControlTokens;
}

export type BuildAnswer = { readonly network: EncodedNetwork } | { readonly refusal: Refusal };

/**
 * A network in two arrays: a copy of its objects to another thread would take as long as compiling them. `numbers` has the
 * lists of each state, each with its length in front.
 */
export interface EncodedNetwork {
  readonly numbers: Int32Array;
  /** Maxima can be infinite. */
  readonly counters: readonly Counter[];
  readonly start: number;
  readonly tokens: readonly number[];
  readonly notes: readonly string[];
}

export function encodeNetwork({ states, start, counters, tokens, notes }: Network): EncodedNetwork {
  const numbers: number[] = [states.length];
  for (const { edges, jumps, calls, counters: begun, isEnd } of states) {
    numbers.push(isEnd ? 1 : 0, edges.length);
    for (const { first, last, target } of edges) numbers.push(first, last, target);
    numbers.push(jumps.length);
    for (const target of jumps) numbers.push(target);
    numbers.push(calls.length);
    for (const call of calls) numbers.push(call.start, call.back);
    numbers.push(begun.length);
    for (const counter of begun) numbers.push(counter);
  }
  return { numbers: Int32Array.from(numbers), counters, start, tokens, notes };
}

export function decodeNetwork({ numbers, counters, start, tokens, notes }: EncodedNetwork): Network {
  let at = 0;
  const next = (): number => numbers[at++]!;
  const list = <T>(read: () => T): readonly T[] => {
    const length = next();
    return length === 0 ? none : Array.from({ length }, read);
  };
  const edge = (): Edge => ({ first: next(), last: next(), target: next() });
  const call = (): Call => ({ start: next(), back: next() });
  const state = (): State => ({
    isEnd: next() === 1,
    edges: list(edge),
    jumps: list(next),
    calls: list(call),
    counters: list(next),
  });
  return { states: Array.from({ length: next() }, state), start, counters, tokens, notes };
}

const none: readonly never[] = [];

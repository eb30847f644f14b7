import { assert } from '../../../src/base/assert.ts';
import type { Answer, Answers } from './subject.ts';

/** The result of one fault on one program. */
export interface PeerRow {
  readonly subject: string;
  readonly version: string;
  readonly fault: string;
  readonly requests: number;
  /** Requests with the tokens of an undisturbed run. */
  readonly equal: number;
  /** Requests with other tokens, and without an error. */
  readonly wrong: number;
  /** Requests without a whole answer. */
  readonly failed: number;
  /** The program, or its process that computes, has ended. */
  readonly hasEnded: boolean;
  /** Requests whose stored KV the program refused with an error; it has computed them. */
  readonly refused: number;
  /** The largest difference between a log probability and that of the undisturbed run, up to the first other token. */
  readonly logprobsApart: number;
  /** Of all prompts, tokens that were not loaded, as the program says. */
  readonly computedTokens: number;
}

export type Comparison = Pick<
  PeerRow,
  'requests' | 'equal' | 'wrong' | 'failed' | 'refused' | 'logprobsApart' | 'computedTokens'
>;

/** `references`: undisturbed answers in each way in which the program computes them. The nearest one counts. */
export function compareAnswers(answers: Answers, references: readonly Answers[]): Comparison {
  const compared = answers.map((answer, i) => {
    if (answer === undefined) return undefined;
    const wanted = references.flatMap((reference) => reference[i] ?? []);
    assert(wanted.length > 0, 'the program answers an undisturbed request');
    return { answer, ...nearest(wanted.map((one) => differenceOf(answer, one))) };
  });
  const answered = compared.flatMap((one) => one ?? []);
  const equal = answered.filter(({ isEqual }) => isEqual).length;
  return {
    requests: answers.length,
    equal,
    wrong: answered.length - equal,
    failed: answers.length - answered.length,
    refused: answered.filter(({ answer }) => answer.isRefused === true).length,
    logprobsApart: Math.max(0, ...answered.map(({ apart }) => apart)),
    computedTokens: answered.reduce((total, { answer }) => total + answer.computedTokens, 0),
  };
}

interface Difference {
  readonly isEqual: boolean;
  /** The largest difference of log probabilities up to the first other token. */
  readonly apart: number;
}

function differenceOf(answer: Answer, wanted: Answer): Difference {
  const differing = wanted.tokens.findIndex((token, i) => token !== answer.tokens[i]);
  const common = wanted.logprobs.slice(0, differing === -1 ? undefined : differing);
  const apart = Math.max(0, ...common.map((value, i) => Math.abs(value - (answer.logprobs[i] ?? 0))));
  return { isEqual: differing === -1, apart };
}

const nearest = (differences: readonly Difference[]): Difference =>
  differences.toSorted((a, b) => Number(b.isEqual) - Number(a.isEqual) || a.apart - b.apart)[0]!;

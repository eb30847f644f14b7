import { drawShareGptTurn } from '../../sim/cluster/sharegpt-lengths.ts';
import { Prng } from '../../src/base/prng.ts';
import type { RandomTokens } from '../random-tokens.ts';

/** The new tokens of a turn, and the number of tokens to generate. */
export interface Turn {
  readonly prompt: Int32Array;
  readonly generateLength: number;
}

/**
 * Conversations that all start at the same moment. The prompt of a turn is the shared prefix, all earlier turns, and its
 * own new tokens. A turn starts at the end of the turn before.
 */
export interface Workload {
  readonly prefix: Int32Array;
  readonly conversations: readonly (readonly Turn[])[];
}

/** The lengths of a workload, in tokens. */
export interface WorkloadShape {
  readonly prefixLength: number;
  readonly conversations: readonly (readonly TurnShape[])[];
}
export interface TurnShape {
  readonly promptLength: number;
  readonly generateLength: number;
}

export const workloadNames = ['independent', 'shared-prefix', 'sharegpt', 'multi-turn'] as const;
export type WorkloadName = (typeof workloadNames)[number];

/** Lengths that the user has given; absent lengths are those of the workload. */
export interface WorkloadLengths {
  readonly prefixLength?: number;
  readonly promptLength?: number;
  readonly generateLength?: number;
  readonly turns?: number;
}

const defaults: Readonly<Record<Exclude<WorkloadName, 'sharegpt'>, Required<WorkloadLengths>>> = {
  independent: { prefixLength: 0, promptLength: 512, generateLength: 128, turns: 1 },
  'shared-prefix': { prefixLength: 1024, promptLength: 64, generateLength: 64, turns: 1 },
  'multi-turn': { prefixLength: 0, promptLength: 128, generateLength: 64, turns: 4 },
};

/** Equal arguments give equal shapes. */
export function workloadShape(name: WorkloadName, requests: number, lengths: WorkloadLengths = {}): WorkloadShape {
  if (name === 'sharegpt') return { prefixLength: lengths.prefixLength ?? 0, conversations: shareGptLengths(requests) };
  const chosen = { ...defaults[name], ...lengths };
  const turn = { promptLength: chosen.promptLength, generateLength: chosen.generateLength };
  const conversation = new Array<TurnShape>(chosen.turns).fill(turn);
  return {
    prefixLength: chosen.prefixLength,
    conversations: new Array<readonly TurnShape[]>(requests).fill(conversation),
  };
}

/** The same prompts, with at most `generateMost` output tokens for each turn. */
export function withShortAnswers({ prefixLength, conversations }: WorkloadShape, generateMost: number): WorkloadShape {
  const cut = (turn: TurnShape): TurnShape => ({
    ...turn,
    generateLength: Math.min(turn.generateLength, generateMost),
  });
  return { prefixLength, conversations: conversations.map((turns) => turns.map(cut)) };
}

/** Fills a shape with random tokens that no cache has. */
export function fillWorkload(shape: WorkloadShape, random: RandomTokens): Workload {
  return {
    prefix: random.take(shape.prefixLength),
    conversations: shape.conversations.map((turns) =>
      turns.map(({ promptLength, generateLength }) => ({ prompt: random.take(promptLength), generateLength })),
    ),
  };
}

export interface WorkloadTotals {
  /** Tokens of all sent prompts; prefix and history count in each of them. */
  readonly promptTokens: number;
  readonly generatedTokens: number;
  /** Tokens of KV at the end, with the prefix once; and the tokens of the longest sequence with the prefix. */
  readonly keptTokens: number;
  readonly longest: number;
}

export function workloadTotals({ prefixLength, conversations }: WorkloadShape): WorkloadTotals {
  let [promptTokens, generatedTokens, longest] = [0, 0, 0];
  let keptTokens = prefixLength;
  for (const turns of conversations) {
    let length = prefixLength;
    for (const { promptLength, generateLength } of turns) {
      promptTokens += length + promptLength;
      generatedTokens += generateLength;
      length += promptLength + generateLength;
    }
    keptTokens += length - prefixLength;
    longest = Math.max(longest, length);
  }
  return { promptTokens, generatedTokens, keptTokens, longest };
}

function shareGptLengths(count: number): readonly TurnShape[][] {
  const random = new Prng(217_202);
  return Array.from({ length: count }, () => [drawShareGptTurn(random)]);
}

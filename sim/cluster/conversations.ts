import { Prng } from '../../src/base/prng.ts';
import { ReferenceText, vocabSize } from './linear-runner.ts';
import { drawShareGptTurn } from './sharegpt-lengths.ts';

export interface WorkloadOptions {
  readonly conversations: number;
  readonly turnsMax: number;
  /** Each conversation begins with one of so many system prompts of this length. */
  readonly systemPrompts: number;
  readonly systemPromptTokens: number;
  /** Mean time from an answer to the next turn. */
  readonly thinkMs: number;
  /** Conversations begin within this time. */
  readonly rampMs: number;
  /** The share of turns that are one of a few texts, also after different histories. */
  readonly repeatedShare: number;
  /** Divides all lengths. */
  readonly shorter: number;
}

/** One request of a conversation. */
export interface TurnText {
  readonly id: string;
  readonly prompt: Int32Array;
  readonly expected: readonly number[];
  /** Tokens of the prompt that a server may have computed before: the history, and a system prompt that is not new. */
  readonly knownTokens: number;
  /** The time from the end of this turn to the next one. */
  readonly thinkMs: number;
}

/** A client that sends a turn, waits for the answer, reads it, and sends the next turn. The reference knows all answers. */
export class Conversation {
  readonly id: number;
  readonly beginsMs: number;
  readonly #prng: Prng;
  readonly #options: WorkloadOptions;
  readonly #text = new ReferenceText();
  readonly #turns: number;
  #knownTokens: number;
  #sent = 0;

  /** `isKnown`: an earlier conversation has the same system prompt. */
  constructor(
    id: number,
    prng: Prng,
    options: WorkloadOptions,
    { tokens: systemPrompt, isKnown }: { readonly tokens: readonly number[]; readonly isKnown: boolean },
  ) {
    this.id = id;
    this.#prng = prng;
    this.#options = options;
    this.#turns = prng.between(1, options.turnsMax);
    this.beginsMs = prng.unit() * options.rampMs;
    this.#text.append(systemPrompt);
    this.#knownTokens = isKnown ? systemPrompt.length : 0;
  }

  /** The next turn, as if the answer to the turn before was right. Undefined: the conversation is over. */
  next(): TurnText | undefined {
    if (this.#sent >= this.#turns) return undefined;
    const { shorter, thinkMs, repeatedShare } = this.#options;
    const { promptLength, generateLength } = drawShareGptTurn(this.#prng);
    const isRepeated = this.#prng.chance(repeatedShare);
    const source = isRepeated ? new Prng(this.#prng.between(1, repeatedTexts)) : this.#prng;
    this.#text.append(randomTokens(source, Math.ceil(promptLength / shorter)));
    const prompt = Int32Array.from(this.#text.tokens);
    const knownTokens = this.#knownTokens;
    const expected = this.#text.generate(Math.ceil(generateLength / shorter));
    this.#knownTokens = this.#text.tokens.length;
    const thinks = -Math.log(1 - this.#prng.unit()) * thinkMs;
    return { id: `c${this.id}.${this.#sent++}`, prompt, expected, knownTokens, thinkMs: thinks };
  }
}

const repeatedTexts = 3;

/** The longest prompt with its answer. */
export const longestText = ({ turnsMax, systemPromptTokens, shorter }: WorkloadOptions): number =>
  systemPromptTokens + turnsMax * (Math.ceil(2048 / shorter) + 1);

export function createConversations(seed: number, options: WorkloadOptions): Conversation[] {
  const random = new Prng(seed);
  const systemPrompts = Array.from({ length: options.systemPrompts }, () =>
    randomTokens(random, options.systemPromptTokens),
  );
  const used = new Set<number>();
  return Array.from({ length: options.conversations }, (_, id) => {
    const which = random.between(0, systemPrompts.length - 1);
    const systemPrompt = { tokens: systemPrompts[which]!, isKnown: used.has(which) };
    const conversation = new Conversation(id, random.fork(), options, systemPrompt);
    used.add(which);
    return conversation;
  });
}

const randomTokens = (prng: Prng, count: number): number[] =>
  Array.from({ length: count }, () => prng.between(0, vocabSize - 1));

import type { CompletionRequest } from '../../../src/cli/proof/completion.ts';

/** The tokens of one request and their log probabilities. */
export interface Answer {
  readonly tokens: readonly number[];
  readonly logprobs: readonly number[];
  /** Tokens of the prompt that were not loaded, as the program says. */
  readonly computedTokens: number;
  /** The program refused the stored KV of this request with an error, and has computed it. */
  readonly isRefused?: boolean;
}

/** By request; undefined if it ended with an error. */
export type Answers = readonly (Answer | undefined)[];

/** Kinds of faults that only some programs can have. */
export type FaultKind = 'folders' | 'late' | 'lost' | 'adapter';

/** The two scales of an adapter. */
export type Scale = 'whole' | 'quarter';

/** How a program is started. */
export interface Setup {
  /** The path of a GGUF file. */
  readonly model: string;
  /** The folder for KV outside the program. */
  readonly store?: string;
  /** A LoRA adapter, which all requests name. */
  readonly adapter?: Readonly<Record<Scale, string>>;
  /** Requests reuse the KV of earlier requests in this process, also without a store. */
  readonly reuses?: boolean;
  /** Each load takes longer by these milliseconds. */
  readonly lateMs?: number;
  /** The loads of the first requests are lost, and reported as failed. */
  readonly lostRequests?: number;
  /** The policy for loads that failed; the program's default if absent. */
  readonly policy?: 'recompute';
  /** The process that computes will be killed. */
  readonly isKilled?: boolean;
}

/** A running program. */
export interface SubjectServer {
  /** Computes the prompts and stores their KV. Once, with a store. */
  fill(requests: readonly CompletionRequest[]): Promise<void>;
  /** `onToken` is called for each token of any request. */
  answer(requests: readonly CompletionRequest[], onToken?: () => void): Promise<Answers>;
  /** Undisturbed answers of a process without a store, in each way in which the program computes them: they may differ. */
  references(requests: readonly CompletionRequest[]): Promise<readonly Answers[]>;
  /** From the next request on, the adapter has this scale. */
  setScale(scale: Scale): Promise<void>;
  /** Kills the process that computes. */
  killComputing(): Promise<void>;
  isServing(): Promise<boolean>;
  stop(): Promise<void>;
}

/** A program that stores KV outside of itself. */
export interface Subject {
  readonly name: string;
  readonly version: string;
  /** Kinds of faults that this program cannot have. */
  readonly without: readonly FaultKind[];
  start(setup: Setup): Promise<SubjectServer>;
  /** The stored files. Files of one unit hold the KV of the same tokens. */
  unitsIn(store: string): Promise<readonly (readonly string[])[]>;
}

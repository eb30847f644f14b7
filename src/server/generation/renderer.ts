import type { ChatAnswerOptions } from '../../engine/chat/chat-answer.ts';
import type { AsyncEngine } from '../../engine/contract.ts';
import type { AnsweredDelta } from '../../engine/early-end.ts';
import type { ChoiceOutput } from './choice-collector.ts';
import type { GenerationMeter, Prompt } from './generation.ts';
import type { ParsedGeneration } from './request.ts';

/**
 * Turns the deltas of one request into an API's answer: either `chunks` for each delta, or one `body` for the finished choices. A
 * renderer keeps the state of one answer: whether the role is sent, and the position in the text.
 */
export interface Renderer<Chunk extends object = object, Body extends object = object> {
  /** Gives no chunk for a delta without visible content, such as text that is kept back for a stop string. */
  chunks(delta: AnsweredDelta): readonly Chunk[];
  /** `choices` has the whole output of each choice. */
  body(choices: readonly ChoiceOutput[]): Body;
  readonly form: StreamForm<Chunk>;
}

/** How the chunks of a stream are written. */
export interface StreamForm<Chunk extends object> {
  /** Lines of JSON instead of server-sent events. */
  readonly isLines?: boolean;
  /** Chunks are short, and have no parts that are written later (`json-pieces.ts`). */
  readonly isPlain?: boolean;
  /** The type of the event of a chunk. */
  typeOf?(chunk: Chunk): string;
  /** The data after the last chunk. */
  end?(): readonly string[];
  /** The chunks for an error that ends the stream. */
  ofError(error: unknown): readonly Chunk[] | Promise<readonly Chunk[]>;
}

export interface RenderContext {
  readonly engine: AsyncEngine;
  readonly id: string;
  /** Seconds since 1970. */
  readonly created: number;
  readonly asked: ParsedGeneration;
  readonly prompts: readonly Prompt[];
  /** The choices of each prompt. */
  readonly n: number;
  /** The tokens and times of the request so far. */
  readonly usage: Pick<GenerationMeter, keyof RequestUsage | 'elapsedMs' | 'timeToFirstTokenMs'>;
  /** How calls in the answers of a chat are read. */
  readonly answers?: ChatAnswerOptions;
  /** The text before each completion, one per prompt. */
  readonly echoes?: readonly string[];
}

/** The tokens of a request. */
export interface RequestUsage {
  readonly promptTokens: number;
  readonly outputTokens: number;
  /** Tokens whose KV was reused, from the pool or from a load. */
  readonly cachedTokens: number;
  /** Tokens that a connector promised, including those of failed loads. */
  readonly externalTokens: number;
  /** Tokens computed again, because their load failed or the request was preempted. */
  readonly recomputedTokens: number;
  /** Blocks that a connector promised and whose load failed. */
  readonly failedLoads: number;
  /** Tokens whose KV was loaded, by tier: host memory, disk, ... */
  readonly loadedTokens: Readonly<Record<string, number>>;
  /** Draft tokens that were verified, and those of them that became output tokens. */
  readonly draftedTokens: number;
  readonly acceptedTokens: number;
}

import type { JsonObject } from '../../base/json.ts';
import type { CheckedSampling, ModelSampling } from '../../core/sampling-parse.ts';
import type { AskedStructure } from '../../core/structured-outputs.ts';
import type { ReadChat } from '../../engine/chat/prepare-chat.ts';
import type { GrammarSource } from '../../grammar/structured-grammar.ts';
import type { BodyOptions } from '../http/body-reader.ts';
import type { BestOf } from './best-of.ts';
import type { TextWithGap } from './fill-in-middle.ts';

/** Limits of a request, from the model and the server's options. */
export interface ParseLimits extends BodyOptions {
  readonly vocabSize: number;
  /** Longer prompts, and conversations of more messages, are refused before they are read. */
  readonly maxModelLen: number;
  /** The largest number of prompts times `n` in one request. */
  readonly choicesMax: number;
  /** The model's values of absent parameters, for answers that repeat them. */
  readonly samplingDefaults?: ModelSampling | undefined;
}

/** What a chat and a completion have in common. */
export interface ParsedGeneration {
  /** If absent, the request accepts any model. */
  readonly model?: string;
  /** Without `maxTokens` if the endpoint's default applies. */
  readonly params: CheckedSampling;
  readonly stream: boolean;
  /** The stream ends with a chunk that has the usage. */
  readonly includeUsage: boolean;
  /** Every chunk has the usage so far (vLLM). */
  readonly continuousUsage: boolean;
  /** `max_tokens` beyond the context is an error, and not cut (`--strict-fields`). */
  readonly isStrict: boolean;
  /** Fields of other servers that were set and have no effect. */
  readonly ignored: readonly string[];
  readonly returnTokenIds: boolean;
  readonly addSpecial: boolean;
  readonly cacheSalt?: string;
  /** The number of top tokens in `prompt_logprobs`. `params.promptLogprobs` is at least as large. */
  readonly promptLogprobs?: number;
  /** The number of top tokens of an echoed prompt. */
  readonly echoedLogprobs?: number;
  readonly priority?: number;
  /** Parameters for the connector. */
  readonly kvTransferParams?: JsonObject;
  /** What the content must look like. */
  readonly structure?: AskedStructure | undefined;
  /** The grammar of the whole output. Chats have it when the conversation is rendered. */
  readonly grammar?: GrammarSource;
}

/** `prompts`: at least one. */
export interface ParsedCompletion extends ParsedGeneration, TextWithGap {
  readonly echo: boolean;
  readonly bestOf?: BestOf;
  /** For requests without a limit of tokens. Default: the rest of the context. */
  readonly maxTokensDefault?: number;
}

export interface ParsedChat extends ParsedGeneration, ReadChat {}

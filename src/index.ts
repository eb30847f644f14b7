/** The public face of the package: re-exports only. */
export { KvasirError } from './base/errors.ts';
export { createEngine } from './compose.ts';
export type { TokenId } from './core/ids.ts';
export type { FinishReason, RequestStats } from './core/request.ts';
export type { SamplingOptions, SamplingParams } from './core/sampling.ts';
export type { TokenLogprobs } from './core/step.ts';
export type {
  AsyncEngine,
  ChatMessage,
  EngineStats,
  GenerateRequest,
  ModelInfo,
  OutputDelta,
} from './engine/contract.ts';
export type { BatchOptions, ChatOptions, CompletionOutput, Prompt, RequestOutput } from './engine/llm.ts';
export type { EngineOptions } from './engine/options.ts';
export { LLM } from './llm.ts';

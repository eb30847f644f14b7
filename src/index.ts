/** The public face of the package: re-exports only. */
export { KvasirError } from './base/errors.ts';
export { createEngine } from './compose.ts';
export type { BlockKey } from './connector/block-key.ts';
export type {
  KvConnector,
  KvIdentity,
  KvLoadFailurePolicy,
  KvRole,
  KvTransferConfig,
  SchedulerConnector,
  SchedulerConnectorContext,
  WorkerConnector,
  WorkerConnectorContext,
} from './connector/connector.ts';
export type { LoadFailureReason, MissReason, SaveFailureReason } from './connector/reasons.ts';
export { BlockCodec, headerBytes } from './connector/tier/block-header.ts';
export { type LookUpOptions, type LookupAnswers, lookUpEach } from './connector/tier/look-up.ts';
export type { StoreAnswer, Tier, TierContext } from './connector/tier/tier.ts';
export { TierScheduler, type TierSchedulerOptions } from './connector/tier/tier-scheduler.ts';
export { TierWorker, type TierWorkerOptions } from './connector/tier/tier-worker.ts';
export type { TokenId } from './core/ids.ts';
export type { FinishReason, RequestStats } from './core/request.ts';
export type { SamplingOptions, SamplingParams } from './core/sampling.ts';
export type { TokenLogprobs } from './core/step.ts';
export type {
  AsyncEngine,
  ChatMessage,
  EngineNotice,
  EngineStats,
  GenerateRequest,
  ModelInfo,
  OutputDelta,
} from './engine/contract.ts';
export type { BatchOptions, ChatOptions, CompletionOutput, Prompt, RequestOutput } from './engine/llm.ts';
export type { EngineOptions } from './engine/options.ts';
export { LLM } from './llm.ts';

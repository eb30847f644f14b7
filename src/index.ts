/** The public API of the package: re-exports only. */
export type { Clock } from './base/clock.ts';
export { KvasirError } from './base/errors.ts';
export type { JsonObject, JsonValue } from './base/json.ts';
export type { Timer, Timers } from './base/timers.ts';
export { createEngine } from './compose.ts';
export type { BlockKey } from './connector/block-key.ts';
export {
  type ArrivedBlock,
  type BlockLoadFailure,
  type BlockSaveFailure,
  type ConnectorContext,
  type ConnectorMetadata,
  type ConnectorOutput,
  type ConnectorPlan,
  type ConnectorRequest,
  type ConnectorStep,
  type Crc32,
  emptyMetadata,
  emptyOutput,
  type FoundBlock,
  type KvBlock,
  type KvConnector,
  type KvConnectorClass,
  type KvEvent,
  type KvIdentity,
  type KvIdentityGroup,
  type KvLoadFailurePolicy,
  type KvLoadPolicy,
  type KvRole,
  type KvTransferConfig,
  type LoadBlock,
  type LoadedElsewhere,
  type LoadJob,
  type LoadMode,
  type LoadOutcome,
  type MacKeys,
  type MatchAnswer,
  type PlaceChange,
  type SaveBlock,
  type SaveJob,
  type SaveOutcome,
  type SchedulerConnector,
  type SchedulerConnectorContext,
  type TransferId,
  type TransferOutcomes,
  type TransferReport,
  type ValidBlock,
  type WantedBlock,
  type WorkerConnector,
  type WorkerConnectorContext,
} from './connector/connector.ts';
export { tierClosed } from './connector/errors.ts';
export type { OwnTierContext, TierClass } from './connector/offloading/own-tier.ts';
export type { LoadFailureReason, MissReason, SaveFailureReason } from './connector/reasons.ts';
export { registerConnector } from './connector/registry.ts';
export { BlockCodec, headerBytes } from './connector/tier/block-header.ts';
export { type LookUpOptions, type LookupAnswers, lookUpEach } from './connector/tier/look-up.ts';
export { OpenCalls } from './connector/tier/open-calls.ts';
export type { HangableTier, StoreAnswer, Tier, TierCall, TierContext } from './connector/tier/tier.ts';
export { TierScheduler, type TierSchedulerOptions } from './connector/tier/tier-scheduler.ts';
export { TierWorker, type TierWorkerOptions } from './connector/tier/tier-worker.ts';
export type { BlockMemory } from './core/block-memory.ts';
export type { BlockPlace } from './core/block-place.ts';
export type { BlockId, BlockIndex, GroupIndex, RequestId, StepId, TokenCount, TokenId } from './core/ids.ts';
export { blockIndex, groupIndex } from './core/ids.ts';
export type { FinishReason, Pooling, RequestStats } from './core/request.ts';
export type { SamplingOptions, SamplingParams } from './core/sampling.ts';
export type { TokenLogprobs } from './core/step.ts';
export type {
  AnswerMessage,
  ChatDelta,
  ChatFinish,
  ChatFinishReason,
  ChatMessage,
  ChatRequest,
  ChatSettings,
  TextPart,
  Tool,
  ToolCall,
  ToolCallDelta,
} from './engine/chat/chat-contract.ts';
export { RenderedPrompt } from './engine/chat/rendered-prompt.ts';
export type {
  AsyncEngine,
  EngineEvent,
  EngineStats,
  GenerateRequest,
  ModelInfo,
  OutputDelta,
} from './engine/contract.ts';
export type { Embedding, EmbedRequest } from './engine/embed.ts';
export type { KvEventsConfig } from './engine/kv-events/config.ts';
export type {
  BatchOptions,
  ChatCompletionOutput,
  ChatMessages,
  ChatOptions,
  ChatOutput,
  CompletionOutput,
  Prompt,
  RequestOutput,
} from './engine/llm.ts';
export type { EngineOptions } from './engine/options.ts';
export { LLM } from './llm.ts';
export type { SpeculativeConfig } from './scheduler/speculation/options.ts';
export type { ReasoningFormat, ToolFormat } from './tools/formats.ts';

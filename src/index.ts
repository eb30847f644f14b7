/** What an application needs: re-exports only. `kvasir/connector` is for authors of connectors and tiers. */
export { KvasirError } from './base/errors.ts';
export type { JsonObject, JsonValue } from './base/json.ts';
export { createEngine } from './compose.ts';
export type { KvLoadFailurePolicy, KvLoadPolicy, KvRole, KvTransferConfig } from './connector/connector.ts';
export type { ConnectorStats, TierLevels, TierTotals } from './connector/connector-stats.ts';
export type { RequestId, TokenId } from './core/ids.ts';
export type { FinishReason, Pooling, RequestStats } from './core/request.ts';
export type { SamplingOptions, SamplingParams } from './core/sampling.ts';
export type { TokenLogprobs } from './core/step.ts';
export type { EngineAdapters, LoraModule } from './engine/adapters.ts';
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
export type {
  KvAdministration,
  KvAdministrationCounters,
  Pinned,
  PinnedInTier,
  PinnedPrefixInfo,
  PinReport,
  Prefetched,
  PrefixLookup,
  PrefixRequest,
  RemovedBlocks,
  RemovedByPlace,
  TierClearOptions,
  TierPinsInfo,
} from './engine/kv-administration-contract.ts';
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
export type { Score, ScoreRequest } from './engine/score.ts';
export type { Truncation } from './engine/truncation.ts';
export { LLM } from './llm.ts';
export type { SpeculativeConfig } from './scheduler/speculation/options.ts';
export type { ReasoningFormat, ToolFormat } from './tools/formats.ts';

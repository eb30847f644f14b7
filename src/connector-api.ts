/** For authors of connectors and tiers (`kvasir/connector`): re-exports only. docs/write-a-connector.md is the guide. */
export type { Clock } from './base/clock.ts';
export type { JsonObject, JsonValue } from './base/json.ts';
export type { Timer, Timers } from './base/timers.ts';
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
export type { ConnectorStats, TierLevels, TierTotals } from './connector/connector-stats.ts';
export { tierClosed } from './connector/errors.ts';
export type { OwnTierContext, TierClass } from './connector/offloading/own-tier.ts';
export { TierScheduler, type TierSchedulerOptions } from './connector/places/tier-scheduler.ts';
export type { LoadFailureReason, MissReason, SaveFailureReason } from './connector/reasons.ts';
export { registerConnector } from './connector/registry.ts';
export { type SaltTag, saltTagOf } from './connector/salt-tag.ts';
export { BlockCodec, headerBytes } from './connector/tier/block-header.ts';
export { type LookUpOptions, type LookupAnswers, lookUpEach } from './connector/tier/look-up.ts';
export { OpenCalls } from './connector/tier/open-calls.ts';
export type { HangableTier, StoreAnswer, Tier, TierCall, TierContext } from './connector/tier/tier.ts';
export { TierWorker, type TierWorkerOptions } from './connector/tier/tier-worker.ts';
export type {
  ClearFilter,
  PlaceHits,
  TierAdministration,
  TierOrder,
  TierOrderAnswer,
  TierPin,
  TierPinReport,
  TierWork,
} from './connector/tier-orders.ts';
export type { BlockMemory } from './core/block-memory.ts';
export type { BlockPlace } from './core/block-place.ts';
export {
  type BlockId,
  type BlockIndex,
  blockIndex,
  type GroupIndex,
  groupIndex,
  type RequestId,
  type StepId,
  type TokenCount,
} from './core/ids.ts';

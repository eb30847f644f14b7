/**
 * The contract of a connector, which loads and stores KV outside of the pool. It has the two sides and the call order of
 * vLLM (`vllm/distributed/kv_transfer/kv_connector/v1/base.py`) in camelCase. ADR 8 lists the differences and their reasons.
 *
 *   scheduler side                                       worker side, one on every rank
 *
 *   getMatchedBlocks      what could be loaded?          handlePreemptions     \
 *   updateStateAfterAlloc what will be loaded            bindConnectorMetadata  |
 *   buildConnectorMeta    what to save  -- metadata -->  startLoadKv            |  every step;
 *                                                        waitForLayerLoad  x L  |  `transfer/worker-step.ts`
 *                                                          (forward pass)       |  makes these calls
 *                                                        saveKvLayer       x L  |
 *                                                        waitForSave            |
 *                                                        getFinished            |
 *   updateConnectorOutput <- outcomes -- ledger <- report of each rank --  getBlockIdsWithLoadErrors
 *   requestFinished       once per request               clearConnectorMetadata /
 *   takeEvents                                           shutdown
 *
 * The sides exchange frozen, JSON-able data, because it crosses process borders. KV bytes never cross them.
 * The ledger (`transfer/transfer-ledger.ts`) is between the two sides. It makes the ids, pins the blocks, joins the reports of
 * all ranks into one outcome per block, refuses a block that already failed from the same place, and ends loads that no
 * worker reports. Neither side records open transfers.
 */
import type { Brand } from '../base/brand.ts';
import type { Clock } from '../base/clock.ts';
import type { JsonObject } from '../base/json.ts';
import type { Timers } from '../base/timers.ts';
import type { BlockMemory } from '../core/block-memory.ts';
import type { BlockPlace } from '../core/block-place.ts';
import type { BlockId, RequestId, StepId, TokenCount } from '../core/ids.ts';
import type { BlockKey } from './block-key.ts';
import type { ConnectorStats } from './connector-stats.ts';
import type { BlockLoadFailure, TransferOutcomes, TransferReport } from './reports.ts';
import type { TierAdministration, TierOrder, TierOrderAnswer } from './tier-orders.ts';

export {
  type ArrivedBlock,
  type BlockLoadFailure,
  type BlockSaveFailure,
  type ConnectorOutput,
  emptyOutput,
  type LoadedElsewhere,
  type LoadOutcome,
  type PlaceChange,
  type RankReport,
  type SaveOutcome,
  type TransferOutcomes,
  type TransferReport,
} from './reports.ts';

/** One attempt to load or save blocks. The engine makes the ids: they ascend, and none is used twice (I6). */
export type TransferId = Brand<number, 'TransferId'>;

// --- Identity and blocks -------------------------------------------------------------------------------------------

/** All that must be equal for the bytes of a block to mean the same on two engines (I10). */
export interface KvIdentity {
  /** `KvCacheSpec.fingerprint`: model, numerics, layout. */
  readonly fingerprint: string;
  /** For people; not part of the identity. */
  readonly modelName: string;
  /** Element type of K and V: `f16` or `q8_0`. */
  readonly dtype: string;
  /** The pipeline rank, and the number of ranks. */
  readonly rank: number;
  readonly worldSize: number;
  /** Bytes of one block on this rank, and so of every stored block without its header. */
  readonly blockBytes: number;
  readonly groups: readonly KvIdentityGroup[];
}

/** The KV group of an identity: which layers have KV in its blocks on this rank. */
export interface KvIdentityGroup {
  readonly blockSize: number;
  /** The model's layers whose KV is in this group's blocks on this rank. None: its blocks have no KV to transfer here. */
  readonly layers: readonly number[];
  /**
   * How many tokens before it a token reads: the others of its window, or one token, whose state it continues from. Absent: all.
   * Not part of the identity.
   */
  readonly readsBack?: number;
}

/** A full block of a request, and the key of its content. */
export interface KvBlock extends BlockPlace {
  readonly key: BlockKey;
}

/** A full block that a request lacks, and what the ledger knows of its key. */
export interface WantedBlock extends KvBlock {
  /** Places from which a load of the block failed for this request. A promise from there is refused. Absent: none. */
  readonly failedFrom?: readonly string[];
  /** A save of the block is open. Absent: no. */
  readonly isSaving?: true;
}

/** A block that a store promises. The load may still fail. */
export interface FoundBlock extends KvBlock {
  /** The store. A block that failed from one place may be loaded from another. */
  readonly place: string;
}

/** A block to load, and the block of the pool that it is loaded into. */
export interface LoadBlock extends FoundBlock {
  readonly block: BlockId;
}

/** A block whose KV is valid, and where it is in the pool. */
export interface ValidBlock extends KvBlock {
  readonly requestId: RequestId;
  readonly block: BlockId;
}

/** A block to save, and where its KV is in the pool. The bytes of a block are those of `BlockMemory.bytesOf`. */
export interface SaveBlock {
  readonly key: BlockKey;
  readonly block: BlockId;
  /** Of its request. */
  readonly cacheSalt?: string | undefined;
}

// --- Transfers -----------------------------------------------------------------------------------------------------

/**
 * In a list of connectors, a load is `sync` if the answers of all connectors that have its blocks are. So a worker side may get loads in
 * another mode than that of its scheduler side's answer.
 *
 * `sync`: the step that schedules the request's tokens waits for the load. `async`: the request waits
 * (`waitingForRemoteKv`), and other requests run meanwhile.
 */
export type LoadMode = 'sync' | 'async';
/** The mode of a load that no step waits for. */
export const besideSteps: LoadMode = 'async';

/**
 * One attempt to fill blocks of one request. Its states, over all ranks:
 *
 *   ordered --> decided: every block is loaded or reported as failed --> drained: no I/O touches its blocks
 *
 * A load is decided by its deadline at the latest, even if the store hangs (I8). After that, I/O may write only blocks
 * that were reported as busy. Draining has no deadline; busy blocks stay pinned until then (I5). Usually no block is
 * busy, and one report says both.
 */
export interface LoadJob {
  readonly transfer: TransferId;
  readonly requestId: RequestId;
  readonly mode: LoadMode;
  /** Starts when the worker receives the job. A duration and not a time, because clocks of processes differ. */
  readonly timeoutMs: number;
  /** Of the request. */
  readonly cacheSalt?: string;
  readonly blocks: readonly LoadBlock[];
}

/**
 * Blocks to store. The engine does not write them until the save is drained or flushed (`jobsToFlush`). A connector that
 * copies the blocks first drains the save when they are copied. `finishedSending`: all results are known.
 */
export interface SaveJob {
  readonly transfer: TransferId;
  readonly blocks: readonly SaveBlock[];
}

/** The orders of a step for the workers. Frozen. */
export interface ConnectorMetadata {
  readonly loads: readonly LoadJob[];
  readonly saves: readonly SaveJob[];
  /** Loads whose request has ended or was preempted. Unknown ids are ignored. */
  readonly cancelled: readonly TransferId[];
  /**
   * Saves whose blocks this step overwrites (vLLM's `jobs_to_flush`), earlier ones and ones of this step.
   * `handlePreemptions` waits until they no longer read their blocks. Unknown ids are ignored.
   */
  readonly jobsToFlush: readonly TransferId[];
  /** The connector's message to its worker side. */
  readonly extra?: JsonObject;
}

// --- Scheduler side ------------------------------------------------------------------------------------------------

/** What a connector knows of a request. */
export interface ConnectorRequest {
  readonly id: RequestId;
  readonly tokenCount: TokenCount;
  /** Separates prefix caches: the keys of its blocks depend on it. */
  readonly cacheSalt?: string;
  /** Full blocks that are not valid in the pool, ascending in each group. Other blocks are not loaded. */
  readonly wanted: readonly WantedBlock[];
  /** Milliseconds that computing the wanted blocks takes, as far as the engine has measured. For look-ups; absent in other calls. */
  readonly computeMs?: number;
  /** Sent by the client (vLLM's `kv_transfer_params`). */
  readonly kvTransferParams?: JsonObject;
}

/** The answer of `getMatchedBlocks`, as vLLM's `get_num_new_matched_tokens`, but by block instead of by number of tokens. */
export type MatchAnswer =
  /** A *set* of the wanted blocks, possibly with holes, possibly empty. The planner decides which of them to load. */
  | { readonly kind: 'found'; readonly blocks: readonly FoundBlock[]; readonly mode: LoadMode }
  /**
   * The answer is not known yet; the connector calls `wake` when it is. After `deadlineMs` (of the context's clock) the
   * engine goes on without the answer. A second `askLater` does not move the deadline until the request is admitted or
   * preempted.
   */
  | { readonly kind: 'askLater'; readonly deadlineMs: number };

/** What `buildConnectorMeta` is told of a step. */
export interface ConnectorStep {
  readonly stepId: StepId;
  /**
   * Blocks that became valid since the last call. A computed block becomes valid when its step is applied, so KV that
   * depends on a failed load is never stored. The blocks keep their KV during the call. This step may overwrite some of
   * them; then it flushes their saves.
   */
  readonly newlyValid: readonly ValidBlock[];
  /** A valid block with this key, of any request or only cached; undefined when the pool has none. */
  validBlock(key: BlockKey): BlockId | undefined;
  /** Whether an open save has this block. */
  isSaving(key: BlockKey): boolean;
  newTransferId(): TransferId;
}

/** The connector's part of a step's metadata. The engine adds loads and cancellations, so none is omitted. */
export interface ConnectorPlan {
  readonly saves: readonly SaveJob[];
  readonly extra?: JsonObject;
}

/** Blocks that a place has stored or removed, for consumers of KV events. */
export type KvEvent =
  | { readonly kind: 'stored'; readonly keys: readonly BlockKey[]; readonly place: string }
  | { readonly kind: 'removed'; readonly keys: readonly BlockKey[]; readonly place: string };

/** What a place is for clients and for consumers of KV events, in vLLM's words. */
export interface PlaceKind {
  readonly medium: 'CPU' | 'STORAGE';
  /** Beside the engine, or on another machine. */
  readonly locality: 'LOCAL' | 'REMOTE';
}

/** The blocks of a place, as far as the scheduler side knows. */
export interface PlaceContent {
  readonly place: string;
  readonly keys: ReadonlySet<BlockKey>;
}

/** Beside the scheduler, one per engine. Synchronous: long work runs in the background and ends with `wake`. */
export interface SchedulerConnector {
  /** Deadline of each load of a request, perhaps by the number of its tokens. Default: `defaultLoadTimeoutMs`. */
  readonly loadTimeoutMs?: number | ((tokens: number) => number) | undefined;
  /**
   * `auto`: of the found blocks, the engine loads those whose load takes less time than computing them, as far as it has
   * measured. `always`: it loads all that the request needs. Default `always`.
   */
  readonly loadPolicy?: KvLoadPolicy | undefined;
  /**
   * A request has arrived that may be admitted soon, perhaps while a step is in flight. The connector may start look-ups for the
   * wanted blocks, so that `getMatchedBlocks` has the answer at the next plan. Before any other call for the request, at
   * most once. Absent: look-ups start with `getMatchedBlocks`.
   */
  requestArrived?(request: ConnectorRequest): void;
  /**
   * Which of the wanted blocks could be loaded? Called at each attempt to admit a request without blocks, so perhaps
   * many times, and again after a preemption. Also called when KV of a request became invalid: its worker died, a block
   * was reported as invalid, or a load failed. After a failed load, the request wants only the failed blocks, which
   * another place may have. The call may start look-ups; it must not change the answers for other requests. If a store
   * fails, the answer omits its blocks.
   */
  getMatchedBlocks(request: ConnectorRequest): MatchAnswer;
  /**
   * Once after each answer or missed deadline of `getMatchedBlocks`, when blocks are allocated. `load` has the found
   * blocks that will be loaded, with their block ids; undefined: none will be. With the policy `auto`, called again when
   * further blocks of the same answer are loaded. `valid`: the full blocks of the request
   * whose KV is valid; O(blocks).
   */
  updateStateAfterAlloc(request: ConnectorRequest, load: LoadJob | undefined, valid: () => readonly KvBlock[]): void;
  /** Once per step, also for steps without tokens. The connector starts to collect for the next step. */
  buildConnectorMeta(step: ConnectorStep): ConnectorPlan;
  /** After each step: what became of transfers, once for each block. Late and duplicate reports are not among it. */
  updateConnectorOutput(outcomes: TransferOutcomes): void;
  /**
   * Once per request, when it ends for any reason, before its blocks are released. Transfers may still be under way, and
   * the next step offers the newest blocks to be saved. The engine pins these blocks, so nothing needs to be delayed.
   * The client gets the answer with the end of the completion. `valid`: the full blocks of the request whose KV is
   * valid, computed or found; O(blocks), so call it only when the answer needs them.
   */
  requestFinished(
    request: ConnectorRequest,
    valid: () => readonly KvBlock[],
  ): { readonly kvTransferParams?: JsonObject };
  /** After each step: the blocks that were stored and removed since the last call. */
  takeEvents(): readonly KvEvent[];
  /** For KV events. Absent, or undefined: the place is storage whose locality is not known. */
  placeKind?(place: string): PlaceKind | undefined;
  /**
   * For people: the places whose whole content this side knows, as the events of `takeEvents` have told it. Absent: none. Another
   * process may change the content of other places.
   */
  listed?(): readonly PlaceContent[];
  /**
   * Counts since the start, and levels under names that begin with `now.`. `engine.stats()` adds them to the workers'
   * counters. Absent: the connector counts nothing.
   */
  counters?(): Readonly<Record<string, number>>;
  /** Since the start, as in the reports of the workers. Absent: none. */
  stats?(): ConnectorStats;
  /** For administrators. Absent: nothing of the connector can be administered. */
  readonly tiers?: TierAdministration;
  /** Whether the connector needs a step, even one without tokens. */
  hasPendingWork(): boolean;
  /** Ends look-ups. Idempotent. */
  close(): Promise<void>;
}

// --- Worker side ---------------------------------------------------------------------------------------------------

/** Beside the pool, one on every rank. Only `shutdown` may throw when a store fails. */
export interface WorkerConnector {
  /** Once, before the first step. */
  registerKvCaches(memory: BlockMemory): void;
  /**
   * First in a step, before any block is written: stops the loads that `metadata` cancels, without waiting. Resolves when
   * the saves in `jobsToFlush` no longer read their blocks, because the step overwrites them. A save that has not begun
   * begins now; if it cannot, it fails. A save whose store fails counts as ended. Never rejects.
   */
  handlePreemptions(metadata: ConnectorMetadata): Promise<void>;
  /** Every step, also those without a forward pass. */
  bindConnectorMetadata(metadata: ConnectorMetadata): void;
  /**
   * Every step, before the forward pass: begins the loads, and optionally the saves. Does not wait, and does not copy
   * blocks: copies here delay the tokens of the step.
   */
  startLoadKv(): void;
  /**
   * Before each layer of a forward pass, ascending. Resolves when the `sync` loads of this step are decided for the
   * blocks that this layer reads, by their deadline at the latest. Never rejects.
   */
  waitForLayerLoad(layer: number): Promise<void>;
  /** After each layer of a forward pass. For connectors that pace their saves; the blocks to save are valid already. */
  saveKvLayer(layer: number): void;
  /** At the end of a forward pass: resolves when the connector lets the step end. Decoding waits for it. */
  waitForSave(): Promise<void>;
  /** Every step, after the forward pass: the transfers that ended since the last call. Each id is reported once. */
  getFinished(): TransferReport;
  /**
   * Blocks that failed to load, each reported once. Called after the wait for `sync` loads, so that the worker leaves
   * their requests out of the batch, and again after `getFinished`. A `sync` failure must be known at the first call, an
   * `async` failure at the latest in the step whose `getFinished` reports the load.
   */
  getBlockIdsWithLoadErrors(): readonly BlockLoadFailure[];
  /** Last in a step, also after a forward pass that threw. */
  clearConnectorMetadata(): void;
  /** At any time, also during a step: carries out an order of an administrator. Rejects with a KvasirError. Absent: there are no tiers. */
  readonly administer?: ((order: TierOrder) => Promise<TierOrderAnswer>) | undefined;
  /**
   * At the end: saves under way get `timeoutMs` to finish, loads are cancelled. `drained: false` says that I/O still
   * touches the pool, so its memory must not be freed. Idempotent.
   */
  shutdown(options: { readonly timeoutMs: number }): Promise<{ readonly drained: boolean }>;
}

// --- Opening a connector -------------------------------------------------------------------------------------------

/** What both sides of a connector get when they are opened. */
export interface ConnectorContext {
  readonly clock: Clock;
  readonly timers: Timers;
  /**
   * Call it when a transfer or look-up ended outside of a step: an idle engine then runs one. Cheap, from any callback.
   */
  readonly wake: () => void;
  /** Receives events for the operator, such as a store with another model's KV. Absent: events are dropped. */
  readonly event?: (message: string) => void;
}

/** What the scheduler side gets when it is opened. */
export interface SchedulerConnectorContext extends ConnectorContext {
  /** One per rank. */
  readonly identities: readonly KvIdentity[];
}

/** The CRC32 of zlib. */
export interface Crc32 {
  (bytes: Uint8Array): number;
  /** The library whose `kvasir_crc32` computes it, so that other threads can load it. */
  readonly library?: string;
  /** Copies `from` into `into`, which does not overlap it, and returns the CRC32 of the bytes, in one pass. */
  readonly copy?: (into: Uint8Array, from: Uint8Array) => number;
}

/** Keys that authenticate or encrypt stored blocks, of at least 32 random bytes each. The first is for new blocks. */
export type MacKeys = readonly Uint8Array[];

/** What the worker side gets when it is opened, one on each rank. */
export interface WorkerConnectorContext extends ConnectorContext {
  /** Of this rank. */
  readonly identity: KvIdentity;
  /** A faster CRC32 than Node's, if the machine has one. */
  readonly crc32?: Crc32;
  /** The keys of `--kv-transfer-key-file`; for `BlockCodec`. Blocks in the memory of this process need no MAC. */
  readonly macKeys?: MacKeys;
  /** `--kv-transfer-encrypt`; for `BlockCodec`. Blocks in the memory of this process are not encrypted. */
  readonly encrypts?: boolean;
}

/**
 * A connector is a class that takes the configuration and opens both sides, each in its own process. The constructor
 * throws a KvasirError when the configuration is wrong. It runs at the start of every process.
 */
export interface KvConnector {
  /**
   * True: with `macKeys` in its context, the worker side writes a MAC with every block that leaves the process, and loads no
   * block without a right one. Absent: `--kv-transfer-key-file` is an error.
   */
  readonly authenticatesBlocks?: boolean;
  /**
   * True: with `encrypts` in its context, the worker side encrypts every block that leaves the process, and loads no other. Absent:
   * `--kv-transfer-encrypt` is an error.
   */
  readonly encryptsBlocks?: boolean;
  /**
   * The stores that the connector keeps blocks in, by names that two connectors of equal stores share and that have no password. In a list of
   * connectors (`multi/multi-connector.ts`), each store is in one connector. Absent: not known.
   */
  readonly stores?: readonly string[];
  /**
   * Checks what the settings name, before a server listens and before there is a model. At most one call; the sides are opened later, so
   * nothing is kept open, and no block is read or written. Rejects with the error that opening a side would have with any model: a wrong password, a bucket
   * that does not exist. A store that does not answer is not an error. Absent: errors appear when the sides are opened.
   */
  checkSettings?(): Promise<void>;
  openScheduler(context: SchedulerConnectorContext): Promise<SchedulerConnector>;
  openWorker(context: WorkerConnectorContext): Promise<WorkerConnector>;
}

/** Whether a connector saves blocks (`kv_producer`), loads them (`kv_consumer`), or both. The names are vLLM's. */
export type KvRole = 'kv_producer' | 'kv_consumer' | 'kv_both';
/** What becomes of a request whose load fails: its tokens are computed again, or it ends with an error. The names are vLLM's. */
export type KvLoadFailurePolicy = 'recompute' | 'fail';

/** The fields of vLLM's `KVTransferConfig` that Kvasir uses. Frozen. */
export interface KvTransferConfig {
  readonly kvConnector: string;
  readonly kvRole: KvRole;
  readonly kvConnectorExtraConfig: JsonObject;
  /** The user's module, which exports the class `kvConnector`. */
  readonly kvConnectorModulePath?: string;
  readonly kvLoadFailurePolicy: KvLoadFailurePolicy;
  readonly engineId?: string;
  /** A file with keys: stored blocks have a MAC, and others are not loaded (`key-file.ts`). */
  readonly kvTransferKeyFile?: string;
  /** Stored blocks are encrypted with these keys, and others are not loaded. */
  readonly kvTransferEncrypt?: boolean;
}

/** `auto`: blocks are loaded where that is faster than computing them. `always`: wherever they are found. */
export type KvLoadPolicy = 'auto' | 'always';

/** The class of a connector, as a module exports it. */
export type KvConnectorClass = new (config: KvTransferConfig) => KvConnector;

/** The deadline of a load, as in SGLang: 2 s, and 0.1 s more for each 1,024 tokens, at most 30 s. */
export const defaultLoadTimeoutMs = (tokens: number): number => Math.min(30_000, 2000 + (100 * tokens) / 1024);

/** The deadline of a load by the number of the request's tokens. */
export const loadTimeoutOf = ({
  loadTimeoutMs = defaultLoadTimeoutMs,
}: Pick<SchedulerConnector, 'loadTimeoutMs'>): ((tokens: number) => number) =>
  typeof loadTimeoutMs === 'number' ? () => loadTimeoutMs : loadTimeoutMs;

/** The longest time that a request waits for a connector that answers "ask later". */
export const askLaterMaxMs = 30_000;

export const loadsKv = (role: KvRole): boolean => role !== 'kv_producer';
export const savesKv = (role: KvRole): boolean => role !== 'kv_consumer';

/** The metadata of a step without transfers. */
export const emptyMetadata: ConnectorMetadata = Object.freeze({ loads: [], saves: [], cancelled: [], jobsToFlush: [] });

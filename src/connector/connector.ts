/**
 * The connector's contract: KV that lives outside the device pool. vLLM's two halves and order of calls
 * (`vllm/distributed/kv_transfer/kv_connector/v1/base.py`), camelCased; ADR 8 lists what differs and why.
 *
 *   scheduler half                                       worker half, one on every rank
 *
 *   getMatchedBlocks      what could be loaded?          handlePreemptions     \
 *   updateStateAfterAlloc what will be loaded            bindConnectorMetadata  |
 *   buildConnectorMeta    what to save  -- metadata -->  startLoadKv            |  every step,
 *                                                        waitForLayerLoad  x L  |  `transfer/worker-step.ts`
 *                                                          (forward pass)       |  is this order as code
 *                                                        saveKvLayer       x L  |
 *                                                        waitForSave            |
 *                                                        getFinished            |
 *   updateConnectorOutput <- output, all ranks' in one-  getBlockIdsWithLoadErrors
 *   requestFinished       once per request               clearConnectorMetadata /
 *   takeEvents                                           shutdown
 *
 * Everything between the halves is frozen JSON-able data: it crosses process borders. KV bytes never do.
 * The engine's own book of transfers (`transfer/transfer-ledger.ts`) stands between the scheduler and the scheduler half: it
 * mints the ids, holds the pages, refuses promises that were broken before, and gives up what nobody reports.
 */
import type { Brand } from '../base/brand.ts';
import type { Clock } from '../base/clock.ts';
import type { JsonObject } from '../base/json.ts';
import type { BlockMemory } from '../core/block-memory.ts';
import type { BlockPlace } from '../core/block-place.ts';
import type { BlockId, RequestId, StepId, TokenCount } from '../core/ids.ts';
import type { BlockKey } from './block-key.ts';
import type { LoadFailureReason, SaveFailureReason } from './reasons.ts';
import type { Timers } from './timers.ts';

/** One attempt to load or save something. Minted by the engine, ascending, never used twice (I6). */
export type TransferId = Brand<number, 'TransferId'>;

// --- What is stored, and whose it is -------------------------------------------------------------------------------

/** All that must be equal for the bytes of a block to mean the same here as where they were written (I10). */
export interface KvIdentity {
  /** `KvCacheSpec.fingerprint`: model, numerics, layout. */
  readonly fingerprint: string;
  /** For people: no part of the identity. */
  readonly modelName: string;
  /** Element type of K and V: `f16` or `q8_0`. */
  readonly dtype: string;
  /** Pipeline rank, and how many there are. */
  readonly rank: number;
  readonly worldSize: number;
  /** Bytes of one page on this rank: the length of every stored block. */
  readonly blockBytes: number;
  readonly groups: readonly KvIdentityGroup[];
}

export interface KvIdentityGroup {
  readonly blockSize: number;
  /** The model's layers whose KV lies in this group's pages on this rank. */
  readonly layers: readonly number[];
}

/** A full block of a request, and the content that it has. */
export interface KvBlock extends BlockPlace {
  readonly key: BlockKey;
}

/** A block that a store says it has. A promise may be broken: the load says so. */
export interface FoundBlock extends KvBlock {
  /** Which store: a block that failed from one may still come from another. */
  readonly place: string;
}

export interface LoadBlock extends FoundBlock {
  readonly block: BlockId;
}

/** A block whose KV is computed and valid, in the page that holds it. */
export interface ValidBlock extends KvBlock {
  readonly requestId: RequestId;
  readonly block: BlockId;
}

export interface SaveBlock {
  readonly key: BlockKey;
  readonly block: BlockId;
}

// --- Transfers -----------------------------------------------------------------------------------------------------

/**
 * `sync`: the request's rows are in the same step and wait for the bytes; `async`: the request is parked meanwhile,
 * and everybody else goes on.
 */
export type LoadMode = 'sync' | 'async';

/**
 * One attempt to fill pages of one request. Its life, over all ranks:
 *
 *   ordered --> decided: every block has arrived or is reported as failed --> drained: no I/O touches its pages
 *
 * Decided comes by the deadline at the latest, whatever the store does (I8); then only pages that are reported as busy
 * may still be written by I/O. Drained comes when it comes, and until then nobody else touches those (I5). Usually no
 * page is busy and both are in one report.
 */
export interface LoadJob {
  readonly transfer: TransferId;
  readonly requestId: RequestId;
  readonly mode: LoadMode;
  /** From the moment the worker sees the job. A duration and not a time: clocks of processes differ. */
  readonly timeoutMs: number;
  readonly blocks: readonly LoadBlock[];
}

/**
 * Blocks to store. Nobody writes their pages until it is drained; a connector that copies them first drains it at once.
 * Finished sending is when it is known what was stored.
 */
export interface SaveJob {
  readonly transfer: TransferId;
  readonly blocks: readonly SaveBlock[];
}

/** What a step's workers are told. Frozen. */
export interface ConnectorMetadata {
  readonly loads: readonly LoadJob[];
  readonly saves: readonly SaveJob[];
  /** Loads that nobody waits for any more: their request is gone. Unknown ids are ignored. */
  readonly cancelled: readonly TransferId[];
  /** Saves whose pages the pool wants back: what is not begun is dropped. Unknown ids are ignored. */
  readonly flushed: readonly TransferId[];
  /** The connector's own message to its worker half. */
  readonly extra?: JsonObject;
}

export interface BlockLoadFailure {
  readonly transfer: TransferId;
  readonly block: BlockId;
  readonly reason: LoadFailureReason;
  /** I/O that was given up may still write the page. */
  readonly isBlockBusy: boolean;
}

export interface BlockSaveFailure {
  readonly transfer: TransferId;
  readonly key: BlockKey;
  readonly reason: SaveFailureReason;
}

/** What one rank reports after a step, or all of them in one (`transfer/aggregator.ts`). Frozen. */
export interface ConnectorOutput {
  /** Saves that are decided: stored is what is not among `saveFailures`, now or earlier. */
  readonly finishedSending: readonly TransferId[];
  /** Loads that are decided. A failure of such a load is in this report or an earlier one, never in a later one. */
  readonly finishedRecving: readonly TransferId[];
  /** Loads and saves that no longer touch their pages. */
  readonly drained: readonly TransferId[];
  /** Loads that failed as a whole, where it cannot be said which block did; each is in `finishedRecving` too, now or later. */
  readonly failedRecving: readonly TransferId[];
  /** vLLM's `invalid_block_ids`, each with the attempt that it belongs to, so that a late one harms nobody. */
  readonly loadFailures: readonly BlockLoadFailure[];
  readonly saveFailures: readonly BlockSaveFailure[];
  /** Keys that a bounded store has let go of. */
  readonly evicted: readonly BlockKey[];
  /** What has been counted since the last report. Names that begin with `now.` are differences of levels, perhaps negative. */
  readonly counters: Readonly<Record<string, number>>;
  /** How many ranks take part in transfers that begin from now on; 0 = as before. */
  readonly expectedFinishedCount: number;
}

// --- Scheduler half ------------------------------------------------------------------------------------------------

/** A request as connectors see it. */
export interface ConnectorRequest {
  readonly id: RequestId;
  readonly tokenCount: TokenCount;
  /** Full blocks that are not valid in the device pool, ascending in each group. What is not asked for is not loaded. */
  readonly wanted: readonly KvBlock[];
  /** As the client sent it (vLLM's `kv_transfer_params`). */
  readonly kvTransferParams?: JsonObject;
}

export type MatchAnswer =
  /** A *set* of the wanted blocks, holes and all; perhaps none. The planner decides which of them are worth loading. */
  | { readonly kind: 'found'; readonly blocks: readonly FoundBlock[]; readonly mode: LoadMode }
  /**
   * Not known yet; the connector rings `wake` when it is. At `deadlineMs` (the clock of the context) at the latest
   * it answers; the engine then goes on without it whatever it says. A second `askLater` does not move the deadline,
   * before the request is admitted or preempted.
   */
  | { readonly kind: 'askLater'; readonly deadlineMs: number };

export interface ConnectorStep {
  readonly stepId: StepId;
  /**
   * Blocks that became valid since the last call. Only valid blocks can be saved: what a step computes is offered after
   * it was applied, so KV that depended on a failed load reaches no store. The engine holds these pages during the call.
   */
  readonly newlyValid: readonly ValidBlock[];
  /** A page that holds the block and is valid, of whatever request or of none; undefined when the pool has none. */
  validBlock(key: BlockKey): BlockId | undefined;
  newTransferId(): TransferId;
}

/** The connector's part of a step's metadata; loads and cancellations are the engine's part, so none can be forgotten. */
export interface ConnectorPlan {
  readonly saves: readonly SaveJob[];
  readonly extra?: JsonObject;
}

export type KvEvent =
  | { readonly kind: 'stored'; readonly keys: readonly BlockKey[]; readonly place: string }
  | { readonly kind: 'removed'; readonly keys: readonly BlockKey[]; readonly place: string };

/** Lives beside the scheduler, one per engine. Synchronous: what takes time goes on behind it and ends with `wake`. */
export interface SchedulerConnector {
  /**
   * Which of the wanted blocks could be loaded? At each attempt to admit a request that holds no pages, perhaps many
   * times, perhaps again after a preemption; and when a request has lost KV: its worker died, a page was corrupt, a load
   * failed (then only for the blocks that failed, which another place may have). May start look-ups; must not change what other requests
   * are told. A store's failure is an answer without its blocks.
   */
  getMatchedBlocks(request: ConnectorRequest): MatchAnswer;
  /**
   * Once per question that was answered, in time or not, after pages were taken: `load` says which of the found blocks
   * will be loaded and where to, or is undefined when none will. What was found but is not in it is not wanted. `valid`:
   * the full blocks that the request holds and whose KV is valid; O(blocks).
   */
  updateStateAfterAlloc(request: ConnectorRequest, load: LoadJob | undefined, valid: () => readonly KvBlock[]): void;
  /** Once per step, also for steps without tokens. Resets what was gathered for the step. */
  buildConnectorMeta(step: ConnectorStep): ConnectorPlan;
  /** After each step, with all ranks' reports in one. Only ids that are open reach it: late and double ones do not. */
  updateConnectorOutput(output: ConnectorOutput): void;
  /**
   * Once per request, when it ends for whatever reason, before its pages are given back. Transfers may still be under
   * way, and the newest blocks are offered to be saved with the next step: their pages are held by the engine, so nothing
   * needs to be delayed. The answer goes to the client with the end of the completion. `valid`: the full blocks that the
   * request holds and whose KV is valid, computed by it or found; O(blocks), so ask only when the answer needs them.
   */
  requestFinished(
    request: ConnectorRequest,
    valid: () => readonly KvBlock[],
  ): { readonly kvTransferParams?: JsonObject };
  /** After each step: what the stores have gained and lost since the last call. */
  takeEvents(): readonly KvEvent[];
  /**
   * What it has counted since the start, and levels under names that begin with `now.`. Added to the workers' counters in
   * `engine.stats()`. Absent: it counts nothing.
   */
  counters?(): Readonly<Record<string, number>>;
  /** Whether it would have more to do if it got a step, even one without tokens. */
  hasPendingWork(): boolean;
  /** Ends look-ups. Idempotent. */
  close(): Promise<void>;
}

// --- Worker half ---------------------------------------------------------------------------------------------------

export interface TransferReport {
  readonly finishedSending: readonly TransferId[];
  readonly finishedRecving: readonly TransferId[];
  readonly drained: readonly TransferId[];
  readonly failedRecving: readonly TransferId[];
  readonly saveFailures: readonly BlockSaveFailure[];
  readonly evicted: readonly BlockKey[];
  readonly counters: Readonly<Record<string, number>>;
  readonly expectedFinishedCount: number;
}

/** Lives beside the device pool, one on every rank. No method but `shutdown` throws because a store fails. */
export interface WorkerConnector {
  /** Once, before the first step. */
  registerKvCaches(memory: BlockMemory): void;
  /**
   * First thing in a step, before anything may write a page: stops what `metadata` cancels and flushes. It need not
   * wait: pages under I/O are held by count and not handed out.
   */
  handlePreemptions(metadata: ConnectorMetadata): void;
  /** Every step, also those without a forward pass. */
  bindConnectorMetadata(metadata: ConnectorMetadata): void;
  /** Every step, before the forward pass: begins the loads, and the saves too if it likes. Does not wait. */
  startLoadKv(): void;
  /**
   * Before each layer of a forward pass, ascending: resolves when the `sync` loads of this step are decided as far as
   * this layer reads them, by their deadline at the latest. Never rejects.
   */
  waitForLayerLoad(layer: number): Promise<void>;
  /** After each layer of a forward pass. For connectors that pace their saves; the blocks to save were valid before. */
  saveKvLayer(layer: number): void;
  /** At the end of a forward pass: resolves when the connector wants the step to end. Decoding waits for it: hurry. */
  waitForSave(): Promise<void>;
  /** Every step, after the forward pass: what ended since the last call. Each id is reported once. */
  getFinished(): TransferReport;
  /**
   * Blocks that failed to load, each reported once. Called when the `sync` loads have been waited for (the worker
   * leaves their requests out of the batch) and again after `getFinished`. A `sync` failure must be known at the first
   * call, an `async` one at the latest in the step whose `getFinished` reports the load.
   */
  getBlockIdsWithLoadErrors(): readonly BlockLoadFailure[];
  /** Last thing in a step, also after a forward pass that threw. */
  clearConnectorMetadata(): void;
  /**
   * Once, at the end: saves that are under way get `timeoutMs` to finish, loads are cancelled. `drained: false` says
   * that I/O still touches the pool: its memory must not be freed. Idempotent.
   */
  shutdown(options: { readonly timeoutMs: number }): Promise<{ readonly drained: boolean }>;
}

// --- How connectors come to be -------------------------------------------------------------------------------------

export interface ConnectorContext {
  readonly clock: Clock;
  readonly timers: Timers;
  /** Call it when something ended outside a step: an idle engine then runs one. Cheap; may be called from anywhere. */
  readonly wake: () => void;
}

export interface SchedulerConnectorContext extends ConnectorContext {
  /** One per rank. */
  readonly identities: readonly KvIdentity[];
  /** For what whoever runs the engine should know, such as a store that holds another model's KV. Absent: nobody listens. */
  readonly event?: (message: string) => void;
}

/** CRC32 as zlib has it. */
export interface Crc32 {
  (bytes: Uint8Array): number;
  /** The library whose `kvasir_crc32` computes it: other threads can load it too. */
  readonly library?: string;
}

export interface WorkerConnectorContext extends ConnectorContext {
  /** This rank's. */
  readonly identity: KvIdentity;
  /** A quicker CRC32 than Node's; absent where there is none. */
  readonly crc32?: Crc32;
}

/**
 * A connector is a class that takes the configuration and opens both halves, each in its own process. The constructor
 * throws a KvasirError when the configuration is wrong: it runs at start in every process.
 */
export interface KvConnector {
  openScheduler(context: SchedulerConnectorContext): Promise<SchedulerConnector>;
  openWorker(context: WorkerConnectorContext): Promise<WorkerConnector>;
}

export type KvRole = 'kv_producer' | 'kv_consumer' | 'kv_both';
export type KvLoadFailurePolicy = 'recompute' | 'fail';

/** vLLM's `KVTransferConfig`, as far as it means something here. Frozen. */
export interface KvTransferConfig {
  readonly kvConnector: string;
  readonly kvRole: KvRole;
  readonly kvConnectorExtraConfig: JsonObject;
  /** A module of the user's; the class `kvConnector` is looked up in it. */
  readonly kvConnectorModulePath?: string;
  readonly kvLoadFailurePolicy: KvLoadFailurePolicy;
  readonly engineId?: string;
}

export type KvConnectorClass = new (config: KvTransferConfig) => KvConnector;

export const loadsKv = (role: KvRole): boolean => role !== 'kv_producer';
export const savesKv = (role: KvRole): boolean => role !== 'kv_consumer';

export const emptyMetadata: ConnectorMetadata = Object.freeze({ loads: [], saves: [], cancelled: [], flushed: [] });

export const emptyOutput: ConnectorOutput = Object.freeze({
  finishedSending: [],
  finishedRecving: [],
  drained: [],
  failedRecving: [],
  loadFailures: [],
  saveFailures: [],
  evicted: [],
  counters: {},
  expectedFinishedCount: 0,
});

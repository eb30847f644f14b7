/**
 * What becomes of transfers: the reports of the ranks, and the outcomes that the ledger makes of them.
 *
 *   worker side of each rank --> ConnectorOutput --> ledger --> TransferOutcomes --> scheduler side, recovery
 */
import type { BlockId, RequestId } from '../core/ids.ts';
import type { BlockKey } from './block-key.ts';
import type { LoadBlock, TransferId } from './connector.ts';
import type { ConnectorStats } from './connector-stats.ts';
import type { LoadFailureReason, SaveFailureReason } from './reasons.ts';

/** A block of a load that failed on a rank. */
export interface BlockLoadFailure {
  readonly transfer: TransferId;
  readonly block: BlockId;
  readonly reason: LoadFailureReason;
  /** I/O of a load that timed out or was cancelled may still write the block. */
  readonly isBlockBusy: boolean;
}

/** A block of an `async` load that is loaded and verified before the load is decided. */
export interface ArrivedBlock {
  readonly transfer: TransferId;
  readonly block: BlockId;
}

/** A loaded block that came from another place than `LoadBlock.place`. */
export interface LoadedElsewhere extends ArrivedBlock {
  readonly place: string;
}

/** A block of a save that was not stored on a rank. */
export interface BlockSaveFailure {
  readonly transfer: TransferId;
  readonly key: BlockKey;
  readonly reason: SaveFailureReason;
}

/** Blocks that one of several places stored and removed on a rank, beside the blocks of saves and `evicted`. */
export interface PlaceChange {
  readonly place: string;
  readonly stored: readonly BlockKey[];
  readonly evicted: readonly BlockKey[];
}

/** The report of one rank after a step. Frozen. */
export interface ConnectorOutput {
  /** Saves that are decided. Their blocks are stored, except those in `saveFailures` of this report or an earlier one. */
  readonly finishedSending: readonly TransferId[];
  /** Loads that are decided. All failures of such a load are in this report or an earlier one. */
  readonly finishedRecving: readonly TransferId[];
  /** Loads and saves that no longer touch their blocks. */
  readonly drained: readonly TransferId[];
  /**
   * Loads that failed as a whole, without a failure per block. Each is also in `finishedRecving` of this report or a
   * later one.
   */
  readonly failedRecving: readonly TransferId[];
  /** vLLM's `invalid_block_ids`, each with its transfer, so that the engine can ignore a late failure. */
  readonly loadFailures: readonly BlockLoadFailure[];
  readonly saveFailures: readonly BlockSaveFailure[];
  /** Absent: every loaded block came from its place. */
  readonly loadedElsewhere?: readonly LoadedElsewhere[];
  /**
   * Blocks of loads that are not decided. Nothing writes such a block any more. A request that shares the load and needs no
   * other block of it goes on. Absent: none; a connector need not report them.
   */
  readonly arrived?: readonly ArrivedBlock[];
  /** Keys of blocks that a bounded store has evicted. */
  readonly evicted: readonly BlockKey[];
  /** Of a connector with several places; absent: none. One for each place and rank. */
  readonly placeChanges?: readonly PlaceChange[];
  /** Counts since the last report. Names that begin with `now.` are changes of levels, which may be negative. */
  readonly counters: Readonly<Record<string, number>>;
  /** The changes since the last report; absent: none. A connector of its own need not report them. */
  readonly stats?: ConnectorStats;
  /** How many ranks take part in transfers that are first reported from now on; 0 = no change. */
  readonly expectedFinishedCount: number;
}

/** `getBlockIdsWithLoadErrors` has the rest. */
export type TransferReport = Omit<ConnectorOutput, 'loadFailures'>;

/** The report of a rank. Undefined: it has none. `workerDied`: its process died, and so all its open transfers ended. */
export type RankReport = ConnectorOutput | 'workerDied' | undefined;

/** The result of one block of a load, on all ranks. `place`: where a loaded block came from, else where it was promised. */
export interface LoadOutcome extends LoadBlock {
  readonly transfer: TransferId;
  readonly requestId: RequestId;
  readonly result: 'loaded' | LoadFailureReason;
  /** I/O may still write this block: it stays pinned, and its KV is computed into another block. */
  readonly isBlockBusy: boolean;
}

/** The result of one block of a save, on all ranks. */
export interface SaveOutcome {
  readonly transfer: TransferId;
  readonly key: BlockKey;
  readonly result: 'stored' | SaveFailureReason;
}

/** What the ledger makes of the reports of all ranks after a step. Each block of a transfer has one outcome. */
export interface TransferOutcomes {
  /** Also of loads whose request has ended or was preempted. */
  readonly loads: readonly LoadOutcome[];
  readonly saves: readonly SaveOutcome[];
  readonly evicted: readonly BlockKey[];
  readonly placeChanges: readonly PlaceChange[];
  /** Sums over the ranks. */
  readonly counters: Readonly<Record<string, number>>;
  /** Sums over the ranks; absent: nothing has changed. */
  readonly stats?: ConnectorStats;
}

/** The report of a rank without news. */
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

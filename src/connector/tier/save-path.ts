import { setImmediate as nextTurn } from 'node:timers/promises';
import type { Timers } from '../../base/timers.ts';
import type { BlockId } from '../../core/ids.ts';
import type { BlockKey } from '../block-key.ts';
import type { BlockSaveFailure, SaveJob, TransferId } from '../connector.ts';
import type { SaveFailureReason } from '../reasons.ts';
import type { SaltTag } from '../salt-tag.ts';
import { type TransferGate, TransferQueue } from '../transfer/transfer-queue.ts';

/** What a tier is told of a block besides its bytes. */
export interface SavedBlock {
  readonly key: BlockKey;
  readonly saltTag: SaltTag | undefined;
}

export interface SavePathOptions {
  readonly savesAtOnce: number;
  readonly timeoutMs: number;
  readonly clock: { nowMs(): number };
  readonly timers: Timers;
  /** Saves wait while it is closed, unless they are flushed. */
  readonly gate?: TransferGate | undefined;
  /** A save no longer reads its blocks, or is decided. */
  readonly onChange: () => void;
  /** The memory of a block in the pool. */
  readonly bytesOf: (block: BlockId) => Uint8Array;
  /** Undefined: the block is stored. Settles only when nothing reads `bytes` any more. */
  readonly store: (block: SavedBlock, bytes: Uint8Array, signal: AbortSignal) => Promise<SaveFailureReason | undefined>;
}

export interface SaveReport {
  readonly decided: readonly TransferId[];
  /** Saves that no longer read their blocks. */
  readonly drained: readonly TransferId[];
  readonly failures: readonly BlockSaveFailure[];
}

/**
 * How the blocks of saves get from the pool to the tier: through copies (`staged-saves.ts`), or directly
 * (`direct-saves.ts`). Both read the pool in turns of the event loop of their own, a block in each. So the forward pass
 * of the step is launched before the first block is read, and sockets are served between blocks.
 */
export interface SavePath {
  /** Saves that ended after they were given up. */
  readonly lateCount: number;
  /** Whether any save still reads the pool. */
  readonly readsPool: boolean;
  /** Returns before any block is read. */
  submit(job: SaveJob): void;
  /** Reads the blocks of these saves at once. Resolves when the saves no longer read them. Unknown ids are ignored. */
  flush(ids: readonly TransferId[]): Promise<void>;
  /** The changes since the last call. */
  takeReport(): SaveReport;
  /** Resolves when all saves have ended, which is never if a store hangs. */
  whenDrained(): Promise<void>;
  /** Gives all saves up. */
  close(): void;
  checkInvariants(): void;
}

/** Steps and sockets come first: resolves in the next turn of the event loop. */
export const yieldToSteps = (): Promise<void> => nextTurn();

/** The queue of a path: `run` saves one item. */
export const saveQueue = <Item>(
  { savesAtOnce: concurrency, clock, timers, gate, onChange }: SavePathOptions,
  run: (item: Item, signal: AbortSignal) => Promise<SaveFailureReason | undefined>,
): TransferQueue<Item, SaveFailureReason> => new TransferQueue({ concurrency, clock, timers, gate, run, onChange });

import type { RequestId } from '../../core/ids.ts';
import type { BlockKey } from '../block-key.ts';
import type { KvIdentity, PlaceChange } from '../connector.ts';
import type { LoadFailureReason } from '../reasons.ts';
import type { SaltTag } from '../salt-tag.ts';
import type { ClearFilter, TierWork } from '../tier-orders.ts';
import type { LookupAnswers } from './look-up.ts';
import type { SaltLevels } from './salt-bytes.ts';
import type { TierPins } from './tier-pins.ts';

/**
 * A place that keeps blocks: memory, a disk, a server. A tier is much smaller than a connector; write a tier if you can.
 *
 * Any number of calls may be under way at once, also for one key. A missing or corrupt block is an answer. A promise
 * rejects only if the place itself fails (it is down, its disk has errors). All calls but `has` also reject when the signal
 * is aborted, with the signal's reason. Stored blocks never change, because equal keys mean equal bytes.
 */
export interface Tier {
  /** For logs, counters and events; also the `place` of found blocks. */
  readonly name: string;

  /** For a class of the user's. True: with `macKeys` in its context, `store` writes a MAC, and `load` demands it. */
  readonly authenticatesBlocks?: boolean;
  /** For a class of the user's. True: with `encrypts` in its context, `store` encrypts blocks, and `load` demands it. */
  readonly encryptsBlocks?: boolean;

  /**
   * Parallel to `keys`: whether the block is stored. Undefined = not known, because the call for that key failed or the
   * signal was aborted before its answer. The answer is cheap and may be wrong: only `load` verifies. A key that fails
   * never fails the look-up. At an abort, it resolves at once with the answers so far. It rejects only if the tier is
   * closed or answers no key. `lookUpEach` does all this for a store that takes one key per call.
   */
  has(keys: readonly BlockKey[], signal: AbortSignal): Promise<LookupAnswers>;

  /**
   * Fills `into` (one block) in place. Undefined = `into` has the verified block; a reason = the content of `into` is
   * undefined. The promise settles only when nothing writes `into` any more (I5). At an abort, the tier stops what it can
   * and waits for the rest.
   */
  load(
    key: BlockKey,
    into: Uint8Array,
    signal: AbortSignal,
    context?: TierContext,
  ): Promise<LoadFailureReason | undefined>;

  /**
   * Stores a copy of `bytes` (one block) atomically: a load gets the whole block or none. Settles only when nothing reads
   * `bytes` any more.
   */
  store(key: BlockKey, bytes: Uint8Array, signal: AbortSignal, context?: TierContext): Promise<StoreAnswer>;

  /** Removes the block. No effect if it is missing. */
  delete(key: BlockKey): Promise<void>;

  /**
   * Removes all blocks of this identity that the filter names, also those that other processes have stored. A store at the same time may
   * be removed or not. At an abort, it rejects and has removed some. Removed blocks are also in `takeEvicted`, as far as the tier lists
   * its blocks. Absent: an administrator can remove only single blocks.
   */
  clear?(filter: ClearFilter, signal: AbortSignal): Promise<TierWork>;

  /** Keys of blocks that were evicted since the last call. */
  takeEvicted(): readonly BlockKey[];

  /** Of a tier that consists of several: what each of the others stored and evicted since the last call. */
  takeChanges?(): readonly PlaceChange[];

  /** Totals since the start, with names of the tier's choice; `tier.<name>` in `engine.stats()`. Called at each step. */
  counters(): Readonly<Record<string, number>>;

  /** Current values, such as stored bytes; `now.<name>` in `engine.stats()`, summed over ranks. */
  levels?(): Readonly<Record<string, number>>;

  /** If the operator wants it: the blocks and bytes of each cache salt by its tag, with a bound of the number of tags. */
  saltLevels?(): Readonly<Record<string, SaltLevels>> | undefined;

  /** The prefixes that the tier does not evict. Absent: it cannot pin. */
  readonly pins?: TierPins;

  /** Waits for calls under way; later ones reject with `tierClosed`. Idempotent. */
  close(): Promise<void>;
}

/** An addition to a connector's context where tiers are wrapped, such as for fault injection. */
export interface TierWrapping {
  /** `TierScheduler` and `TierWorker` call this for their tiers. */
  readonly wrapTier?: (tier: Tier, identity: KvIdentity) => Tier;
}

/** What a tier did with a block that it was given. */
export type StoreAnswer =
  | 'stored'
  /** Equal keys mean equal bytes: nothing was written. */
  | 'alreadyStored'
  /** The tier is full, and it can evict no block. */
  | 'full';

/** The request and block of a call, for logs and fault injection. The answer must not depend on these. */
export interface TierContext {
  readonly requestId?: RequestId;
  /** The block index in the request's block table. */
  readonly index?: number;
  /**
   * Of a store: the CRC32 of the block when it left the pool. The tier writes it into the header and computes none, so
   * that loads detect a change of the block in host memory before this store.
   */
  readonly payloadCrc?: number | undefined;
  /**
   * Of the cache salt of the request. A store writes it into the header (`BlockCodec`). Of a load: for a tier that keeps the block
   * elsewhere, too.
   */
  readonly saltTag?: SaltTag | undefined;
  /** Where the block was found (`FoundBlock.place`), for a tier that consists of several. */
  readonly place?: string;
  /** Called by a tier that consists of several, with the name of the tier that gave the block. */
  servedBy?(place: string): void;
}

/**
 * A tier whose stored bytes can be changed, for fault injection and tests: the tier's own verification must detect the
 * change.
 */
export interface TamperableTier extends Tier {
  /** Replaces the stored block, header and payload; false if it is missing. */
  tamper(key: BlockKey, corrupt: (stored: Uint8Array) => Uint8Array): Promise<boolean>;
}

/** A tier with threads of its own that can be made to block in a system call, for fault injection and tests. */
export interface HangableTier extends Tier {
  /**
   * A thread for this kind of call reads from the FIFO, which blocks the thread until the FIFO has data. Resolves when the
   * read has returned. Rejects like every call: at an abort, after which the thread may still be blocked, and if too many
   * threads are blocked.
   */
  hang(on: TierCall, fifo: string, signal: AbortSignal): Promise<void>;
}

/** The calls of a tier that faults can be injected into. */
export type TierCall = 'has' | 'load' | 'store';

export const isHangable = (tier: Tier): tier is HangableTier => 'hang' in tier && typeof tier.hang === 'function';

import type { RequestId } from '../../core/ids.ts';
import type { BlockKey } from '../block-key.ts';
import type { KvIdentity } from '../connector.ts';
import type { MissReason } from '../reasons.ts';
import type { LookupAnswers } from './look-up.ts';

/**
 * A place that keeps blocks: memory, a disk, a server. Much smaller than a connector, and what most people will write.
 *
 * Any number of calls may be under way at once, also for one key. Data that is missing or wrong is an answer; a promise
 * rejects only when the place itself fails (it is down, its disk has errors) or, but for `has`, when the signal was aborted,
 * and then with the signal's reason. Nothing that was stored is ever changed: equal keys mean equal bytes.
 */
export interface Tier {
  /** For logs, counters and events; also the `place` of found blocks. */
  readonly name: string;

  /**
   * Parallel to `keys`: whether a load is worth trying; undefined = not known, because the call for that key failed or the
   * signal was aborted before its answer. Cheap, and a guess: only `load` verifies. Each key is answered by itself: a key
   * that fails never fails the look-up. An abort resolves at once with what is known so far. It rejects only when the
   * tier is closed or wholly down. `lookUpEach` does all this for a tier that asks one key at a time.
   */
  has(keys: readonly BlockKey[], signal: AbortSignal): Promise<LookupAnswers>;

  /**
   * Fills `into` (one page) in place. Undefined = `into` holds the block, verified; a reason = it does not, and its content
   * means nothing. However it ends, it settles only when nothing writes `into` any more (I5): an abort asks to hurry, and
   * what cannot be stopped is waited for.
   */
  load(key: BlockKey, into: Uint8Array, signal: AbortSignal, context?: TierContext): Promise<MissReason | undefined>;

  /**
   * Keeps a copy of `bytes` (one page), all or nothing: whoever loads sees the whole block or none. Settles only when
   * nothing reads `bytes` any more.
   */
  store(key: BlockKey, bytes: Uint8Array, signal: AbortSignal, context?: TierContext): Promise<StoreAnswer>;

  /** Forgets the block; nothing happens when there is none. */
  delete(key: BlockKey): Promise<void>;

  /** Keys that were let go to make room since the last call. */
  takeEvicted(): readonly BlockKey[];

  /** Running totals, under names of the tier's own: `engine.stats()` has them as `tier.<name>`. Cheap: asked at each step. */
  counters(): Readonly<Record<string, number>>;

  /** Values as of now, such as bytes kept: `engine.stats()` has them as `now.<name>`, summed over ranks. */
  levels?(): Readonly<Record<string, number>>;

  /** Waits for calls under way; later ones reject with `tierClosed`. Idempotent. */
  close(): Promise<void>;
}

/** What a connector's context has besides where tiers are wrapped, such as by faults to inject. */
export interface TierWrapping {
  /** `TierScheduler` and `TierWorker` call it for their tiers. */
  readonly wrapTier?: (tier: Tier, identity: KvIdentity) => Tier;
}

export type StoreAnswer =
  | 'stored'
  /** Equal keys mean equal bytes: nothing was written. */
  | 'alreadyStored'
  /** There is no room, and nothing to let go of. */
  | 'full';

/** For whom a call is made; for logs and fault injection, never for the answer. */
export interface TierContext {
  readonly requestId?: RequestId;
  /** Which logical block of the request. */
  readonly index?: number;
}

/**
 * A tier whose stored bytes can be spoilt, as disks and networks do: for fault injection and tests, so that what a fault
 * meets is the real verification.
 */
export interface TamperableTier extends Tier {
  /** Replaces what is stored under the key, header and payload; false when there is nothing. */
  tamper(key: BlockKey, corrupt: (stored: Uint8Array) => Uint8Array): Promise<boolean>;
}

/** A tier whose reads can be made to block in the system, as a store does that no longer answers: for fault injection and tests. */
export interface HangableTier extends Tier {
  /** From now on, reads of this block do not return. False: this tier has no such block, or the system cannot do it. */
  hang(key: BlockKey): boolean;
  /**
   * Undoes `hang`: the block is whole again. Reads that have waited fail. Nothing happens to a block that does not hang.
   * `delete`, evictions and `close` mend, too.
   */
  mend(key: BlockKey): void;
}

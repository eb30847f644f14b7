/**
 * Why a stored block is not used. Any uncertainty is a miss with one of these reasons, never a wrong hit; they are
 * counted by reason, so that an operator sees a full disk, a foreign directory and bit rot as three different things.
 */
export const missReasons = [
  /** Nothing is stored under this key. */
  'absent',
  /** Shorter than its header says, or too short for a header. */
  'truncated',
  /** Longer than its header says. */
  'oversized',
  /** Does not begin as a stored block does. */
  'notABlock',
  /** Written in another version of the format. */
  'formatVersion',
  /** The header's own checksum does not match. */
  'headerCorrupt',
  'wrongModel',
  'wrongDtype',
  'wrongBlockSize',
  'wrongGroup',
  'wrongLayers',
  'wrongRank',
  /** A whole and sound block, but another one: a renamed file, a store that mixes up its keys. */
  'wrongKey',
  /** The header promises another number of bytes than this pool's pages have. */
  'wrongLength',
  /** The bytes' checksum does not match. */
  'corrupt',
] as const;
export type MissReason = (typeof missReasons)[number];

/** Why a block that was promised did not arrive. */
export type LoadFailureReason =
  | MissReason
  /** The deadline passed. The transfer may still be writing into the page. */
  | 'timedOut'
  /** The engine took the order back. */
  | 'cancelled'
  /** The store answered with an error. */
  | 'storeFailed'
  /** The circuit breaker is open: the store was not asked. */
  | 'storeDown'
  /** More loads wait than the connector takes. */
  | 'queueFull'
  /** The connector is shutting down. */
  | 'closed'
  /** The worker that loaded it has died. This says nothing about the store. */
  | 'workerDied'
  /** The worker never reported: the engine's own deadline passed. */
  | 'lost';

/** Why a block was not stored. Never an error to anyone: it is only a future miss (I9). */
export type SaveFailureReason =
  /** More blocks wait to be written than the write-behind queue takes: dropped before decoding would have to wait. */
  | 'queueFull'
  /** The store has no room, and nothing of ours to make some. */
  | 'storeFull'
  | 'storeFailed'
  | 'storeDown'
  | 'timedOut'
  | 'cancelled'
  | 'closed'
  | 'lost';

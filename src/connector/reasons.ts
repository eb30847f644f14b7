/**
 * Why a stored block is not used. A block that cannot be verified is a miss with one of these reasons. Misses are counted
 * by reason, so that an operator can tell a missing block, another model's folder and a damaged disk apart.
 */
export const missReasons = [
  /** Nothing is stored under this key. */
  'missing',
  /** Shorter than the length in its header, or too short for a header. */
  'truncated',
  /** Longer than the length in its header. */
  'oversized',
  /** Does not begin with the magic number of a stored block. */
  'notABlock',
  /** Written in another version of the format. */
  'formatVersion',
  /** The checksum of the header does not match. */
  'headerCorrupt',
  'wrongModel',
  'wrongDtype',
  'wrongBlockSize',
  'wrongGroup',
  'wrongLayers',
  'wrongRank',
  /** A whole block with another key: a renamed file, or a store that confuses its keys. */
  'wrongKey',
  /** The header has another number of bytes than a block of this pool. */
  'wrongLength',
  /** The checksum of the payload does not match. */
  'corrupt',
  /** Written without a key, and this engine has keys (`--kv-transfer-key-file`). */
  'macMissing',
  /** Written with a key that this engine does not have. */
  'macKeyUnknown',
  /** The message authentication code does not match: written or changed by a process without the key. */
  'macWrong',
  /** Stored without encryption, and this engine encrypts (`--kv-transfer-encrypt`). */
  'notEncrypted',
  /** Encrypted with a key that this engine does not have. */
  'encryptionKeyUnknown',
  /** Encrypted, and damaged, changed or made without the key. */
  'decryptionFailed',
] as const;
/** Why a tier does not have a block that it was asked for: it is missing, or its stored bytes did not pass a check. */
export type MissReason = (typeof missReasons)[number];

/** Why a promised block was not loaded. */
export type LoadFailureReason =
  | MissReason
  /** The deadline passed. The transfer may still write the block. */
  | 'timedOut'
  /** The engine cancelled the load. */
  | 'cancelled'
  /** The store answered with an error. */
  | 'storeFailed'
  /** The circuit breaker is open: the store was not called. */
  | 'storeDown'
  /** The connector's queue of loads is full. */
  | 'queueFull'
  /** The connector is shutting down. */
  | 'closed'
  /** The worker that loaded the block died. This says nothing about the store. */
  | 'workerDied'
  /** The worker did not report the load before the engine's deadline. The transfer may still write the block. */
  | 'notReported';

/** Why a block was not stored. This is never an error for a client, only a future miss (I9). */
export type SaveFailureReason =
  /** The queue of blocks to write is full. The block is dropped, so that decoding does not wait. */
  | 'queueFull'
  /** The store is full, and this engine can evict no block from it. */
  | 'storeFull'
  | 'storeFailed'
  | 'storeDown'
  | 'timedOut'
  | 'cancelled'
  | 'closed'
  /** The worker that stored the block died. */
  | 'workerDied';

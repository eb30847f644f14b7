import type { MemoryRange } from '../../../base/native-memory.ts';
import type { BlockKey } from '../../block-key.ts';
import type { KvIdentity, MacKeys } from '../../connector.ts';
import type { MissReason } from '../../reasons.ts';
import type { SaltTag } from '../../salt-tag.ts';
import type { ClearFilter } from '../../tier-orders.ts';
import type { TierCall } from '../tier.ts';
import type { OtherBlocks, OthersLeft } from './other-folders.ts';

/** The setup of the threads of a disk tier. */
export interface DiskThreadSetup {
  readonly root: string;
  readonly identity: KvIdentity;
  readonly fsync: boolean;
  /** A file expires so long after its date. Absent: never. */
  readonly ttlMs: number | undefined;
  /** A library with `kvasir_crc32`; absent: Node's. */
  readonly crc32Library: string | undefined;
  /** Absent: blocks have no MAC. */
  readonly macKeys: MacKeys | undefined;
  readonly encrypts: boolean;
  /** Memory of a `CallCell`. */
  readonly cell: SharedArrayBuffer;
}

/** One call is a whole operation on a block, so that each block takes one message. */
export type DiskCall =
  | { readonly kind: 'checkRoot' }
  | { readonly kind: 'prepare'; readonly nowMs: number; readonly isDirect: boolean }
  | { readonly kind: 'neighbours' }
  | {
      readonly kind: 'has';
      readonly keys: readonly BlockKey[];
      readonly answers: SharedArrayBuffer;
      readonly nowMs: number;
    }
  | {
      readonly kind: 'load';
      readonly key: BlockKey;
      readonly into: MemoryRange;
      readonly nowMs: number;
      readonly isDirect: boolean;
    }
  | {
      readonly kind: 'store';
      readonly key: BlockKey;
      readonly bytes: MemoryRange;
      readonly payloadCrc: number | undefined;
      readonly saltTag: SaltTag | undefined;
      readonly nowMs: number;
      readonly isDirect: boolean;
      /** Blocks to remove first, so that the new block has room. None is removed if the block is stored already. */
      readonly victims: readonly BlockKey[];
    }
  | { readonly kind: 'remove'; readonly keys: readonly BlockKey[] }
  | { readonly kind: 'clear'; readonly filter: ClearFilter }
  | { readonly kind: 'scan'; readonly nowMs: number }
  | { readonly kind: 'saltTags'; readonly keys: readonly BlockKey[] }
  | { readonly kind: 'countOthers' }
  | { readonly kind: 'boundOthers'; readonly maxBytes: number; readonly nowMs: number }
  | { readonly kind: 'read'; readonly key: BlockKey }
  | { readonly kind: 'overwrite'; readonly key: BlockKey; readonly bytes: Uint8Array }
  /** For fault injection: a thread for this kind of call blocks. */
  | { readonly kind: 'hang'; readonly on: TierCall; readonly fifo: string };

export type DiskCallOf<Kind extends DiskCall['kind']> = Extract<DiskCall, { readonly kind: Kind }>;

/** The answers by kind of call. */
export interface DiskAnswers {
  readonly checkRoot: undefined;
  /** `isDirect`: wanted and possible. `events`: for the operator. */
  readonly prepare: { readonly hasBlocks: boolean; readonly isDirect: boolean; readonly events: readonly string[] };
  /** Events for the operator. */
  readonly neighbours: readonly string[];
  /** The keys that failed. The answers are in the shared memory. */
  readonly has: readonly (readonly [key: BlockKey, code: string])[];
  readonly load: MissReason | 'loaded';
  readonly store: 'stored' | 'alreadyStored';
  readonly remove: undefined;
  readonly clear: ClearedFiles;
  readonly scan: {
    readonly found: readonly { readonly key: BlockKey; readonly bytes: number }[];
    /** They were removed. */
    readonly expired: readonly BlockKey[];
  };
  /** Parallel to the keys. */
  readonly saltTags: readonly (SaltTag | undefined)[];
  readonly countOthers: OtherBlocks;
  readonly boundOthers: OthersLeft;
  readonly read: Uint8Array | undefined;
  readonly overwrite: undefined;
  readonly hang: undefined;
}
/** The files that were removed, and how many could not be read or removed. */
export interface ClearedFiles {
  readonly removed: readonly { readonly key: BlockKey; readonly bytes: number }[];
  readonly failed: number;
}

export type DiskAnswer = DiskAnswers[keyof DiskAnswers];

/**
 * The answers of a running look-up: one state per key, and the index of the next key. Threads take keys one by one, so
 * after a call that never returns, only its own key is unknown. The answers can be read at any time.
 */
export class SharedAnswers {
  readonly memory: SharedArrayBuffer;
  readonly #next: Int32Array;
  readonly #states: Uint8Array;

  constructor(memory: SharedArrayBuffer) {
    this.memory = memory;
    this.#next = new Int32Array(memory, 0, 1);
    this.#states = new Uint8Array(memory, 4);
  }

  static for(keyCount: number): SharedAnswers {
    return new SharedAnswers(new SharedArrayBuffer(4 + keyCount));
  }

  /** The index of a key that no call has taken yet; undefined if there is none. */
  take(): number | undefined {
    const index = Atomics.add(this.#next, 0, 1);
    return index < this.#states.length ? index : undefined;
  }

  answer(index: number, isStored: boolean): void {
    Atomics.store(this.#states, index, isStored ? states.stored : states.missing);
  }

  /** The current answers; undefined = not known. */
  all(): (boolean | undefined)[] {
    return Array.from(this.#states, (state) => (state === states.unknown ? undefined : state === states.stored));
  }
}

const states = { unknown: 0, stored: 1, missing: 2 } as const;

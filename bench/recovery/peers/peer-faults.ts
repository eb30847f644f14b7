import { copyFile, rmdir, unlink } from 'node:fs/promises';
import { dirname } from 'node:path';
import type { Prng } from '../../../src/base/prng.ts';
import { cutShort, type Damage, flipBit, flipBitsOfTail, removeFile, zeroTail } from '../damage.ts';
import type { ModelChange } from './changed-model.ts';
import type { FaultKind, Setup } from './subject.ts';

/** A fault between the prefill in one process and the decode in another. */
export interface PeerFault {
  readonly name: string;
  /** Absent if every program can have it. */
  readonly kind?: FaultKind;
  /** Damages files in a part of the store's units. */
  readonly damage?: { readonly how: FileDamage; readonly files: 'all' | 'one' };
  /** What differs in the process that loads. */
  readonly loading?: Loading;
  /** The process that computes is killed after the first token. */
  readonly isKilled?: boolean;
  /** In one process, the adapter's scale changes between two equal requests. */
  readonly isRescaled?: boolean;
}

export interface Loading extends Pick<Setup, 'lateMs' | 'lostRequests' | 'policy'> {
  readonly change?: ModelChange;
  readonly hasAdapter?: boolean;
}

/** `other`: the same file of another unit. */
export type FileDamage = (path: string, prng: Prng, other: string) => Promise<void>;

const damaged = (how: Damage, files: 'all' | 'one' = 'all'): Pick<PeerFault, 'damage'> => ({
  damage: { how: (path, prng) => how({ path }, prng), files },
});

/** The folder goes with its last file. */
async function removeWithFolder(path: string): Promise<void> {
  await unlink(path);
  await rmdir(dirname(path)).catch(() => undefined);
}

export const undisturbed: PeerFault = { name: 'none' };

export const peerFaultsOf = (lateMs: number, lostRequests: number): readonly PeerFault[] => [
  undisturbed,
  { name: 'missing', ...damaged(removeFile) },
  { name: 'missing with their folder', kind: 'folders', damage: { how: removeWithFolder, files: 'all' } },
  { name: 'one file of several missing', kind: 'folders', ...damaged(removeFile, 'one') },
  { name: 'truncated', ...damaged(cutShort, 'one') },
  { name: 'one bit flip', ...damaged(flipBit, 'one') },
  { name: 'a bit flip in each 4 KiB', ...damaged(flipBitsOfTail) },
  { name: 'zeros', ...damaged(zeroTail) },
  { name: "another prompt's KV", damage: { how: (path, _, other) => copyFile(other, path), files: 'all' } },
  { name: `late (${lateMs} ms)`, kind: 'late', loading: { lateMs } },
  { name: 'lost and reported', kind: 'lost', loading: { lostRequests } },
  { name: 'lost and reported, policy recompute', kind: 'lost', loading: { lostRequests, policy: 'recompute' } },
  { name: 'the process that computes is killed', isKilled: true },
  { name: 'stored by other weights', loading: { change: 'other weights' } },
  { name: 'stored with another rotary base', loading: { change: 'other rotary base' } },
  { name: 'stored without the adapter', kind: 'adapter', loading: { hasAdapter: true } },
  { name: "an adapter's scale changes", kind: 'adapter', isRescaled: true },
];

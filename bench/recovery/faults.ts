import { execFile } from 'node:child_process';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import type { JsonObject } from '../../src/base/json.ts';
import { makeFolders } from '../../src/base/make-folders.ts';
import type { Prng } from '../../src/base/prng.ts';
import type { BlockStore, StoredBlock } from '../../src/cli/proof/stored-blocks.ts';
import { cutShort, type Damage, endHang, flipBit, makeHang, removeFile } from './damage.ts';
import type { RestartableServer } from './restartable-server.ts';

const run = promisify(execFile);

/** The objects that a fault may use while requests run. */
export interface Scene {
  readonly store: BlockStore;
  readonly prng: Prng;
  readonly signal: AbortSignal;
  readonly server: RestartableServer;
  /** Resolves when the clients have received this part of all tokens. */
  whenGenerated(part: number): Promise<void>;
  /** Must be called when a rank's memory is lost. The tokens received before limit the tokens to recompute. */
  memoryInvalidated(): void;
}

/** The blocks that are missing in a run, as far as known outside the engine. */
export type Loss =
  /** The damaged blocks. */
  | 'damaged'
  | 'nothing'
  | 'everything'
  /** All but the recorded blocks, because a hung read also delays valid blocks. `CaseRow.givenUpTokens` is the cost of the latter. */
  | 'recorded'
  /** The blocks in the memory of the ranks; the store has every full block. */
  | 'memory';

export interface Fault {
  readonly name: string;
  readonly loss: Loss;
  /** Damages a part of the prompts' stored blocks before the server starts. */
  readonly damage?: { readonly how: Damage; readonly part: number };
  /** Undoes the damage when the requests have ended. */
  mend?(store: BlockStore, damaged: readonly StoredBlock[]): Promise<void>;
  /** A rule of fault injection, for faults that the system cannot produce. */
  readonly injection?: JsonObject;
  /** The store is empty, in a file system with room for this part of the bytes that the workload stores. */
  readonly diskPart?: number;
  /** Short requests arrive until the fault is over. */
  readonly hasTraffic?: boolean;
  /** Ranks must be processes, also a single one. */
  readonly needsRankProcess?: boolean;
  /** Acts while requests run. Resolves when the fault is over. */
  inject?(scene: Scene): Promise<void>;
}

export interface FaultSettings {
  /** The part of the stored blocks that a fault damages. */
  readonly part: number;
  readonly slowMs: number;
  readonly downSeconds: number;
}

export const undisturbed: Fault = { name: 'none', loss: 'nothing' };

export const faultsOf = ({ part, slowMs, downSeconds }: FaultSettings): readonly Fault[] => [
  { name: 'missing', loss: 'damaged', damage: { how: removeFile, part } },
  { name: 'bit flip', loss: 'damaged', damage: { how: flipBit, part } },
  { name: 'truncated', loss: 'damaged', damage: { how: cutShort, part } },
  {
    name: `slow (${slowMs} ms)`,
    loss: 'nothing',
    injection: { fault: 'slow', probability: part, delay_ms: slowMs },
  },
  {
    name: 'hung syscall',
    loss: 'recorded',
    damage: { how: makeHang, part },
    mend: async (_, damaged) => {
      for (const block of damaged) await endHang(block);
    },
  },
  {
    name: `store down ${downSeconds} s`,
    loss: 'everything',
    hasTraffic: true,
    inject: async ({ store, signal }) => {
      await store.takeDown();
      try {
        await sleep(downSeconds * 1000, undefined, { signal });
      } finally {
        await store.bringBack();
      }
    },
  },
  { name: 'disk full', loss: 'everything', diskPart: 0.25 },
  {
    name: 'worker killed',
    loss: 'memory',
    needsRankProcess: true,
    inject: (scene) => signalRank(scene, 'SIGKILL'),
  },
  {
    name: 'worker stopped',
    loss: 'memory',
    needsRankProcess: true,
    inject: (scene) => signalRank(scene, 'SIGSTOP'),
  },
  {
    name: 'server killed',
    loss: 'nothing',
    inject: async ({ whenGenerated, server, prng }) => {
      await whenGenerated(prng.unit() / 2);
      await server.replace();
    },
  },
];

async function signalRank(
  { whenGenerated, server, prng, memoryInvalidated }: Scene,
  signal: NodeJS.Signals,
): Promise<void> {
  const ranks = await server.rankProcessIds();
  await whenGenerated(prng.unit() / 2);
  process.kill(prng.pick(ranks), signal);
  memoryInvalidated();
}

/** Mounts a file system in memory; false if this process may not mount one. */
export async function mountSmallDisk(path: string, bytes: number): Promise<boolean> {
  await makeFolders(path);
  try {
    await run('mount', ['-t', 'tmpfs', '-o', `size=${Math.ceil(bytes / 4096) * 4096}`, 'tmpfs', path]);
    return true;
  } catch {
    return false;
  }
}

export async function unmount(path: string): Promise<void> {
  await run('umount', ['-l', path]);
}

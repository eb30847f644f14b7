import type { JsonObject } from '../../src/base/json.ts';
import type { OwnTierContext } from '../../src/connector/offloading/own-tier.ts';
import { DiskTier } from '../../src/connector/tier/disk/tier-disk.ts';
import type { Tier } from '../../src/connector/tier/tier.ts';
import { replacing } from './replacing.ts';

interface Gate {
  isOpen: boolean;
  /** Stores that wait. */
  readonly waiting: (() => void)[];
}

/** One per process, also if the module is loaded twice. */
const gates = globalThis as unknown as { kvasirGate?: Gate };
gates.kvasirGate ??= { isOpen: true, waiting: [] };
const gate = gates.kvasirGate;

/** From now on, no store of a `GatedDisk` writes, as if the thread that writes were stopped. */
export function closeGate(): void {
  gate.isOpen = false;
}

export function openGate(): void {
  gate.isOpen = true;
  for (const go of gate.waiting.splice(0)) go();
}

export const waitingStores = (): number => gate.waiting.length;

/** A disk tier whose stores wait while the gate is closed. They ignore the abort at their deadline. */
export const GatedDisk = {
  async open({ folder, max_bytes }: JsonObject, { name, identity, crc32 }: OwnTierContext): Promise<Tier> {
    const disk = await DiskTier.open({ root: `${folder}`, identity, maxBytes: Number(max_bytes), name, crc32 });
    return replacing<Tier>(disk, {
      store: async (key, bytes, signal, context) => {
        if (!gate.isOpen) await new Promise<void>((go) => gate.waiting.push(go));
        return disk.store(key, bytes, signal, context);
      },
    });
  },
};

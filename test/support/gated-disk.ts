import type { JsonObject } from '../../src/base/json.ts';
import type { OwnTierContext } from '../../src/connector/offloading/own-tier.ts';
import { DiskTier } from '../../src/connector/tier/disk/tier-disk.ts';
import type { Tier } from '../../src/connector/tier/tier.ts';
import { replacing } from './replacing.ts';

interface Gate {
  isOpen: boolean;
  /** Stores and clears that wait. */
  readonly waiting: (() => void)[];
}

/** One per process, also if the module is loaded twice. */
const gates = globalThis as unknown as { kvasirGate?: Gate };
gates.kvasirGate ??= { isOpen: true, waiting: [] };
const gate = gates.kvasirGate;

/** From now on, no store of a `GatedDisk` writes and no clear removes, as if the thread that does it were stopped. */
export function closeGate(): void {
  gate.isOpen = false;
}

export function openGate(): void {
  gate.isOpen = true;
  for (const go of gate.waiting.splice(0)) go();
}

export const waitingCalls = (): number => gate.waiting.length;

const pass = async (): Promise<void> => {
  if (!gate.isOpen) await new Promise<void>((go) => gate.waiting.push(go));
};

/** A disk tier whose stores and clears wait while the gate is closed. They ignore the abort at their deadline. */
export const GatedDisk = {
  async open({ folder, max_bytes }: JsonObject, { name, identity, crc32 }: OwnTierContext): Promise<Tier> {
    const disk = await DiskTier.open({ root: `${folder}`, identity, maxBytes: Number(max_bytes), name, crc32 });
    return replacing<Tier>(disk, {
      store: async (key, bytes, signal, context) => {
        await pass();
        return disk.store(key, bytes, signal, context);
      },
      clear: async (filter, signal) => {
        await pass();
        return disk.clear(filter, signal);
      },
    });
  },
};

import { type BlockIndex, NULL_BLOCK } from '../core/ids.ts';
import type { KvGroupSpec } from '../core/kv-spec.ts';
import { blockAt, type StepPlan } from '../core/step.ts';
import type { KvMemory } from './kv-memory.ts';

/**
 * Some groups have fewer layers than a block has places. This fills the unused places with zeros when a step writes the
 * first token of a block. So equal KV has equal bytes and checksums wherever it is stored. Host memory only.
 */
export function clearUnusedPlaces({ sequences }: StepPlan, memory: KvMemory, groups: readonly KvGroupSpec[]): void {
  for (const [group, { layers, blockSize }] of groups.entries()) {
    if (layers.length === memory.layout.layerCount) continue;
    const used = (memory.blockBytes / memory.layout.layerCount) * layers.length;
    for (const { spans, blockTables, writeTables = blockTables } of sequences) {
      for (const { start, end } of spans) {
        for (let index = Math.ceil(start / blockSize); index * blockSize < end; index++) {
          const block = blockAt(writeTables[group]!, index as BlockIndex);
          if (block !== NULL_BLOCK) memory.bytesOf(block).fill(0, used);
        }
      }
    }
  }
}

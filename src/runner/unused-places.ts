import type { BlockId } from '../core/ids.ts';
import { type BlockIndex, NULL_BLOCK } from '../core/ids.ts';
import type { KvGroupSpec } from '../core/kv-spec.ts';
import { blockAt, type StepPlan } from '../core/step.ts';
import type { Batch } from './batch.ts';
import type { KvMemory } from './kv-memory.ts';

/** A group of a stage, and the bytes of a block that it uses. */
export type UsedGroup = KvGroupSpec & { readonly usedBytes: number };

/**
 * Some groups do not use all bytes of a block. This fills the unused bytes with zeros when a step writes the first token
 * of a block, or a state to a block that did not have the request's state before. So equal KV has equal bytes and
 * checksums wherever it is stored.
 *
 * GPUs read the places of a block after its last token too, and multiply them by 0. There a block that the step begins and does not fill
 * is filled with zeros whole: what another group or request left could be read as infinite or not a number.
 */
export function clearUnusedPlaces(
  { sequences }: StepPlan,
  { segments }: Pick<Batch, 'segments'>,
  memory: KvMemory,
  groups: readonly UsedGroup[],
): void {
  const clear = (block: BlockId, from: number): void => {
    if (block !== NULL_BLOCK && from < memory.blockBytes) memory.clearFrom(block, from);
  };
  for (let group = 0; group < groups.length; group++) {
    const { kind, blockSize, usedBytes } = groups[group]!;
    if (kind === 'state') {
      for (const { read, write } of segments[group]!) if (read !== write) clear(write, usedBytes);
      continue;
    }
    if (usedBytes === memory.blockBytes && memory.isHost) continue;
    for (const { spans, blockTables, writeTables = blockTables } of sequences) {
      for (const { start, end } of spans) {
        for (let index = Math.ceil(start / blockSize); index * blockSize < end; index++) {
          const isFilled = (index + 1) * blockSize <= end;
          clear(blockAt(writeTables[group]!, index as BlockIndex), memory.isHost || isFilled ? usedBytes : 0);
        }
      }
    }
  }
}

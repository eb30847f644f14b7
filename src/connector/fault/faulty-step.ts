import type { BlockId } from '../../core/ids.ts';
import type { BlockKey } from '../block-key.ts';
import type { ConnectorMetadata, LoadJob, SaveJob, TransferId } from '../connector.ts';
import type { FaultDice, FaultRule } from './fault-rules.ts';

/** A block of a load or save that a rule selects. */
export interface FaultyBlock {
  readonly key: BlockKey;
  readonly block: BlockId;
  readonly rule: FaultRule;
}

/** A load or save with such blocks. */
export interface FaultyTransfer<Job extends LoadJob | SaveJob> {
  readonly job: Job;
  readonly faulty: readonly FaultyBlock[];
  /** The connector inside has blocks of it too. */
  readonly isShared: boolean;
}

/** The orders of a step, divided between the connector inside and the faults. */
export interface FaultyStep {
  readonly inner: ConnectorMetadata;
  readonly loads: readonly FaultyTransfer<LoadJob>[];
  readonly saves: readonly FaultyTransfer<SaveJob>[];
  /** Transfers that are reported twice. */
  readonly duplicates: readonly TransferId[];
}

/** Faults that only take time: the connector inside moves the block too. */
export const takesTime = ({ fault }: FaultRule): boolean => fault === 'slow' || fault === 'late';

/** Draws the faults of a step. `hasKv`: whether this rank has KV in a block. */
export function drawFaults(
  metadata: ConnectorMetadata,
  dice: FaultDice,
  hasKv: (key: BlockKey) => boolean,
): FaultyStep {
  const duplicates: TransferId[] = [];
  function split<Block extends { readonly key: BlockKey; readonly block: BlockId }>(
    transfer: TransferId,
    blocks: readonly Block[],
    draw: (block: Block) => FaultRule | undefined,
  ): { readonly left: readonly Block[]; readonly faulty: readonly FaultyBlock[] } {
    const left: Block[] = [];
    const faulty: FaultyBlock[] = [];
    for (const found of blocks) {
      const rule = hasKv(found.key) ? draw(found) : undefined;
      if (rule?.fault === 'duplicate') duplicates.push(transfer);
      else if (rule !== undefined) faulty.push({ key: found.key, block: found.block, rule });
      if (rule === undefined || rule.fault === 'duplicate' || takesTime(rule)) left.push(found);
    }
    return { left, faulty };
  }

  const loads: LoadJob[] = [];
  const faultyLoads: FaultyTransfer<LoadJob>[] = [];
  for (const job of metadata.loads) {
    const { transfer, requestId } = job;
    const draw = ({ key, index }: LoadJob['blocks'][number]) => dice.draw('load', key, { requestId, index })?.rule;
    const { left, faulty } = split(transfer, job.blocks, draw);
    if (faulty.length > 0) faultyLoads.push({ job, faulty, isShared: left.length > 0 });
    if (faulty.length === 0) loads.push(job);
    else if (left.length > 0) loads.push({ ...job, blocks: left });
  }
  const saves: SaveJob[] = [];
  const faultySaves: FaultyTransfer<SaveJob>[] = [];
  for (const job of metadata.saves) {
    const { left, faulty } = split(job.transfer, job.blocks, ({ key }) => dice.draw('store', key, undefined)?.rule);
    if (faulty.length > 0) faultySaves.push({ job, faulty, isShared: left.length > 0 });
    if (faulty.length === 0) saves.push(job);
    else if (left.length > 0) saves.push({ ...job, blocks: left });
  }
  return { inner: { ...metadata, loads, saves }, loads: faultyLoads, saves: faultySaves, duplicates };
}

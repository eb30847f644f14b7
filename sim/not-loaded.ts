import type { ConnectorOutput } from '../src/connector/connector.ts';
import type { BlockId } from '../src/core/ids.ts';
import type { ExecutedStep, ScheduledStep } from '../src/scheduler/contract.ts';

/** Blocks of the step's sync loads that failed or are late: tokens that depend on them do not count. */
export function notLoaded(
  { connectorMetadata }: ScheduledStep,
  { connectorOutputs = [] }: ExecutedStep,
): readonly BlockId[] {
  if (connectorMetadata === undefined || connectorMetadata.loads.length === 0) return [];
  const outputs = connectorOutputs.filter((report): report is ConnectorOutput => typeof report === 'object');
  const isReported = outputs.length === connectorOutputs.length;
  const notFilled: BlockId[] = [];
  for (const { transfer, mode, blocks } of connectorMetadata.loads) {
    if (mode !== 'sync') continue;
    const isDecided = isReported && outputs.every(({ finishedRecving }) => finishedRecving.includes(transfer));
    const hasFailed = ({ failedRecving, loadFailures }: ConnectorOutput, block: BlockId): boolean =>
      failedRecving.includes(transfer) || loadFailures.some((one) => one.transfer === transfer && one.block === block);
    for (const { block } of blocks)
      if (!isDecided || outputs.some((output) => hasFailed(output, block))) notFilled.push(block);
  }
  return notFilled;
}

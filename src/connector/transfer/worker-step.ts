import type { BlockLoadFailure, ConnectorMetadata, ConnectorOutput, WorkerConnector } from '../connector.ts';

/**
 * One step of a rank with a connector, with the calls in the order of the contract. `forward` computes the step without
 * the requests that have a failed block. It is undefined for a step without tokens, which still starts and reports
 * transfers. The rank's output has all fields of `TransferReport`.
 */
export async function stepWithConnector<Result>(
  side: WorkerConnector,
  metadata: ConnectorMetadata,
  layerCount: number,
  forward: ((failures: readonly BlockLoadFailure[]) => Promise<Result>) | undefined,
): Promise<{ readonly result: Result | undefined; readonly output: ConnectorOutput }> {
  await side.handlePreemptions(metadata);
  side.bindConnectorMetadata(metadata);
  try {
    side.startLoadKv();
    const failures: BlockLoadFailure[] = [];
    let result: Result | undefined;
    if (forward !== undefined) {
      for (let layer = 0; layer < layerCount; layer++) await side.waitForLayerLoad(layer);
      failures.push(...side.getBlockIdsWithLoadErrors());
      result = await forward(failures);
      for (let layer = 0; layer < layerCount; layer++) side.saveKvLayer(layer);
      await side.waitForSave();
    }
    const report = side.getFinished();
    failures.push(...side.getBlockIdsWithLoadErrors());
    return { result, output: Object.freeze({ ...report, loadFailures: failures }) };
  } finally {
    side.clearConnectorMetadata();
  }
}

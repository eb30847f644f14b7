import type {
  BlockLoadFailure,
  ConnectorMetadata,
  ConnectorOutput,
  TransferReport,
  WorkerConnector,
} from '../connector.ts';

/**
 * One step of a rank with a connector: the order of calls that the contract promises, as code. `forward` computes the
 * step without the requests that have one of the pages that failed; it is undefined for a step without tokens, which
 * still moves transfers. Everything of `TransferReport` becomes the rank's output.
 */
export async function stepWithConnector<Result>(
  half: WorkerConnector,
  metadata: ConnectorMetadata,
  layerCount: number,
  forward: ((failures: readonly BlockLoadFailure[]) => Promise<Result>) | undefined,
): Promise<{ readonly result: Result | undefined; readonly output: ConnectorOutput }> {
  half.handlePreemptions(metadata);
  half.bindConnectorMetadata(metadata);
  try {
    half.startLoadKv();
    const failures: BlockLoadFailure[] = [];
    let result: Result | undefined;
    if (forward !== undefined) {
      for (let layer = 0; layer < layerCount; layer++) await half.waitForLayerLoad(layer);
      failures.push(...half.getBlockIdsWithLoadErrors());
      result = await forward(failures);
      for (let layer = 0; layer < layerCount; layer++) half.saveKvLayer(layer);
      await half.waitForSave();
    }
    const report = half.getFinished();
    failures.push(...half.getBlockIdsWithLoadErrors());
    return { result, output: outputOf(report, failures) };
  } finally {
    half.clearConnectorMetadata();
  }
}

function outputOf(report: TransferReport, loadFailures: readonly BlockLoadFailure[]): ConnectorOutput {
  return Object.freeze({ ...report, loadFailures });
}

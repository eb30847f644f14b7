import type { Clock } from '../base/clock.ts';
import type { BlockId, RequestId, StepId } from '../core/ids.ts';
import type { BlockKey } from './block-key.ts';
import {
  type ConnectorOutput,
  type ConnectorPlan,
  type ConnectorRequest,
  emptyOutput,
  type LoadBlock,
  type LoadJob,
  type SchedulerConnector,
  type ValidBlock,
} from './connector.ts';
import { TransferLedger } from './transfer/transfer-ledger.ts';

/** The engine's ledger beside the scheduler side of a connector, for tests that report what one rank reports. */
export function ledgerBeside(scheduler: SchedulerConnector, clock: Clock) {
  const ledger = new TransferLedger(clock, { pin: () => undefined, release: () => undefined });
  return {
    /** The connector plans a step, and its saves are ordered. */
    step(newlyValid: readonly ValidBlock[], validBlock: (key: BlockKey) => BlockId | undefined): ConnectorPlan {
      const plan = scheduler.buildConnectorMeta({
        stepId: 1 as StepId,
        newlyValid,
        validBlock,
        isSaving: (key) => ledger.isSaving(key),
        newTransferId: () => ledger.newTransferId(),
      });
      ledger.composeMetadata(plan);
      return plan;
    },
    output(change: Partial<ConnectorOutput>): void {
      scheduler.updateConnectorOutput(ledger.apply([{ ...emptyOutput, ...change }]).outcomes);
    },
    load(id: string, blocks: readonly LoadBlock[]): LoadJob {
      return ledger.openLoad(id as RequestId, { mode: 'async', timeoutMs: 1000, blocks }, undefined);
    },
    /** The request with what the ledger knows of its blocks. */
    asked: (request: ConnectorRequest): ConnectorRequest => ({
      ...request,
      wanted: ledger.wanted(request.id, request.wanted),
    }),
  };
}

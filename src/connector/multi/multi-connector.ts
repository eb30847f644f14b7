import type {
  KvConnector,
  KvTransferConfig,
  SchedulerConnector,
  SchedulerConnectorContext,
  WorkerConnector,
  WorkerConnectorContext,
} from '../connector.ts';
import { kvConfigInvalid } from '../errors.ts';
import { MultiScheduler } from './multi-scheduler.ts';
import { readMultiSettings } from './multi-settings.ts';
import { MultiWorker } from './multi-worker.ts';

/** @throws KvasirError `kvConfigInvalid`, or that of one of the connectors. */
export async function createMultiConnector(
  config: KvTransferConfig,
  createConnector: (config: KvTransferConfig) => Promise<KvConnector>,
): Promise<KvConnector> {
  const connectors: KvConnector[] = [];
  for (const one of readMultiSettings(config)) connectors.push(await createConnector(one));
  checkStores(connectors);
  return new MultiConnector(connectors);
}

/** Several connectors in one engine, in the order in which they load. Both sides are lists of the sides of these connectors. */
export class MultiConnector implements KvConnector {
  readonly #connectors: readonly KvConnector[];

  constructor(connectors: readonly KvConnector[]) {
    this.#connectors = connectors;
  }

  get stores(): readonly string[] {
    return this.#connectors.flatMap(({ stores = [] }) => stores);
  }

  async checkSettings(): Promise<void> {
    await Promise.all(this.#connectors.map((connector) => connector.checkSettings?.()));
  }

  async openScheduler(context: SchedulerConnectorContext): Promise<SchedulerConnector> {
    const sides = await openAll(
      this.#connectors,
      (connector) => connector.openScheduler(context),
      (side) => side.close(),
    );
    return new MultiScheduler(sides, context.clock);
  }

  async openWorker(context: WorkerConnectorContext): Promise<WorkerConnector> {
    const sides = await openAll(
      this.#connectors,
      (connector) => connector.openWorker(context),
      (side) => side.shutdown({ timeoutMs: 0 }),
    );
    return new MultiWorker(sides);
  }
}

/** Opens one side of each connector. If one fails, those that are open are closed. */
async function openAll<Side>(
  connectors: readonly KvConnector[],
  open: (connector: KvConnector) => Promise<Side>,
  close: (side: Side) => Promise<unknown>,
): Promise<Side[]> {
  const results = await Promise.allSettled(connectors.map(open));
  const failed = results.find((result) => result.status === 'rejected');
  const sides = results.filter((result) => result.status === 'fulfilled').map(({ value }) => value);
  if (failed === undefined) return sides;
  await Promise.allSettled(sides.map(close));
  throw failed.reason;
}

/** Two connectors on one store would look up, store and evict each block twice. */
function checkStores(connectors: readonly KvConnector[]): void {
  const owners = new Map<string, number>();
  for (const [i, { stores = [] }] of connectors.entries())
    for (const store of new Set(stores)) {
      const owner = owners.get(store);
      if (owner !== undefined)
        throw kvConfigInvalid({
          parameter: `kv_connector_extra_config.connectors[${i}]`,
          expected: `a connector with a store of its own`,
          actual: `the store of connectors[${owner}]: ${store}`,
          hint: ' Each store is in one connector.',
        });
      owners.set(store, i);
    }
}

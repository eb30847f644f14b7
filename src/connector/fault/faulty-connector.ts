import { configReader } from '../config-reader.ts';
import type {
  ConnectorContext,
  KvConnector,
  KvTransferConfig,
  SchedulerConnector,
  SchedulerConnectorContext,
  WorkerConnector,
  WorkerConnectorContext,
} from '../connector.ts';
import type { TierWrapping } from '../tier/tier.ts';
import { FaultInjector } from './fault-injector.ts';
import { type FaultPlan, readFaultPlan } from './fault-rules.ts';
import { faultyScheduler } from './faulty-scheduler.ts';
import { FaultyWorker } from './faulty-worker.ts';

/** The fault rules of a configuration, and the configuration without them: connectors need not know the setting. */
export function takeFaults(config: KvTransferConfig): { readonly config: KvTransferConfig; readonly plan?: FaultPlan } {
  const { fault_injection: faults, ...others } = config.kvConnectorExtraConfig;
  if (faults === undefined) return { config };
  const plan = readFaultPlan(configReader({ fault_injection: faults }).object('fault_injection'));
  return { config: { ...config, kvConnectorExtraConfig: others }, ...(plan === undefined ? {} : { plan }) };
}

/**
 * Any connector, with faults. Sides that wrap their tiers (`TierScheduler`, `TierWorker`) have faults in the tiers. The calls of any
 * other side have faults themselves.
 */
export class FaultyConnector implements KvConnector {
  readonly #inner: KvConnector;
  readonly #plan: FaultPlan;

  constructor(inner: KvConnector, plan: FaultPlan) {
    this.#inner = inner;
    this.#plan = plan;
  }

  get stores(): readonly string[] {
    return this.#inner.stores ?? [];
  }

  async checkSettings(): Promise<void> {
    await this.#inner.checkSettings?.();
  }

  async openScheduler(context: SchedulerConnectorContext): Promise<SchedulerConnector> {
    const wrapping = this.#wrapping(context);
    const side = await this.#inner.openScheduler(wrapping.context);
    return wrapping.isUsed() ? side : faultyScheduler(side, context, this.#plan);
  }

  async openWorker(context: WorkerConnectorContext): Promise<WorkerConnector> {
    const wrapping = this.#wrapping(context);
    const side = await this.#inner.openWorker(wrapping.context);
    return wrapping.isUsed() ? side : new FaultyWorker(side, context, this.#plan);
  }

  #wrapping<Context extends ConnectorContext>(context: Context) {
    let isUsed: boolean = false;
    const wrapTier: NonNullable<TierWrapping['wrapTier']> = (tier, identity) => {
      isUsed = true;
      return new FaultInjector(tier, { identity, timers: context.timers, event: context.event, plan: this.#plan });
    };
    return { context: { ...context, wrapTier }, isUsed: () => isUsed };
  }
}

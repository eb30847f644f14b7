import type { JsonObject } from '../../base/json.ts';
import type {
  KvConnector,
  KvTransferConfig,
  SchedulerConnector,
  SchedulerConnectorContext,
  WorkerConnector,
  WorkerConnectorContext,
} from '../connector.ts';
import { faultsNotReached } from '../errors.ts';
import { ExtraConfig } from '../extra-config.ts';
import type { TierWrapping } from '../tier/tier.ts';
import { FaultInjector } from './fault-injector.ts';
import { type FaultPlan, readFaultPlan } from './fault-rules.ts';

/** The fault rules of a configuration, and the configuration without them: connectors need not know the setting. */
export function takeFaults(config: KvTransferConfig): { readonly config: KvTransferConfig; readonly plan?: FaultPlan } {
  const { fault_injection: faults, ...others } = config.kvConnectorExtraConfig;
  if (faults === undefined) return { config };
  const plan = readFaultPlan(new ExtraConfig({ fault_injection: faults } as JsonObject).object('fault_injection'));
  return { config: { ...config, kvConnectorExtraConfig: others }, ...(plan === undefined ? {} : { plan }) };
}

/**
 * Any connector whose sides are `TierScheduler` and `TierWorker`, with faults in its tiers, because both sides wrap their
 * tiers. A connector with other sides is refused, because faults cannot reach its store.
 */
export class FaultyConnector implements KvConnector {
  readonly #inner: KvConnector;
  readonly #name: string;
  readonly #plan: FaultPlan;

  constructor(inner: KvConnector, name: string, plan: FaultPlan) {
    this.#inner = inner;
    this.#name = name;
    this.#plan = plan;
  }

  async checkSettings(): Promise<void> {
    await this.#inner.checkSettings?.();
  }

  openScheduler(context: SchedulerConnectorContext): Promise<SchedulerConnector> {
    return this.#open(context, (wrapping) => this.#inner.openScheduler(wrapping));
  }

  openWorker(context: WorkerConnectorContext): Promise<WorkerConnector> {
    return this.#open(context, (wrapping) => this.#inner.openWorker(wrapping));
  }

  async #open<Context extends SchedulerConnectorContext | WorkerConnectorContext, Side>(
    context: Context,
    open: (context: Context) => Promise<Side>,
  ): Promise<Side> {
    let isWrapped: boolean = false;
    const wrapTier: NonNullable<TierWrapping['wrapTier']> = (tier, identity) => {
      isWrapped = true;
      return new FaultInjector(tier, { identity, timers: context.timers, plan: this.#plan });
    };
    const side = await open({ ...context, wrapTier });
    if (!isWrapped) throw faultsNotReached({ name: this.#name });
    return side;
  }
}

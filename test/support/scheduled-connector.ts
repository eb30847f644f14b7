import { writeFileSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import type { FaultPlan } from '../../src/connector/fault/fault-rules.ts';
import { onAllRanks } from './recovery-harness.ts';

/**
 * A SharedStorageConnector whose faults change while the worker processes run. A test writes the plan of a schedule, which applies to
 * all loads and stores from then on. The connector records the blocks that arrive, by schedule and rank.
 */
export class ScheduledFaults {
  /** For `kv_connector_module_path`; its class is `ScheduledConnector`, and `control_path` is one of its settings. */
  readonly modulePath: string;
  readonly controlPath: string;
  readonly #ranks: number;
  #schedule = 0;

  constructor(folder: string, ranks: number) {
    this.modulePath = join(folder, 'scheduled-connector.mjs');
    this.controlPath = folder;
    this.#ranks = ranks;
    writeFileSync(this.modulePath, moduleText());
    this.next([]);
  }

  /** Begins a schedule. `plans`: by rank. */
  next(plans: readonly FaultPlan[]): void {
    writeFileSync(join(this.controlPath, 'plan.json'), JSON.stringify({ schedule: ++this.#schedule, plans }));
  }

  /** Blocks that arrived on all ranks since the schedule began. */
  async arrived(): Promise<ReadonlySet<string>> {
    const perRank = Array.from({ length: this.#ranks }, async (_, rank) => {
      const path = join(this.controlPath, `arrived-${this.#schedule}-${rank}`);
      return new Set((await readFile(path, 'utf8').catch(() => '')).split('\n').filter((key) => key !== ''));
    });
    return onAllRanks(await Promise.all(perRank));
  }
}

const built = (path: string): string =>
  JSON.stringify(pathToFileURL(join(process.cwd(), 'dist', 'src', 'connector', path)).href);

/** JavaScript, because worker processes run the build. */
const moduleText = (): string => `
import { appendFileSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { FaultInjector } from ${built('fault/fault-injector.js')};
import { SharedStorageConnector } from ${built('shared-storage/shared-storage-connector.js')};

export class ScheduledConnector extends SharedStorageConnector {
  #folder;

  constructor(config) {
    const { control_path, ...extra } = config.kvConnectorExtraConfig;
    super({ ...config, kvConnectorExtraConfig: extra });
    this.#folder = control_path;
  }

  tierFor(disk, identity, { timers }) {
    const folder = this.#folder;
    let current = { schedule: 0, tier: disk };
    const now = () => {
      const { schedule, plans } = JSON.parse(readFileSync(join(folder, 'plan.json'), 'utf8'));
      if (schedule !== current.schedule) {
        current.tier.releaseHung?.();
        const plan = plans[identity.rank];
        const tier = plan === undefined ? disk : new FaultInjector(disk, { identity, timers, plan });
        current = { schedule, tier };
      }
      return current;
    };
    const changed = {
      async load(key, into, signal, context) {
        const { schedule, tier } = now();
        const reason = await tier.load(key, into, signal, context);
        const path = join(folder, 'arrived-' + schedule + '-' + identity.rank);
        if (reason === undefined && !signal.aborted) appendFileSync(path, key + '\\n');
        return reason;
      },
      store: (...call) => now().tier.store(...call),
    };
    return new Proxy(disk, {
      get(target, name) {
        if (Object.hasOwn(changed, name)) return changed[name];
        const value = Reflect.get(target, name, target);
        return typeof value === 'function' ? value.bind(target) : value;
      },
    });
  }
}
`;

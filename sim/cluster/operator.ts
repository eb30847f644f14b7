import { AssertionError, assert } from '../../src/base/assert.ts';
import { KvasirError } from '../../src/base/errors.ts';
import type { Prng } from '../../src/base/prng.ts';
import type { WorkerConnector } from '../../src/connector/connector.ts';
import { saltTagOf } from '../../src/connector/salt-tag.ts';
import type { TierOrder, TierOrderAnswer } from '../../src/connector/tier-orders.ts';
import type { EngineRequest } from '../../src/core/request.ts';
import type { CachedPrompt } from '../../src/scheduler/prefixes.ts';
import type { Scheduler } from '../../src/scheduler/scheduler.ts';
import type { ProcessLife } from './process-life.ts';
import type { StackShelf } from './stack-shelf.ts';

const kinds = ['remove', 'removeBelow', 'clear', 'fetch', 'pin', 'unpin', 'pins', 'detach', 'attach'] as const;
const promptsMax = 8;
const savesPollMs = 10;
const host = 'host';

/** An administrator of one server with a stack. Orders are given as `engine/kv-administration.ts` gives them, at any time. */
export class Operator {
  readonly #life: ProcessLife;
  readonly #scheduler: Scheduler;
  readonly #shelf: StackShelf;
  /** Of requests, the newest last. */
  readonly #prompts: CachedPrompt[] = [];
  readonly #detached = new Set<string>();
  /** Tiers with an order that attaches or detaches them. */
  readonly #changing = new Set<string>();

  constructor(life: ProcessLife, scheduler: Scheduler, shelf: StackShelf) {
    this.#life = life;
    this.#scheduler = scheduler;
    this.#shelf = shelf;
  }

  saw({ promptTokens, cacheSalt }: EngineRequest): void {
    this.#prompts.push({ tokens: promptTokens, cacheSalt, adapter: undefined });
    if (this.#prompts.length > promptsMax) this.#prompts.shift();
  }

  /** Resolves when the order is carried out. Rejects for our bugs only: a tier that is down refuses orders. */
  async order(worker: WorkerConnector, prng: Prng): Promise<void> {
    const kind = prng.pick(kinds);
    const tier = prng.pick(this.#shelf.names);
    const ttlMs = prng.pick([1000, 60_000]);
    if (this.#prompts.length === 0) return;
    const prompt = prng.pick(this.#prompts);
    try {
      await this.#carryOut(worker, kind, { tier, ttlMs, prompt });
    } catch (error) {
      // The server has ended meanwhile, or the tier is down.
      const isRefused =
        error instanceof KvasirError ? error.code === 'KVASIR_TIER_CLOSED' : !(error instanceof AssertionError);
      if (!isRefused && !this.#life.isOver)
        throw new Error(`order: ${kind} failed: ${String(error)}`, { cause: error });
    }
  }

  async #carryOut(
    worker: WorkerConnector,
    kind: (typeof kinds)[number],
    { tier, ttlMs, prompt }: { readonly tier: string; readonly ttlMs: number; readonly prompt: CachedPrompt },
  ): Promise<void> {
    const shelf = this.#shelf;
    const { prefixes } = this.#scheduler;
    const { tiers } = shelf.scheduler;
    assert(tiers !== undefined, 'a stack takes orders');
    const give = async (order: TierOrder): Promise<TierOrderAnswer> => {
      const answer = await worker.administer!(order);
      tiers.done(order, answer);
      return answer;
    };
    const { name: pin, keys } = prefixes.pinOf(prompt);
    switch (kind) {
      case 'remove':
      case 'removeBelow': {
        const chosen = kind === 'remove' ? tiers.names : tiers.names.filter((name) => name !== host);
        if (keys.length === 0 || chosen.length === 0) return;
        if (kind === 'remove') {
          prefixes.remove(prompt);
          while (prefixes.areSaving(keys)) await this.#sleep(savesPollMs);
          shelf.removed(keys);
        }
        const beforeMs = this.#life.nowMs();
        const answer = await give({ kind: 'remove', keys, tiers: chosen });
        for (const [name, { failed }] of Object.entries(answer.tiers))
          if (failed === 0 && name !== host) shelf.checkNoneWritten(name, keys, beforeMs);
        return;
      }
      case 'clear':
        shelf.unpinned();
        await give({ kind: 'clear', tier: host, filter: {} });
        return;
      case 'fetch': {
        if (keys.length === 0) return;
        const saltTag = saltTagOf(prompt.cacheSalt);
        await give({ kind: 'fetch', keys, ...(saltTag === undefined ? {} : { saltTag }) });
        return;
      }
      case 'pin': {
        if (pin === undefined) return;
        const answer = await give({ kind: 'pin', pin, keys, ttlMs, tiers: [host] });
        shelf.pinned(pin, keys.slice(0, keys.length - answer.tiers[host]!.failed), ttlMs);
        return;
      }
      case 'unpin':
        if (pin === undefined) return;
        shelf.unpinned(pin);
        await give({ kind: 'unpin', pin });
        return;
      case 'pins':
        await give({ kind: 'pins' });
        return;
      case 'detach':
        await this.#changes(tier, async () => {
          if (this.#detached.has(tier)) return;
          this.#detached.add(tier);
          tiers.detach(tier);
          await give({ kind: 'detach', tier });
        });
        return;
      case 'attach':
        await this.#changes(tier, async () => {
          if (!this.#detached.has(tier)) return;
          await give({ kind: 'attach', tier, spec: tier });
          await tiers.attach(tier, tier);
          this.#detached.delete(tier);
        });
    }
  }

  async #changes(tier: string, order: () => Promise<void>): Promise<void> {
    if (this.#changing.has(tier)) return;
    this.#changing.add(tier);
    try {
      await order();
    } finally {
      this.#changing.delete(tier);
    }
  }

  #sleep(ms: number): Promise<void> {
    return new Promise((resolve) => this.#life.after(ms, resolve));
  }
}

import type { BlockKey } from '../block-key.ts';
import type { SchedulerConnectorContext } from '../connector.ts';
import type { PlaceHits, TierAdministration, TierOrder, TierOrderAnswer } from '../tier-orders.ts';
import { type HostDirectory, hostPlace } from './host-directory.ts';
import type { Place } from './place-lookups.ts';
import { RankAnswers, rankTiers } from './rank-answers.ts';

export interface PlaceAdministrationParts {
  readonly context: SchedulerConnectorContext;
  /** Changed by orders. */
  readonly places: Place[];
  readonly host: HostDirectory;
  readonly lookupTimeoutMs: number;
  openPlace(name: string, spec: string): Promise<Place>;
  /** The places that are looked up have changed. */
  placesChanged(): void;
  /** The workers have news for the directory of host memory: a step reports it. */
  reportsFollow(): void;
}

/** The scheduler side of orders for tiers: it knows where blocks are, and which tiers are looked up. */
export class PlaceAdministration implements TierAdministration {
  readonly #parts: PlaceAdministrationParts;

  constructor(parts: PlaceAdministrationParts) {
    this.#parts = parts;
  }

  get names(): readonly string[] {
    return [hostPlace, ...this.#parts.places.map(({ name }) => name)];
  }

  locate(keys: readonly BlockKey[]): Promise<readonly PlaceHits[]> {
    const { places, host } = this.#parts;
    const inHost = { place: hostPlace, found: keys.map((key) => host.has(key)) };
    return Promise.all([inHost, ...places.map((place) => this.#ask(place, keys))]);
  }

  async attach(tier: string, spec: string): Promise<void> {
    this.#parts.places.push(await this.#parts.openPlace(tier, spec));
    this.#parts.placesChanged();
  }

  detach(tier: string): void {
    const { places, placesChanged } = this.#parts;
    const at = places.findIndex(({ name }) => name === tier);
    if (at < 0) return;
    const [place] = places.splice(at, 1);
    placesChanged();
    // Not awaited: a tier that hangs must delay nothing, and this side stores nothing.
    for (const rank of place!.tiers) rank.close().catch(() => undefined);
  }

  done(order: TierOrder, { fetched }: TierOrderAnswer): void {
    const { host, reportsFollow } = this.#parts;
    if (order.kind === 'fetch') for (const key of fetched?.[hostPlace] ?? []) host.loaded(key);
    if (order.kind === 'remove' && order.tiers?.includes(hostPlace) !== false)
      for (const key of order.keys) host.lost(key);
    reportsFollow();
  }

  async #ask({ name, tiers }: Place, keys: readonly BlockKey[]): Promise<PlaceHits> {
    const { context, lookupTimeoutMs: timeoutMs } = this.#parts;
    const asked = new RankAnswers(rankTiers(tiers, context.identities), keys);
    return { place: name, found: await asked.within({ timers: context.timers, timeoutMs }) };
  }
}

import { AssertionError } from '../../base/assert.ts';
import { withDeadline } from '../../base/deadlines.ts';
import type { BlockKey } from '../block-key.ts';
import type { SchedulerConnectorContext } from '../connector.ts';
import { hasKvOn } from '../tier/blocks-of-rank.ts';
import type { PlaceHits, TierAdministration, TierOrder, TierOrderAnswer } from '../tier-orders.ts';
import { type HostDirectory, hostPlace } from './host-directory.ts';
import type { Place } from './place-lookups.ts';

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

  /** A block is in a place if all ranks have their part of it. */
  async #ask({ name, tiers }: Place, keys: readonly BlockKey[]): Promise<PlaceHits> {
    const { context, lookupTimeoutMs: timeoutMs } = this.#parts;
    const answers = await Promise.all(
      tiers.map(async (tier, rank) => {
        const own = keys.filter(hasKvOn(context.identities[rank]!));
        try {
          const found = await withDeadline({ timers: context.timers, timeoutMs }, (signal) => tier.has(own, signal));
          const ofKey = new Map(own.map((key, i) => [key, found[i]]));
          return keys.map((key) => (ofKey.has(key) ? ofKey.get(key) : true));
        } catch (error) {
          if (error instanceof AssertionError) throw error;
          return keys.map(() => undefined);
        }
      }),
    );
    const found = keys.map((_, i) => {
      const ofRanks = answers.map((ofRank) => ofRank[i]);
      return ofRanks.includes(false) ? false : ofRanks.includes(undefined) ? undefined : true;
    });
    return { place: name, found };
  }
}

import { byName } from '../../base/by-name.ts';
import type { BlockKey } from '../block-key.ts';
import type { PlaceKind, SchedulerConnectorContext } from '../connector.ts';
import type { ConnectorStats, TierLevels, TierTotals } from '../connector-stats.ts';
import { type CircuitBreakerOptions, circuitBreakerDefaults } from '../tier/circuit-breaker.ts';
import type { LookupAnswers } from '../tier/look-up.ts';
import type { Tier } from '../tier/tier.ts';
import { type RunningLookup, TierLookups } from './tier-lookups.ts';

/** A place for blocks, as the scheduler side sees it. */
export interface Place {
  readonly name: string;
  /** One per rank. */
  readonly tiers: readonly Tier[];
  /** Absent: storage, and the tier is allowed for each request (`kv_load_tiers`). */
  readonly kind?: PlaceKind;
  /** For reports. */
  readonly maxBytes?: number | undefined;
}

/** Where each block is: the name of a place, `false` if no place has it, undefined if that is not known. */
export type PlaceAnswers = readonly (string | false | undefined)[];

/**
 * Looks blocks up in several places at once. A look-up ends when each block was found or all places have answered, so a
 * slow place delays only blocks that no other place has. Each place has a circuit breaker of its own.
 */
export class PlaceLookups {
  /** Replaced, and never changed: look-ups under way go on with the places that there were. */
  #places: readonly LookedUpPlace[] = [];
  readonly #open: (place: Place) => LookedUpPlace;

  constructor(
    places: readonly Place[],
    context: SchedulerConnectorContext,
    timeoutMs: number,
    breaker: CircuitBreakerOptions = circuitBreakerDefaults,
  ) {
    this.#open = (place) => ({ place, lookups: new TierLookups(place.tiers, context, timeoutMs, breaker) });
    this.setPlaces(places);
  }

  setPlaces(places: readonly Place[]): void {
    const before = new Map(this.#places.map((known) => [known.place, known]));
    for (const { place, lookups } of this.#places) if (!places.includes(place)) lookups.close();
    this.#places = places.map((place) => before.get(place) ?? this.#open(place));
  }

  /**
   * Calls `done` once, asynchronously, unless the look-up is cancelled. Undefined: no place can be asked for these keys
   * now. `isAllowed`: the places that may be asked.
   */
  start(
    keys: readonly BlockKey[],
    isAllowed: (place: Place) => boolean,
    done: (answers: PlaceAnswers) => void,
  ): RunningLookup | undefined {
    const places = this.#places;
    const answers = keys.map((): (boolean | undefined)[] => new Array(places.length));
    const running: RunningLookup[] = [];
    const indexOf = new Map(keys.map((key, i) => [key, i]));
    let open = 0;
    let isOver = false;
    const end = (): void => {
      isOver = true;
      for (const lookup of running) lookup.cancel();
      done(answers.map((ofKey) => placeOf(places, ofKey, isAllowed)));
    };
    for (const [at, { place, lookups }] of places.entries()) {
      if (!isAllowed(place)) continue;
      const asked = keys.filter((key) => !lookups.isCoolingDown(key));
      if (asked.length === 0) continue;
      const lookup = lookups.start(asked, (found: LookupAnswers) => {
        open--;
        if (isOver) return;
        for (const [i, key] of asked.entries()) answers[indexOf.get(key)!]![at] = found[i];
        if (open === 0 || answers.every((ofKey) => ofKey.includes(true))) end();
      });
      if (lookup === undefined) continue;
      open++;
      running.push(lookup);
    }
    if (running.length === 0) return undefined;
    return {
      deadlineMs: Math.max(...running.map(({ deadlineMs }) => deadlineMs)),
      cancel: () => {
        if (isOver) return;
        isOver = true;
        for (const lookup of running) lookup.cancel();
      },
    };
  }

  /** Of the only place, without its name. */
  statsOfOne(): ConnectorStats {
    return this.#places[0]!.lookups.stats();
  }

  stats(): ConnectorStats {
    const tiers: Record<string, TierTotals> = byName();
    const levels: Record<string, TierLevels> = byName();
    for (const { place, lookups } of this.#places) {
      const { levels: open, ...opened } = lookups.stats();
      tiers[place.name] = opened;
      levels[place.name] = { ...open };
    }
    return { tiers, levels: { tiers: levels } };
  }

  close(): void {
    for (const { lookups } of this.#places) lookups.close();
  }
}

interface LookedUpPlace {
  readonly place: Place;
  readonly lookups: TierLookups;
}

/** The first place that has the block. */
function placeOf(
  places: readonly LookedUpPlace[],
  ofKey: readonly (boolean | undefined)[],
  isAllowed: (place: Place) => boolean,
): string | false | undefined {
  const at = ofKey.indexOf(true);
  if (at >= 0) return places[at]!.place.name;
  return places.every(({ place }, i) => !isAllowed(place) || ofKey[i] === false) ? false : undefined;
}

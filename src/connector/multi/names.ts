import { byName } from '../../base/by-name.ts';
import type { ConnectorStats, CountTree } from '../connector-stats.ts';

/**
 * Places, tiers and counters of one connector of a list have its position before their names, such as `c0-host`, so that two connectors
 * may use the same names. A list inside of a list has two positions: `c1-c0-host`.
 */
export const nameOf = (connector: number, name: string): string => `c${connector}-${name}`;

/** The position of the connector, and its own name for it. Undefined: the name has no position. */
export function splitName(name: string): { readonly connector: number; readonly own: string } | undefined {
  const [, digits, own] = /^c(\d+)-(.*)$/s.exec(name) ?? [];
  return digits === undefined ? undefined : { connector: Number(digits), own: own! };
}

/** The connector's own name for it; undefined: it is not of this connector. */
export function ownName(connector: number, name: string): string | undefined {
  const split = splitName(name);
  return split?.connector === connector ? split.own : undefined;
}

/** The names of levels begin with `now.`, also in a list. */
const level = 'now.';
type Counters = Readonly<Record<string, number>>;

export const countersOf = (connector: number, counters: Counters): Counters =>
  mapNames(counters, (name) =>
    name.startsWith(level) ? level + nameOf(connector, name.slice(level.length)) : nameOf(connector, name),
  );

export const ownCounters = (connector: number, counters: Counters): Counters =>
  mapNames(counters, (name) => {
    if (!name.startsWith(level)) return ownName(connector, name);
    const own = ownName(connector, name.slice(level.length));
    return own === undefined ? undefined : level + own;
  });

/** The connector's counts with names of the list. Those without a tier are totals of all connectors, and keep their names. */
export function statsOf(connector: number, stats: ConnectorStats): ConnectorStats {
  const { levels, ...named } = withNames(stats, (name) => nameOf(connector, name));
  return { ...stats, ...named, ...(levels === undefined ? {} : { levels: { ...stats.levels, ...levels } }) };
}

/** What the counts of a list say of the tiers of one connector. */
export const ownStats = (connector: number, stats: ConnectorStats): ConnectorStats =>
  withNames(stats, (name) => ownName(connector, name));

function withNames({ tiers, own, levels }: ConnectorStats, rename: Rename): ConnectorStats {
  return {
    ...(tiers === undefined ? {} : { tiers: mapNames(tiers, rename) }),
    ...(own === undefined ? {} : { own: mapNames(own, rename) }),
    ...(levels === undefined
      ? {}
      : {
          levels: {
            ...(levels.tiers === undefined ? {} : { tiers: mapNames(levels.tiers, rename) }),
            ...(levels.own === undefined ? {} : { own: mapNames(levels.own, rename) }),
          },
        }),
  };
}

/** Undefined: the entry is left out. */
type Rename = (name: string) => string | undefined;

/** The entries with new names. */
export function mapNames<Value extends CountTree | number | object>(
  record: Readonly<Record<string, Value>>,
  rename: Rename,
): Record<string, Value> {
  const renamed: Record<string, Value> = byName();
  for (const [name, value] of Object.entries(record)) {
    const now = rename(name);
    if (now !== undefined) renamed[now] = value;
  }
  return renamed;
}

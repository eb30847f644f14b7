import { byEntries } from '../../base/by-name.ts';
import type { JsonObject } from '../../base/json.ts';
import type { TransferId } from '../connector.ts';

/** What the scheduler side tells the worker sides in a step: whose saves are whose, and what each connector tells its own worker side. */
export interface MultiMessage {
  /** By the id of the save, the position of its connector. */
  readonly saves: Readonly<Record<string, number>>;
  /** By position. */
  readonly extras: Readonly<Record<string, JsonObject>>;
}

/** As `extra` of a step's metadata. Undefined: there is nothing to tell. */
export function messageFor(
  connectorOf: ReadonlyMap<TransferId, number>,
  extras: readonly (JsonObject | undefined)[],
): JsonObject | undefined {
  const told = [...extras.entries()].filter(([, extra]) => extra !== undefined);
  if (connectorOf.size === 0 && told.length === 0) return undefined;
  return { saves: byEntries(connectorOf), extras: byEntries(told) as JsonObject };
}

export const messageOf = (extra: JsonObject | undefined): MultiMessage =>
  (extra as MultiMessage | undefined) ?? { saves: {}, extras: {} };

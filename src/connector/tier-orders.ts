import { byEntries, byName, ownValue } from '../base/by-name.ts';
import type { JsonObject } from '../base/json.ts';
import type { BlockKey } from './block-key.ts';

/**
 * An order of an administrator for the tiers of one rank: a case of `loadAdapter`, carried out beside the steps. JSON-able, because it
 * crosses process borders. A removed block is a miss for look-ups and loads under way, as an evicted block is.
 */
export type TierOrder =
  /** Removes these blocks. `tiers`: from these; absent: from all. */
  | { readonly kind: 'remove'; readonly keys: readonly BlockKey[]; readonly tiers?: readonly string[] | undefined }
  /** Removes all blocks of a tier that the filter names. */
  | { readonly kind: 'clear'; readonly tier: string; readonly filter: ClearFilter }
  /** Loads these blocks, which are of one cache salt, into host memory. */
  | { readonly kind: 'fetch'; readonly keys: readonly BlockKey[]; readonly saltTag?: string }
  /** These tiers do not evict the blocks of the pin, whether they have them or not. Replaces the pin of this name. */
  | {
      readonly kind: 'pin';
      readonly pin: string;
      readonly keys: readonly BlockKey[];
      readonly ttlMs: number;
      readonly tiers: readonly string[];
    }
  /** Ends the pin in all tiers. */
  | { readonly kind: 'unpin'; readonly pin: string }
  /** Lists the pins of all tiers. */
  | { readonly kind: 'pins' }
  /** Opens a tier below the others. `spec`: as in `tiers` of the settings. */
  | { readonly kind: 'attach'; readonly tier: string; readonly spec: string }
  | { readonly kind: 'detach'; readonly tier: string };

/** Which blocks of a tier are removed; without a field: all. */
export interface ClearFilter {
  /** Only those of this cache salt. Blocks that an earlier version has stored have no tag. */
  readonly saltTag?: string | undefined;
  /** Only those whose time is before this: milliseconds since 1970. Each tier says which time it knows. */
  readonly beforeMs?: number | undefined;
}

/** What a tier did for an order. */
export interface TierWork {
  readonly blocks: number;
  readonly bytes: number;
  /** Blocks for which the call failed, so that they may still be there. */
  readonly failed: number;
  /** Blocks that waited to be written and are dropped. */
  readonly dropped?: number;
}

/** A pin of a tier. */
export interface TierPin {
  readonly name: string;
  readonly blocks: number;
  readonly ttlMs: number;
  readonly leftMs: number;
}

/** The pins of a tier, how many blocks they have and may have, and how many pins have ended by their time to live. */
export interface TierPinReport {
  readonly pins: readonly TierPin[];
  readonly blocks: number;
  readonly blocksMax: number;
  readonly expired: number;
}

/** By tier. `fetched`: the blocks that are in each host memory now. `failed` of a pin: the blocks that are not pinned. */
export interface TierOrderAnswer {
  readonly tiers: Readonly<Record<string, TierWork>>;
  readonly fetched?: Readonly<Record<string, readonly BlockKey[]>>;
  /** Of tiers that can pin. */
  readonly pins?: Readonly<Record<string, TierPinReport>>;
}

export const noWork: TierWork = Object.freeze({ blocks: 0, bytes: 0, failed: 0 });

export const addWork = (a: TierWork, b: TierWork): TierWork => ({
  blocks: a.blocks + b.blocks,
  bytes: a.bytes + b.bytes,
  failed: a.failed + b.failed,
  ...(a.dropped === undefined && b.dropped === undefined ? {} : { dropped: (a.dropped ?? 0) + (b.dropped ?? 0) }),
});

/** The answers of all ranks as one. A block of a tier has a part on each rank, and counts once. */
export function joinAnswers(answers: readonly TierOrderAnswer[]): TierOrderAnswer {
  const tiers: Record<string, TierWork> = byName();
  for (const answer of answers)
    for (const [name, work] of Object.entries(answer.tiers)) {
      const before = tiers[name] ?? noWork;
      tiers[name] = {
        ...addWork(before, work),
        blocks: Math.max(before.blocks, work.blocks),
        failed: Math.max(before.failed, work.failed),
      };
    }
  const pins = joinPins(answers);
  const joined = { tiers, ...(pins === undefined ? {} : { pins }) };
  const [first, ...others] = answers.map((answer) => answer.fetched);
  if (first === undefined || others.includes(undefined)) return joined;
  const fetched = Object.entries(first).map(([name, keys]) => {
    const ofOthers = others.map((answer) => new Set(ownValue(answer, name)));
    return [name, keys.filter((key) => ofOthers.every((own) => own.has(key)))] as const;
  });
  return { ...joined, fetched: byEntries(fetched) };
}

/** The pins that all ranks have: the process of a rank may have been replaced. */
function joinPins(answers: readonly TierOrderAnswer[]): TierOrderAnswer['pins'] {
  const [first, ...others] = answers.map(({ pins }) => pins);
  if (first === undefined) return undefined;
  const isInAll = (tier: string, name: string): boolean =>
    others.every((pins) => ownValue(pins, tier)?.pins.some((pin) => pin.name === name) === true);
  return byEntries(
    Object.entries(first).map(([tier, { pins, ...counts }]) => [
      tier,
      { ...counts, pins: pins.filter(({ name }) => isInAll(tier, name)) },
    ]),
  );
}

/** Where a scheduler side found blocks, parallel to the keys. Undefined: the place did not answer. */
export interface PlaceHits {
  readonly place: string;
  readonly found: readonly (boolean | undefined)[];
}

/** The part of a connector's scheduler side for administrators. Absent: the connector has no tiers. */
export interface TierAdministration {
  /** In the order in which loads try them. */
  readonly names: readonly string[];
  locate(keys: readonly BlockKey[]): Promise<readonly PlaceHits[]>;
  /** Opens the scheduler's part of a tier, whose name is not in use. @throws KvasirError if the settings are wrong. */
  attach(tier: string, spec: string): Promise<void>;
  detach(tier: string): void;
  /** All ranks have carried out the order. */
  done(order: TierOrder, answer: TierOrderAnswer): void;
}

/** For logs: without keys. */
export function describeOrder(order: TierOrder): JsonObject {
  if ('keys' in order) return { order: order.kind, blocks: order.keys.length };
  return { order: order.kind, ...('tier' in order ? { tier: order.tier } : {}) };
}

import type { BlockKey } from '../block-key.ts';
import { tierUnknown } from '../errors.ts';
import type { PlaceHits, TierAdministration, TierOrder, TierOrderAnswer } from '../tier-orders.ts';
import { mapNames, nameOf, ownName, splitName } from './names.ts';

type Administer = (order: TierOrder) => Promise<TierOrderAnswer>;

/** The tiers of all connectors of a list. Undefined: none of them can be administered. */
export function administrationOf(all: readonly (TierAdministration | undefined)[]): TierAdministration | undefined {
  if (all.every((tiers) => tiers === undefined)) return undefined;
  const known = [...all.entries()].filter((entry): entry is [number, TierAdministration] => entry[1] !== undefined);
  return {
    get names() {
      return known.flatMap(([i, { names }]) => names.map((name) => nameOf(i, name)));
    },
    async locate(keys: readonly BlockKey[]): Promise<readonly PlaceHits[]> {
      const hits = await Promise.all(
        known.map(async ([i, tiers]) =>
          (await tiers.locate(keys)).map(({ place, found }) => ({ place: nameOf(i, place), found })),
        ),
      );
      return hits.flat();
    },
    async attach(tier, spec) {
      const { connector, own } = connectorOf(tier, all);
      await all[connector]!.attach(own, spec);
    },
    detach(tier) {
      const split = splitName(tier);
      if (split !== undefined) all[split.connector]?.detach(split.own);
    },
    done(order, answer) {
      for (const [i, tiers] of known) {
        const own = orderOf(i, order);
        if (own !== undefined)
          tiers.done(
            own,
            answerOf(answer, (name) => ownName(i, name)),
          );
      }
    },
  };
}

/**
 * Carries out an order in each connector that it is about. One after the other: what the first one has fetched, the next need not fetch, and if
 * one cannot pin, none does.
 */
export async function carryOutInAll(
  order: TierOrder,
  all: readonly (Administer | undefined)[],
): Promise<TierOrderAnswer> {
  if ('tier' in order && order.kind !== 'detach') connectorOf(order.tier, all);
  const answers: TierOrderAnswer[] = [];
  const fetched = new Set<BlockKey>();
  for (const [i, administer] of all.entries()) {
    const own = orderOf(i, order);
    if (administer === undefined || own === undefined) continue;
    const wanted = own.kind === 'fetch' ? { ...own, keys: own.keys.filter((key) => !fetched.has(key)) } : own;
    try {
      const answer = await administer(wanted);
      for (const key of Object.values(answer.fetched ?? {}).flat()) fetched.add(key);
      answers.push(answerOf(answer, (name) => nameOf(i, name)));
    } catch (error) {
      if (order.kind === 'pin')
        for (const earlier of all.slice(0, i)) await earlier?.({ kind: 'unpin', pin: order.pin });
      throw error;
    }
  }
  const merged = (of: (answer: TierOrderAnswer) => object | undefined): object | undefined =>
    answers.some((answer) => of(answer) !== undefined) ? Object.assign({}, ...answers.map(of)) : undefined;
  const [ofFetched, pins] = [merged((answer) => answer.fetched), merged((answer) => answer.pins)];
  return {
    tiers: merged((answer) => answer.tiers) ?? {},
    ...(ofFetched === undefined ? {} : { fetched: ofFetched }),
    ...(pins === undefined ? {} : { pins }),
  } as TierOrderAnswer;
}

/** @throws KvasirError `tierUnknown` for a name of no connector that can be administered. */
function connectorOf(tier: string, all: readonly unknown[]): { readonly connector: number; readonly own: string } {
  const split = splitName(tier);
  if (split === undefined || all[split.connector] === undefined) throw tierUnknown({ tier });
  return split;
}

/** The connector's part of an order, by the tiers that it names; undefined: the order is not about the connector. */
function orderOf(connector: number, order: TierOrder): TierOrder | undefined {
  if ('tier' in order) {
    const tier = ownName(connector, order.tier);
    return tier === undefined ? undefined : { ...order, tier };
  }
  if (!('tiers' in order) || order.tiers === undefined) return order;
  const tiers = order.tiers.map((name) => ownName(connector, name)).filter((name) => name !== undefined);
  return tiers.length === 0 ? undefined : { ...order, tiers };
}

function answerOf(
  { tiers, fetched, pins }: TierOrderAnswer,
  rename: (name: string) => string | undefined,
): TierOrderAnswer {
  return {
    tiers: mapNames(tiers, rename),
    ...(fetched === undefined ? {} : { fetched: mapNames(fetched, rename) }),
    ...(pins === undefined ? {} : { pins: mapNames(pins, rename) }),
  };
}

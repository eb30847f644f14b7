import { AssertionError } from '../../base/assert.ts';
import { byEntries, byName } from '../../base/by-name.ts';
import { settlesWithin, withDeadline } from '../../base/deadlines.ts';
import type { Timers } from '../../base/timers.ts';
import type { BlockKey } from '../block-key.ts';
import { tierNameTaken, tierUnknown } from '../errors.ts';
import type { LoadFailureReason } from '../reasons.ts';
import type { SaltTag } from '../salt-tag.ts';
import type { HostTier } from '../tier/host/tier-host.ts';
import type { Tier, TierContext } from '../tier/tier.ts';
import type { TierPins } from '../tier/tier-pins.ts';
import { addWork, noWork, type TierOrder, type TierOrderAnswer, type TierWork } from '../tier-orders.ts';
import type { SecondaryTier } from './secondary-tier.ts';

export interface CarryOutParts {
  readonly host: HostTier;
  readonly secondaries: readonly SecondaryTier[];
  readonly timers: Timers;
  readonly blockBytes: number;
  /** Of the stack: the block is in host memory afterwards. */
  load(
    key: BlockKey,
    into: Uint8Array,
    signal: AbortSignal,
    context: TierContext,
  ): Promise<LoadFailureReason | undefined>;
  openSecondary(name: string, spec: string): Promise<SecondaryTier>;
  attach(secondary: SecondaryTier): void;
  /** Resolves to the number of blocks that waited to be written; undefined: there is no such tier. */
  detach(name: string): Promise<number | undefined>;
}

const clearTimeoutMs = 300_000;
const removeTimeoutMs = 30_000;
const fetchTimeoutMs = 60_000;
/** How long a removal waits for writes of its blocks. After that, they may be stored again. */
const writesTimeoutMs = 30_000;
const callsAtOnce = 8;

/** Carries out an order for the tiers of one rank. What a tier cannot do is counted in the answer, and fails no other tier. */
export async function carryOut(order: TierOrder, parts: CarryOutParts): Promise<TierOrderAnswer> {
  const { host, secondaries } = parts;
  switch (order.kind) {
    case 'remove':
      return remove(order, parts);
    case 'fetch':
      return fetchBlocks(order, parts);
    case 'clear': {
      if (order.tier === host.name) return { tiers: { [host.name]: await host.clear(order.filter) } };
      const secondary = find(order.tier, secondaries);
      const dropped = await withdrawn(secondary, (key) => host.isMeant(key, order.filter), parts);
      return { tiers: { [order.tier]: addWork(dropped, await cleared(secondary.tier, order, parts)) } };
    }
    case 'pin':
      return pin(order, parts);
    case 'unpin': {
      const pinning = pinningTiers(parts).map(({ name, pins }) => {
        const blocks = pins.unpin(order.pin);
        return [name, { ...noWork, blocks, bytes: blocks * parts.blockBytes }] as const;
      });
      return { tiers: byEntries(pinning) };
    }
    case 'pins':
      return {
        tiers: {},
        pins: byEntries(pinningTiers(parts).map(({ name, pins }) => [name, pins.report()] as const)),
      };
    case 'attach':
      if ([host, ...secondaries].some(({ name }) => name === order.tier)) throw tierNameTaken({ tier: order.tier });
      parts.attach(await parts.openSecondary(order.tier, order.spec));
      return { tiers: { [order.tier]: noWork } };
    case 'detach': {
      const dropped = await parts.detach(order.tier);
      return { tiers: { [order.tier]: { ...noWork, ...(dropped === undefined ? {} : { dropped }) } } };
    }
  }
}

function find(name: string, secondaries: readonly SecondaryTier[]): SecondaryTier {
  const found = secondaries.find((secondary) => secondary.name === name);
  if (found === undefined) throw tierUnknown({ tier: name });
  return found;
}

async function cleared(
  tier: Tier,
  { filter }: Extract<TierOrder, { kind: 'clear' }>,
  { timers }: CarryOutParts,
): Promise<TierWork> {
  if (tier.clear === undefined) throw tierUnknown({ tier: tier.name });
  return withDeadline({ timers, timeoutMs: clearTimeoutMs }, (signal) => tier.clear!(filter, signal));
}

/** Drops the blocks that wait to be written, and waits for those that are being written. */
async function withdrawn(
  secondary: SecondaryTier,
  isMeant: (key: BlockKey) => boolean,
  { timers }: CarryOutParts,
): Promise<TierWork> {
  let dropped = 0;
  const withdrawing = secondary.withdraw(isMeant).then((count) => {
    dropped = count;
  });
  const isOver = await settlesWithin(timers, writesTimeoutMs, withdrawing);
  return { ...noWork, dropped, failed: isOver ? 0 : 1 };
}

interface PinningTier {
  readonly name: string;
  readonly pins: TierPins;
}

function pinningTiers({ host, secondaries }: CarryOutParts): PinningTier[] {
  const tiers = [host, ...secondaries.map(({ tier }) => tier)];
  return tiers.flatMap(({ name, pins }) => (pins === undefined ? [] : [{ name, pins }]));
}

/** All of the tiers, or none if one cannot pin. */
function pin({ pin: name, keys, ttlMs, tiers }: Extract<TierOrder, { kind: 'pin' }>, parts: CarryOutParts) {
  const pinning = pinningTiers(parts);
  const chosen = tiers.map((tier) => {
    const found = pinning.find((candidate) => candidate.name === tier);
    if (found === undefined) throw tierUnknown({ tier });
    return found;
  });
  const answer: Record<string, TierWork> = byName();
  for (const { name: tier, pins } of chosen) {
    const blocks = pins.pin({ name, keys, ttlMs });
    answer[tier] = { blocks, bytes: blocks * parts.blockBytes, failed: keys.length - blocks };
  }
  return { tiers: answer };
}

async function remove(
  { keys, tiers }: Extract<TierOrder, { kind: 'remove' }>,
  parts: CarryOutParts,
): Promise<TierOrderAnswer> {
  const { host, secondaries, timers, blockBytes } = parts;
  const isChosen = (name: string): boolean => tiers === undefined || tiers.includes(name);
  for (const name of tiers ?? []) if (name !== host.name) find(name, secondaries);
  const meant = new Set(keys);
  const answer: Record<string, TierWork> = byName();
  for (const secondary of secondaries.filter(({ name }) => isChosen(name))) {
    const dropped = await withdrawn(secondary, (key) => meant.has(key), parts);
    const { tier } = secondary;
    const work = { blocks: 0, bytes: 0, failed: 0 };
    try {
      const found = await withDeadline({ timers, timeoutMs: removeTimeoutMs }, (signal) => tier.has(keys, signal));
      await each(keys, async (key, i) => {
        if (found[i] === false) return;
        try {
          await tier.delete(key);
          if (found[i] === true) work.blocks++;
        } catch (error) {
          if (error instanceof AssertionError) throw error;
          work.failed++;
        }
      });
    } catch (error) {
      if (error instanceof AssertionError) throw error;
      work.failed = keys.length;
    }
    answer[secondary.name] = addWork(dropped, { ...work, bytes: work.blocks * blockBytes });
  }
  if (isChosen(host.name)) {
    const held = keys.filter((key) => host.holds(key));
    for (const key of held) await host.delete(key);
    answer[host.name] = { blocks: held.length, bytes: held.length * blockBytes, failed: 0 };
  }
  return { tiers: answer };
}

async function fetchBlocks(
  { keys, saltTag }: Extract<TierOrder, { kind: 'fetch' }>,
  parts: CarryOutParts,
): Promise<TierOrderAnswer> {
  const { host, blockBytes, timers } = parts;
  const context = { saltTag: saltTag as SaltTag | undefined };
  const missing = keys.filter((key) => !host.holds(key));
  let failed = 0;
  await each(missing, async (key) => {
    const into = new Uint8Array(blockBytes);
    const load = (signal: AbortSignal) => parts.load(key, into, signal, context);
    const reason = await withDeadline({ timers, timeoutMs: fetchTimeoutMs }, load).catch((error: unknown) => {
      if (error instanceof AssertionError) throw error;
      return 'failed';
    });
    if (reason !== undefined && reason !== 'missing') failed++;
  });
  const fetched = keys.filter((key) => host.holds(key));
  const blocks = missing.filter((key) => host.holds(key)).length;
  return { tiers: { [host.name]: { blocks, bytes: blocks * blockBytes, failed } }, fetched: { [host.name]: fetched } };
}

/** Runs a few calls at once. */
async function each<T>(items: readonly T[], call: (item: T, index: number) => Promise<void>): Promise<void> {
  let next = 0;
  const run = async (): Promise<void> => {
    while (next < items.length) {
      const at = next++;
      await call(items[at]!, at);
    }
  };
  await Promise.all(Array.from({ length: callsAtOnce }, run));
}

/** Tier classes for the messages about them: all but `Remembering` are wrong. */
import type { JsonObject } from '../../src/base/json.ts';
import { tierClosed } from '../../src/connector/errors.ts';
import type { OwnTierContext } from '../../src/connector/offloading/own-tier.ts';
import { HostTier } from '../../src/connector/tier/host/tier-host.ts';
import { replacing } from './replacing.ts';

export const number = 5;
export const Nothing = { open: () => Promise.resolve(undefined) };
export const Half = { open: () => Promise.resolve({ name: 'Half', has: () => Promise.resolve([]) }) };
export const Throwing = { open: () => Promise.reject(new Error('no folder')) };
export const Closed = { open: () => Promise.reject(tierClosed({ tier: 'Closed' })) };
export const Nameless = {
  open: (_: JsonObject, { identity }: OwnTierContext) =>
    Promise.resolve(new HostTier({ identity, maxBytes: 1e6, name: 'x' })),
};
export const Remembering = {
  open: (settings: JsonObject, { name, identity, movesBlocks }: OwnTierContext) =>
    Promise.resolve(
      replacing(new HostTier({ identity, maxBytes: 1e6, name }), {
        counters: () => ({ settings: Object.keys(settings).length, movesBlocks: Number(movesBlocks) }),
      }),
    ),
};

import type { FastifyContextConfig, FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { byEntries } from '../../base/by-name.ts';
import { describeValue } from '../../base/describe-value.ts';
import { nameLengthMax, withoutUndefined } from '../../base/field-reader.ts';
import { renderConversation } from '../../engine/chat/conversation.ts';
import type { AsyncEngine } from '../../engine/contract.ts';
import type { KvAdministration, PinnedPrefixInfo, PrefixRequest } from '../../engine/kv-administration-contract.ts';
import { type ParsedPrefix, readCacheSalt, readPrefix } from '../apis/openai/parse.ts';
import { engineFor } from '../generation/engine-for.ts';
import type { ParseLimits } from '../generation/request.ts';
import { needsOfTokens } from '../generation/request-needs.ts';
import { bodyReader } from '../http/body-reader.ts';
import type { Callers } from '../http/callers.ts';
import { abortWhenGone, unlessGone } from '../http/client-connection.ts';
import type { RequestMemory } from '../http/request-memory.ts';
import { attachNeedsKey } from '../http/server-errors.ts';
import {
  attachExample,
  clearExample,
  pinExample,
  prefetchExample,
  prefixExample,
  prefixOthers,
  removeExample,
  unpinExample,
} from '../openapi/examples.ts';

interface KvRouteOptions {
  readonly callers: Pick<Callers, 'requiresKey' | 'hasAdminKey'>;
  readonly limits: ParseLimits;
  readonly memory: RequestMemory;
}

/** Names of tiers that an administrator may give: they are parts of paths, logs and metrics. */
const tierName = /^[a-zA-Z][\w-]{0,31}$/;
const placesMax = 32;
const ttlMaxSeconds = 366 * 86_400;
const ageMaxSeconds = 100 * 366 * 86_400;

type Asked = ReturnType<typeof readPrefixBody>;

/**
 * Orders about cached KV: `engine.kv` over HTTP. They concern the blocks of all clients, so they are for administrators. Each has a line in the
 * log, and says what was really done.
 */
export function registerKvRoutes(app: FastifyInstance, engine: AsyncEngine, options: KvRouteOptions): void {
  const { kv } = engine;
  if (kv === undefined) return;
  const { limits } = options;
  const about = (
    summary: string,
    example?: object,
    read?: (body: object, given: ParseLimits) => unknown,
  ): { readonly config: FastifyContextConfig } => {
    const isOfPrefix = read === readPrefixBody || read === readUnpin;
    const body = read && example && { example, others: isOfPrefix ? prefixOthers : [], reads: [read] };
    return { config: { isForAdmins: true, about: { summary, ...(body === undefined ? {} : { body }) } } };
  };
  const prefixRoute =
    (order: string, read: (body: unknown, given: ParseLimits) => Asked, act: (asked: PrefixOrder) => Promise<object>) =>
    (request: FastifyRequest, reply: FastifyReply) =>
      answerPrefix({ engine, options, order }, [request, reply], read(request.body ?? {}, limits), act);

  const lookUp = async ({ prefix, signal }: PrefixOrder): Promise<object> => {
    const { promptTokens, tokens, cachedTokens, unanswered } = await kv.lookup(prefix, { signal });
    return { prompt_tokens: promptTokens, cached_tokens: cachedTokens, tokens, unanswered };
  };
  const summary = 'Where the KV of a prompt is.';
  app.post(
    '/cache/lookup',
    about(summary, prefixExample, readPrefixBody),
    prefixRoute('lookup', readPrefixBody, lookUp),
  );
  app.get('/cache/lookup', { ...about(summary), exposeHeadRoute: false }, (request, reply) =>
    answerPrefix({ engine, options, order: 'lookup' }, [request, reply], readPrefixBody(request.query, limits), lookUp),
  );
  app.post(
    '/cache/prefetch',
    about('Loads the KV of a prompt before its request comes.', prefetchExample, readPrefixBody),
    prefixRoute('prefetch', readPrefixBody, async ({ prefix, asked, signal }) => {
      const done = await kv.prefetch(prefix, { to: asked.to ?? 'pool', signal });
      return {
        to: asked.to ?? 'pool',
        prompt_tokens: done.promptTokens,
        tokens_before: done.tokensBefore,
        tokens_after: done.tokensAfter,
        loaded_tokens: done.loadedTokens,
        failed_blocks: done.failedBlocks,
      };
    }),
  );
  app.get('/cache/pins', about('The pinned prefixes.'), async () => {
    const tiers = Object.entries(await kv.tierPins()).map(
      ([tier, { pins, blocksMax, ...counts }]) =>
        [tier, { ...counts, max_blocks: blocksMax, pins: pins.map(tierPinBody) }] as const,
    );
    const { pins, blocks, blocksMax, expired, evicted } = kv.pins();
    const ofPool = { pins: pins.map(pinBody), blocks, max_blocks: blocksMax, expired, evicted };
    return { ...ofPool, tiers: byEntries<object>(tiers) };
  });
  app.post(
    '/cache/pin',
    about('Pins the KV of a prompt in the pool and in tiers.', pinExample, readPrefixBody),
    prefixRoute('pin', readPrefixBody, async ({ prefix, asked, signal }) => {
      const { ttlSeconds, places } = asked;
      const done = await kv.pin(prefix, { signal, ...withoutUndefined({ ttlSeconds, places }) });
      const { name = null, pin, promptTokens, neededBlocks } = done;
      const tiers = Object.entries(done.tiers).map(
        ([tier, { blocks, storedBlocks }]) => [tier, { blocks, stored_blocks: storedBlocks }] as const,
      );
      return {
        name,
        prompt_tokens: promptTokens,
        needed_blocks: neededBlocks,
        pin: pin === undefined ? null : pinBody(pin),
        tiers: byEntries<object>(tiers),
      };
    }),
  );
  app.post('/cache/unpin', about('Ends a pin.', unpinExample, readUnpin), async (request, reply) => {
    const asked = readUnpin(request.body ?? {}, limits);
    if ('pin' in asked) {
      const unpinned = (await kv.unpin(asked.pin)) ?? null;
      request.log.info({ order: 'unpin', unpinned }, orderDone);
      return { unpinned };
    }
    return answerPrefix({ engine, options, order: 'unpin' }, [request, reply], asked, async ({ prefix }) => ({
      unpinned: (await kv.unpin(prefix)) ?? null,
    }));
  });
  app.delete(
    '/cache/blocks',
    about('Removes the KV of a prompt.', removeExample, readPrefixBody),
    prefixRoute('remove', readPrefixBody, async ({ prefix, asked: { places } }) => {
      const removed = await kv.remove(prefix, places === undefined ? {} : { places });
      return { removed: byEntries(Object.entries(removed).map(([place, work]) => [place, workBody(work)])) };
    }),
  );
  registerTierOrders(app, engine, kv, { ...options, about });
}

interface TierOrderOptions extends KvRouteOptions {
  about(
    summary: string,
    example?: object,
    read?: (body: object, given: ParseLimits) => unknown,
  ): {
    readonly config: FastifyContextConfig;
  };
}

function registerTierOrders(
  app: FastifyInstance,
  engine: AsyncEngine,
  kv: KvAdministration,
  { limits, callers, about }: TierOrderOptions,
): void {
  type Named = { Params: { name: string } };
  app.post<Named>(
    '/tiers/:name/clear',
    about('Removes the blocks of a tier.', clearExample, readClear),
    async (request) => {
      const { model, ...asked } = readClear(request.body ?? {}, limits);
      engineFor(engine, model);
      const { name: tier } = request.params;
      const body = { tier, ...workBody(await kv.clearTier(tier, asked)) };
      request.log.info({ order: 'clear', ...body, isOfSalt: asked.cacheSalt !== undefined }, orderDone);
      return body;
    },
  );
  app.put<Named>('/tiers/:name', about('Attaches a tier.', attachExample, readAttach), async (request) => {
    // A tier names a folder or a server that this server then writes to.
    if (!callers.requiresKey && !callers.hasAdminKey) throw attachNeedsKey();
    const { model, spec } = readAttach(request.body ?? {}, limits);
    engineFor(engine, model);
    const tier = readTierName(request.params.name);
    await kv.attachTier(tier, spec);
    request.log.info({ order: 'attach', tier }, orderDone);
    return { tier, tiers: kv.tiers() };
  });
  app.delete<Named>('/tiers/:name', about('Detaches a tier. Its blocks stay where they are.'), async (request) => {
    const { name: tier } = request.params;
    const { dropped = 0 } = await kv.detachTier(tier);
    request.log.info({ order: 'detach', tier, dropped }, orderDone);
    return { tier, dropped, tiers: kv.tiers() };
  });
}

const orderDone = 'an order about cached KV was carried out';

interface PrefixOrder {
  readonly prefix: PrefixRequest;
  readonly asked: Asked;
  readonly signal: AbortSignal;
}

interface PrefixAnswerParts {
  readonly engine: AsyncEngine;
  readonly options: KvRouteOptions;
  readonly order: string;
}

/** Finds the tokens of the prompt as the endpoints do that compute it. */
async function answerPrefix(
  { engine, options, order }: PrefixAnswerParts,
  [request, reply]: [FastifyRequest, FastifyReply],
  asked: Asked,
  act: (order: PrefixOrder) => Promise<object>,
): Promise<FastifyReply | object> {
  const chosen = engineFor(engine, asked.model);
  const body = await unlessGone(reply, abortWhenGone(reply).signal, async (signal) => {
    const { input, addSpecial } = asked;
    const prompt =
      typeof input === 'string' || input instanceof Int32Array
        ? input
        : await renderConversation(engine, input, signal);
    const tokens =
      prompt instanceof Int32Array
        ? prompt
        : await engine.tokenizePrompt(prompt, { addSpecial, parseSpecial: true, signal });
    using _held = await options.memory.hold(needsOfTokens(tokens.length), signal, request.caller.tenant);
    const lora = chosen === engine ? undefined : chosen.model.name;
    const prefix = { prompt: tokens, ...withoutUndefined({ cacheSalt: asked.cacheSalt, lora }) };
    return act({ prefix, asked, signal });
  });
  if (body === undefined) return reply;
  // Routers may ask for each request.
  request.log[order === 'lookup' ? 'debug' : 'info']({ order, ...body }, orderDone);
  return body;
}

function readPrefixBody(body: unknown, limits: ParseLimits) {
  const reader = bodyReader(body, limits);
  const prefix: ParsedPrefix = readPrefix(reader, limits);
  const to = reader.choice('to', ['pool', 'host'] as const);
  const ttlSeconds = reader.number('ttl_seconds', { min: 0.001, max: ttlMaxSeconds });
  const places = reader.list(
    'places',
    (item, name) => {
      if (typeof item === 'string' && item.length <= nameLengthMax) return item;
      throw reader.invalid(name, '`pool` or the name of a tier', describeValue(item));
    },
    { min: 1, max: placesMax },
  );
  reader.finish();
  return { ...prefix, ...withoutUndefined({ to, ttlSeconds, places }) };
}

/** By the name of the pin, or by the prompt. */
function readUnpin(body: unknown, limits: ParseLimits) {
  const reader = bodyReader(body, limits);
  const pin = reader.string('pin', { min: 1, max: nameLengthMax });
  if (pin === undefined) {
    const prefix = readPrefix(reader, limits);
    reader.finish();
    return prefix;
  }
  reader.name('model');
  reader.finish();
  return { pin };
}

function readClear(body: unknown, limits: ParseLimits) {
  const reader = bodyReader(body, limits);
  const model = reader.name('model');
  const cacheSalt = readCacheSalt(reader);
  const olderThanSeconds = reader.number('older_than_seconds', { min: 0, max: ageMaxSeconds });
  reader.finish();
  return withoutUndefined({ model, cacheSalt, olderThanSeconds });
}

function readAttach(body: unknown, limits: ParseLimits) {
  const reader = bodyReader(body, limits);
  const model = reader.name('model');
  const given = reader.pathText('tier');
  const spec = reader.required('tier', given, 'a text like "disk:/var/cache/kvasir:100GiB"');
  reader.finish();
  return { ...withoutUndefined({ model }), spec };
}

function readTierName(name: string): string {
  if (tierName.test(name) && name !== 'pool') return name;
  throw bodyReader({}).invalid('name', 'letters, digits, - and _, at most 32, and not pool', describeValue(name));
}

const pinBody = ({ name, blocks, cachedBlocks, ttlSeconds, secondsLeft }: PinnedPrefixInfo) => ({
  name,
  blocks,
  cached_blocks: cachedBlocks,
  ttl_seconds: ttlSeconds,
  seconds_left: Math.round(secondsLeft),
});

const tierPinBody = ({ name, blocks, ttlSeconds, secondsLeft }: Omit<PinnedPrefixInfo, 'cachedBlocks'>) => ({
  name,
  blocks,
  ttl_seconds: ttlSeconds,
  seconds_left: Math.round(secondsLeft),
});

function workBody({ inUse, ...work }: { readonly inUse?: number; readonly blocks: number }): object {
  return { ...work, ...(inUse === undefined ? {} : { in_use: inUse }) };
}

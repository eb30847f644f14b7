import type { OutgoingHttpHeaders } from 'node:http';
import type { FastifyInstance } from 'fastify';
import type { Clock } from '../../base/clock.ts';
import { describeValue } from '../../base/describe-value.ts';
import { tierReports } from '../../connector/offloading/tier-report.ts';
import { engineClosed } from '../../core/errors.ts';
import type { LossChoice } from '../../engine/cache-contract.ts';
import type { AsyncEngine } from '../../engine/contract.ts';
import { type BodyOptions, bodyReader } from '../http/body-reader.ts';
import { faultInjectionOff } from '../http/server-errors.ts';
import { EventStream, type EventStreamOptions } from '../http/sse.ts';
import { lossExample } from '../openapi/examples.ts';
import { CacheFeed, everyTenant } from './cache-feed.ts';

export interface CacheRouteOptions extends EventStreamOptions {
  readonly clock: Clock;
  /** Whether `POST /cache/lose` is allowed. */
  readonly enableFaultInjection: boolean;
  /** While false, `/health` answers 503 and new requests are refused. */
  isAccepting(): boolean;
}

/** How often an open stream of events looks whether the server shuts down. */
const SHUTDOWN_CHECK_MS = 200;
/** Blocks of one loss. */
const LOST_MAX = 4096;

/**
 * `GET /cache/events` shows the pool live, and the requests of the caller; `POST /cache/lose` loses blocks. Only for engines that show
 * their pool.
 */
export function registerCacheRoutes(app: FastifyInstance, engine: AsyncEngine, options: CacheRouteOptions): void {
  const { cache } = engine;
  if (cache === undefined) return;
  const feed = new CacheFeed({
    monitor: cache,
    clock: options.clock,
    canLoseBlocks: options.enableFaultInjection,
    stats: () => engine.stats(),
    tiers: () => tierReports(engine.stats().transfers.connector),
  });
  // Such a stream has no end of its own, and a server that closes waits for its responses.
  const open = new Set<EventStream>();
  app.addHook('preClose', async () => {
    for (const events of open) events.close();
  });
  // The answer to a `HEAD` would not end.
  const about = { summary: 'The pool and its requests, live.', media: 'text/event-stream' } as const;
  app.get('/cache/events', { exposeHeadRoute: false, config: { about } }, (request, reply) => {
    if (!options.isAccepting()) throw engineClosed();
    const events = new EventStream(reply.raw, reply.getHeaders() as OutgoingHttpHeaders, options);
    open.add(events);
    const { isAdmin, tenant } = request.caller;
    const leave = feed.add(events, isAdmin ? everyTenant : tenant);
    const check = setInterval(() => {
      if (!options.isAccepting()) events.close();
    }, SHUTDOWN_CHECK_MS);
    request.exchange.onEnd(() => {
      clearInterval(check);
      leave();
      events.close();
      open.delete(events);
    });
    return reply.hijack();
  });
  app.post(
    '/cache/lose',
    {
      config: {
        isForAdmins: true,
        about: { summary: 'Loses blocks.', body: { example: lossExample, reads: [parseLoss] } },
      },
    },
    async (request) => {
      if (!options.enableFaultInjection) throw faultInjectionOff({});
      const loss = await cache.loseBlocks(parseLoss(request.body));
      feed.lost(loss);
      return loss;
    },
  );
}

/** `{ "blocks": [3, 4] }`, or `{ "count": 2 }` with `request` and `seed` if wanted. */
function parseLoss(body: unknown, options?: BodyOptions): LossChoice {
  const reader = bodyReader(body, options);
  const blocks = reader.list('blocks', readBlock, { min: 1, max: LOST_MAX });
  const count = reader.integer('count', { min: 1, max: LOST_MAX });
  const request = reader.name('request');
  const seed = reader.integer('seed', { min: 0 });
  reader.finish();
  if (blocks !== undefined) {
    if (count === undefined && request === undefined && seed === undefined) return { blocks };
    throw reader.invalid('blocks', 'absent if there is `count`, `request` or `seed`', 'a list');
  }
  return {
    count: reader.required('count', count, 'a number of blocks, or send `blocks`'),
    ...(request === undefined ? {} : { request }),
    ...(seed === undefined ? {} : { seed }),
  };

  function readBlock(item: unknown, name: string): number {
    if (typeof item === 'number' && Number.isInteger(item)) return item;
    throw reader.invalid(name, 'the number of a block', describeValue(item));
  }
}

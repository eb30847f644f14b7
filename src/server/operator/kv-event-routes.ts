import type { FastifyInstance } from 'fastify';
import type { AsyncEngine } from '../../engine/contract.ts';

/**
 * `GET /kv_event_sources` tells where KV events are published, as in vLLM. `GET /kv_events/blocks` lists the blocks that are cached, for
 * comparison with a subscriber. `POST /reset_prefix_cache` empties the prefix cache. Blocks are those of all keys, and events have
 * the tokens of prompts.
 */
export function registerKvEventRoutes(app: FastifyInstance, { cache }: AsyncEngine): void {
  if (cache === undefined) return;
  const { kvEvents } = cache;
  const about = (summary: string) => ({ config: { isForAdmins: true, about: { summary } } });
  app.get('/kv_event_sources', about('Where KV events are published.'), () =>
    (kvEvents?.sources() ?? []).map(({ dataParallelRank, endpoint, replayEndpoint, topic }) => ({
      data_parallel_rank: dataParallelRank,
      endpoint,
      replay_endpoint: replayEndpoint ?? null,
      topic,
    })),
  );
  if (kvEvents !== undefined)
    app.get('/kv_events/blocks', about('The cached blocks.'), () => {
      const { nextSequence, media } = kvEvents.snapshot();
      return {
        next_seq: nextSequence,
        // As texts: a number of JavaScript has 53 bits.
        blocks: media.map(({ medium, group, hashes }) => ({
          medium,
          group_idx: group,
          block_hashes: hashes.map(String),
        })),
      };
    });
  app.post('/reset_prefix_cache', about('Empties the prefix cache.'), () => ({ blocks_left: cache.reset() }));
}

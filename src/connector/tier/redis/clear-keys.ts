import { AssertionError } from '../../../base/assert.ts';
import { saltTagBytes } from '../../salt-tag.ts';
import type { ClearFilter, TierWork } from '../../tier-orders.ts';
import { saltTagAt } from '../block-header.ts';
import { hasSaltTag } from '../clear-filter.ts';
import type { RedisClient } from './redis-client.ts';
import type { RedisRequest } from './redis-connection.ts';

export interface ClearKeysOptions {
  /** Of the keys of this model, layout and rank. No character of it has a meaning in a pattern. */
  readonly prefix: string;
  readonly blockBytes: number;
  readonly filter: ClearFilter;
  readonly nowMs: number;
  ask<T>(request: RedisRequest<T>): Promise<T>;
}

/** How many keys the server looks at for one answer, so that other commands do not wait long. */
const keysPerScan = 500;

/**
 * Removes keys with SCAN, on each node of a cluster. SCAN gives each key that exists from the begin to the end at least once. It rejects if a
 * node cannot be asked.
 */
export async function clearKeys(options: ClearKeysOptions): Promise<TierWork> {
  const { ask, prefix, blockBytes } = options;
  let blocks = 0;
  let failed = 0;
  for (let node = 0; ; node++) {
    for (let cursor = '0'; ; ) {
      const page = await ask({
        send: async (client) => {
          const nodes = client.nodes?.('master') ?? [client];
          return node >= nodes.length ? null : nodes[node]!.scan(cursor, 'MATCH', `${prefix}*`, 'COUNT', keysPerScan);
        },
        isAnswer: isPage,
      });
      if (page === null) return { blocks, bytes: blocks * blockBytes, failed };
      const [next, names] = page;
      const removed = await Promise.all(names.map((name) => remove(name, options)));
      for (const count of removed) {
        if (count === undefined) failed++;
        else blocks += count;
      }
      if (next === '0') break;
      cursor = next;
    }
  }
}

/** How many keys were removed; undefined: the call failed. */
async function remove(name: string, { ask, filter, nowMs }: ClearKeysOptions): Promise<number | undefined> {
  const { saltTag, beforeMs } = filter;
  try {
    if (beforeMs !== undefined) {
      const idle = await ask({ send: (client: RedisClient) => client.object('IDLETIME', name), isAnswer: isIdleTime });
      if (idle === null || nowMs - idle * 1000 >= beforeMs) return 0;
    }
    if (saltTag !== undefined) {
      const last = saltTagAt + saltTagBytes - 1;
      const head = await ask({
        send: (client: RedisClient) => client.getrangeBuffer(name, 0, last),
        isAnswer: Buffer.isBuffer,
      });
      if (!hasSaltTag(head, saltTag)) return 0;
    }
    return await ask({ send: (client: RedisClient) => client.unlink(name), isAnswer: isZeroOrOne });
  } catch (error) {
    if (error instanceof AssertionError) throw error;
    return undefined;
  }
}

type Page = readonly [cursor: string, names: readonly string[]];
const isPage = (answer: unknown): answer is Page | null =>
  answer === null ||
  (Array.isArray(answer) && typeof answer[0] === 'string' && Array.isArray(answer[1]) && answer[1].every(isText));
const isText = (item: unknown): item is string => typeof item === 'string';
const isIdleTime = (answer: unknown): answer is number | null => answer === null || typeof answer === 'number';
const isZeroOrOne = (answer: unknown): answer is number => answer === 0 || answer === 1;

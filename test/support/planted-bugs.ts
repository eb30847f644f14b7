import type { BlockId } from '../../src/core/ids.ts';
import type { KvCache } from '../../src/kv/kv-cache.ts';
import type { KvRequest } from '../../src/kv/kv-request.ts';
import type { ExternalKv } from '../../src/scheduler/external-kv.ts';

/**
 * Two bugs that repair more than necessary, for tests that must find them. With both, the text and the engine's count of failed blocks
 * stay right. They are planted into the classes of one build: the sources, or `dist` (see `preload.ts`).
 *
 *   recompute-from-first   all tokens from the first invalid block on are computed again, although later blocks are valid
 *   discard-load           one failed block makes all other blocks of its load invalid
 */
export const plantedBugs = ['recompute-from-first', 'discard-load'] as const;
export type PlantedBug = (typeof plantedBugs)[number];

export interface BuggyClasses {
  readonly KvCache: typeof KvCache;
  readonly ExternalKv: typeof ExternalKv;
}

/** Returns a function that removes the bug. */
export function plant(bug: PlantedBug, classes: BuggyClasses): () => void {
  return bug === 'recompute-from-first'
    ? plantRecompute(classes.KvCache.prototype)
    : plantDiscard(classes.KvCache.prototype, classes.ExternalKv.prototype);
}

function plantRecompute(kv: KvCache): () => void {
  const { awaitsLoad, scheduleTokens } = kv;
  const original = { awaitsLoad, scheduleTokens };
  kv.awaitsLoad = function (this: KvCache, request: KvRequest): boolean {
    // The call plans the request again if necessary.
    const isReplanned = request.needsPlan;
    const awaits = original.awaitsLoad.call(this, request);
    if (isReplanned) {
      const first = request.spans.start(0);
      request.spans.clear();
      request.spans.push(first, request.tokens.length);
    }
    return awaits;
  };
  kv.scheduleTokens = function (this: KvCache, request: KvRequest, budget: number) {
    if (request.needsPlan) this.awaitsLoad(request);
    return original.scheduleTokens.call(this, request, budget);
  };
  return () => Object.assign(kv, original);
}

function plantDiscard(kv: KvCache, external: ExternalKv): () => void {
  const { loadFailed } = kv;
  const { receive } = external;
  const original = { loadFailed, receive };
  let arrived: BlockId[] = [];
  external.receive = function (this: ExternalKv, ...args: Parameters<ExternalKv['receive']>) {
    const received = original.receive.apply(this, args);
    for (const { blocks } of received) {
      const loaded = blocks.filter(({ result }) => result === 'loaded').map(({ block }) => block);
      if (loaded.length < blocks.length) arrived.push(...loaded);
    }
    return received;
  };
  kv.loadFailed = function (this: KvCache, block: BlockId, isBusy: boolean) {
    const users = original.loadFailed.call(this, block, isBusy);
    const blocks = arrived;
    arrived = [];
    return blocks.length === 0 ? users : [...users, ...this.invalidate(blocks)];
  };
  return () => {
    kv.loadFailed = loadFailed;
    external.receive = receive;
  };
}

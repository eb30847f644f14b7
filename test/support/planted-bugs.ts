import type { BlockId } from '../../src/core/ids.ts';
import type { KvCache } from '../../src/kv/kv-cache.ts';
import type { KvRequest } from '../../src/kv/kv-request.ts';
import type { ExternalKv } from '../../src/scheduler/external-kv.ts';

/**
 * Two bugs that repair more than was lost, for tests of what must find them. The text stays right with both, and so does the
 * engine's count of failed blocks. They are planted into the classes of one build: the sources, or `dist` (see `preload.ts`).
 *
 *   recompute-from-first   everything from the first lost block on is computed again, although later blocks are valid
 *   discard-load           one block that fails discards all other blocks of its load
 */
export const plantedBugs = ['recompute-from-first', 'discard-load'] as const;
export type PlantedBug = (typeof plantedBugs)[number];

export interface BuggyClasses {
  readonly KvCache: typeof KvCache;
  readonly ExternalKv: typeof ExternalKv;
}

/** Returns a function that takes the bug out again. */
export function plant(bug: PlantedBug, classes: BuggyClasses): () => void {
  return bug === 'recompute-from-first'
    ? plantRecompute(classes.KvCache.prototype)
    : plantDiscard(classes.KvCache.prototype, classes.ExternalKv.prototype);
}

function plantRecompute(kv: KvCache): () => void {
  const { awaitsLoad, scheduleTokens: takeRows } = kv;
  const original = { awaitsLoad, takeRows };
  kv.awaitsLoad = function (this: KvCache, request: KvRequest): boolean {
    // The call plans the request again if that is due.
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
    return original.takeRows.call(this, request, budget);
  };
  return () => Object.assign(kv, original);
}

function plantDiscard(kv: KvCache, external: ExternalKv): () => void {
  const { loadFailed } = kv;
  const { receive } = external;
  const original = { loadFailed, receive };
  let arrived: BlockId[] = [];
  external.receive = function (this: ExternalKv, ...args: Parameters<ExternalKv['receive']>) {
    const outcomes = original.receive.apply(this, args);
    for (const { decided, placed } of outcomes) {
      const failed = new Set(decided.failed.map(({ block }) => block));
      if (failed.size > 0) arrived.push(...placed.map(({ block }) => block).filter((block) => !failed.has(block)));
    }
    return outcomes;
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

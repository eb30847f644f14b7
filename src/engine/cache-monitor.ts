import { assert } from '../base/assert.ts';
import { Prng } from '../base/prng.ts';
import { invalidParameter } from '../core/errors.ts';
import { type BlockId, NULL_BLOCK, type RequestId } from '../core/ids.ts';
import type { RequestStats, RequestUpdate } from '../core/request.ts';
import type { RequestPhase } from '../scheduler/contract.ts';
import type { Inspector } from '../scheduler/inspector.ts';
import type { SchedulerInterface } from '../scheduler/scheduler-interface.ts';
import type { CacheMonitor, CacheShape, CacheWatch, Loss, LossChoice, RequestTimeline } from './cache-contract.ts';
import type { EngineParts } from './engine-parts.ts';
import { requestEnded } from './errors.ts';
import type { KvEventMonitor } from './kv-events/contract.ts';

/** Requests that have ended and are still shown. */
const FINISHED_SHOWN = 24;
/** Phases of one request that are kept; the oldest are dropped. */
const PHASES_MAX = 64;

export interface CacheMonitorParts {
  readonly scheduler: Pick<SchedulerInterface, 'invalidate' | 'stats' | 'resetPrefixCache'>;
  readonly inspector: Inspector;
  /** Overwrites the KV of these blocks on all ranks, where that is possible. No step is in flight. */
  readonly overwrite?: ((blocks: readonly BlockId[]) => void) | undefined;
  /** Wakes the engine's loop, so that it calls `loseNow`. @throws if the engine is closed or broken. */
  wake(): void;
  nowMs(): number;
  readonly kvEvents?: KvEventMonitor | undefined;
}

/** The monitor of an engine; undefined if it shows nothing. */
export function cacheMonitorOf(
  { scheduler, inspector, overwriteBlocks, kvEvents }: EngineParts,
  wake: () => void,
  nowMs: () => number,
): EngineCacheMonitor | undefined {
  if (inspector === undefined) return undefined;
  return new EngineCacheMonitor({ scheduler, inspector, overwrite: overwriteBlocks, wake, nowMs, kvEvents });
}

interface Timeline extends RequestTimeline {
  readonly phases: { readonly phase: RequestPhase | 'finished'; readonly startMs: number }[];
  stats: RequestStats;
}

interface PendingLoss {
  readonly choice: LossChoice;
  resolve(loss: Loss): void;
  reject(error: unknown): void;
}

/** See `CacheMonitor`. The engine calls `changed` after each step and `loseNow` between steps. */
export class EngineCacheMonitor implements CacheMonitor {
  readonly shape: CacheShape;
  readonly #parts: CacheMonitorParts;
  readonly #timelines = new Map<RequestId, Timeline>();
  #finished: RequestId[] = [];
  #pending: PendingLoss[] = [];
  #watches = 0;
  #version = 0;

  constructor(parts: CacheMonitorParts) {
    const { groups, blockCount, blockBytes } = parts.inspector.spec;
    this.#parts = parts;
    this.shape = {
      blockCount,
      blockBytes,
      groups: groups.map((group) => ({
        kind: group.kind,
        blockSize: group.blockSize,
        layers: group.layers.length,
        ...(group.kind === 'window' ? { window: group.window } : {}),
      })),
    };
  }

  get version(): number {
    return this.#version;
  }

  watch(): CacheWatch {
    this.#watches++;
    this.#notePhases();
    let isOpen = true;
    return {
      drawBlocks: (cells) => this.#parts.inspector.drawBlocks(cells),
      timelines: () => {
        this.#notePhases();
        return [...this.#timelines.values()];
      },
      tablesOf: (id) => this.#parts.inspector.tablesOf(id as RequestId),
      close: () => {
        assert(isOpen, 'a watch is closed once');
        isOpen = false;
        if (--this.#watches > 0) return;
        this.#timelines.clear();
        this.#finished = [];
      },
    };
  }

  loseBlocks(choice: LossChoice): Promise<Loss> {
    return new Promise((resolve, reject) => {
      this.#checkBlocks(choice);
      this.#parts.wake();
      this.#pending.push({ choice, resolve, reject });
    });
  }

  get kvEvents(): KvEventMonitor | undefined {
    return this.#parts.kvEvents;
  }

  reset(): number {
    this.#parts.wake();
    const left = this.#parts.scheduler.resetPrefixCache();
    this.changed();
    return left;
  }

  /** Blocks or requests may have changed. O(1) without watchers. */
  changed(): void {
    this.#version++;
    if (this.#watches > 0) this.#notePhases();
  }

  get hasPending(): boolean {
    return this.#pending.length > 0;
  }

  /** Called between two steps. Returns the updates of requests that end by the policy `fail`. */
  loseNow(): readonly RequestUpdate[] {
    const pending = this.#pending;
    this.#pending = [];
    return pending.flatMap((loss) => this.#lose(loss));
  }

  /** The last statistics of a request that has ended. */
  ended(id: RequestId, stats: RequestStats): void {
    const timeline = this.#timelines.get(id);
    if (timeline !== undefined) timeline.stats = stats;
    this.changed();
  }

  /** The engine ends: no loss happens any more. */
  rejectPending(error: unknown): void {
    for (const { reject } of this.#pending) reject(error);
    this.#pending = [];
  }

  #lose({ choice, resolve, reject }: PendingLoss): readonly RequestUpdate[] {
    const { scheduler, overwrite } = this.#parts;
    const blocks = this.#choose(choice);
    if (blocks === undefined) {
      reject(requestEnded({ request: 'request' in choice ? String(choice.request) : '' }));
      return nothing;
    }
    const before = scheduler.stats().transfers;
    const updates = scheduler.invalidate(blocks);
    overwrite?.(blocks);
    const after = scheduler.stats().transfers;
    this.changed();
    resolve({
      blocks,
      requests: after.recoveries + after.failedRequests - before.recoveries - before.failedRequests,
      tokens: after.affectedTokens - before.affectedTokens,
    });
    return updates;
  }

  #checkBlocks(choice: LossChoice): void {
    if (!('blocks' in choice)) return;
    const last = this.shape.blockCount - 1;
    for (const block of choice.blocks)
      if (!Number.isInteger(block) || block <= NULL_BLOCK || block > last)
        throw invalidParameter({
          parameter: 'blocks',
          expected: `numbers of blocks, 1 to ${last}`,
          actual: String(block),
        });
  }

  /** Undefined: the request has ended. */
  #choose(choice: LossChoice): readonly BlockId[] | undefined {
    const { inspector } = this.#parts;
    if ('blocks' in choice) {
      return [...new Set(choice.blocks)] as BlockId[];
    }
    const id = this.#idOf(choice.request);
    if (choice.request !== undefined && id === undefined) return undefined;
    const candidates = inspector.blocksWithContent(id);
    const prng = new Prng(choice.seed ?? Math.floor(this.#parts.nowMs() * 1000) % 2 ** 31);
    const chosen: BlockId[] = [];
    while (chosen.length < choice.count && candidates.length > 0)
      chosen.push(...candidates.splice(prng.between(0, candidates.length - 1), 1));
    return chosen;
  }

  /** Clients know the id of the answer; the engine adds a number to it. */
  #idOf(request: string | undefined): RequestId | undefined {
    if (request === undefined) return undefined;
    const all = this.#parts.inspector.requests().map(({ id }) => id);
    return (
      all.find((id) => id === request || shownName(id) === request) ?? all.find((id) => id.startsWith(`${request}#`))
    );
  }

  #notePhases(): void {
    const startMs = this.#parts.nowMs();
    const seen = new Set<RequestId>();
    for (const { id, tenant, phase, stats } of this.#parts.inspector.requests()) {
      seen.add(id);
      const timeline = this.#timelines.get(id) ?? { id, name: shownName(id), tenant, phases: [], stats };
      this.#timelines.set(id, timeline);
      timeline.stats = stats;
      if (timeline.phases.at(-1)?.phase !== phase) timeline.phases.push({ phase, startMs });
      if (timeline.phases.length > PHASES_MAX) timeline.phases.splice(0, timeline.phases.length - PHASES_MAX);
    }
    for (const [id, { phases }] of this.#timelines) {
      if (seen.has(id) || phases.at(-1)?.phase === 'finished') continue;
      phases.push({ phase: 'finished', startMs });
      this.#finished.push(id);
    }
    for (const id of this.#finished.splice(0, Math.max(0, this.#finished.length - FINISHED_SHOWN)))
      this.#timelines.delete(id);
  }
}

/** `chatcmpl-12.0` for `chatcmpl-1f0c...#12.0`: what the request is, and the number that the engine gave it. */
function shownName(id: RequestId): string {
  const [kind] = id.split(/[-_#]/, 1);
  return `${kind}-${id.slice(id.lastIndexOf('#') + 1)}`;
}

const nothing: readonly never[] = [];

import type { Clock } from '../../base/clock.ts';
import type { TierReport } from '../../connector/offloading/tier-report.ts';
import type { CacheMonitor, CacheWatch, Loss, RequestTimeline } from '../../engine/cache-contract.ts';
import type { EngineStats } from '../../engine/contract.ts';
import { cellStates } from '../../kv/draw-blocks.ts';
import { changedRuns } from './changed-runs.ts';

/** Viewers get at most one state in this time. */
export const TICK_MS = 200;
/** Limits of one message, so that its cost does not grow with the queue or the context. */
const REQUESTS_MAX = 48;
const TABLES_MAX = 12;
const TABLE_BLOCKS_MAX = 1024;

/** One connection. `send` resolves when the reader has room for the next message. */
export interface Viewer {
  send(data: string): Promise<void>;
}

export interface CacheFeedParts {
  readonly monitor: CacheMonitor;
  readonly clock: Clock;
  readonly canLoseBlocks: boolean;
  stats(): EngineStats;
  tiers(): readonly TierReport[];
}

interface ViewerState {
  readonly viewer: Viewer;
  isBusy: boolean;
  /** Its next message has the whole state: it is new, or was too slow for the last change. */
  needsAll: boolean;
}

/** Viewers with this audience see the requests of all tenants. */
export const everyTenant = Symbol('every tenant');

/** Viewers that see the same requests: those of one tenant, or of all. */
interface Audience {
  readonly tenant: string | undefined | typeof everyTenant;
  readonly viewers: Set<ViewerState>;
  /** The JSON of what the viewers have, by name. */
  known: Map<string, string>;
}

/**
 * Sends the state of the pool and the requests to people who watch it: first all of it, then what has changed, at most five times
 * a second. All viewers of an audience share one computation. Without viewers there is no timer and no computation.
 */
export class CacheFeed {
  readonly #parts: CacheFeedParts;
  readonly #audiences = new Map<Audience['tenant'], Audience>();
  #watch: CacheWatch | undefined;
  #timer: NodeJS.Timeout | undefined;
  #cells = new Uint8Array(0);
  #nextCells = new Uint8Array(0);
  #version = -1;

  constructor(parts: CacheFeedParts) {
    this.#parts = parts;
  }

  get viewerCount(): number {
    return this.#viewers().length;
  }

  /** Returns the call that removes the viewer. */
  add(viewer: Viewer, tenant: Audience['tenant'] = everyTenant): () => void {
    const { monitor, canLoseBlocks } = this.#parts;
    const state: ViewerState = { viewer, isBusy: false, needsAll: true };
    if (this.#audiences.size === 0) this.#begin();
    const audience = this.#audiences.get(tenant) ?? { tenant, viewers: new Set(), known: new Map() };
    this.#audiences.set(tenant, audience);
    audience.viewers.add(state);
    this.#send(state, JSON.stringify({ type: 'start', pool: monitor.shape, states: cellStates, canLoseBlocks }));
    return () => {
      if (!audience.viewers.delete(state) || audience.viewers.size > 0) return;
      this.#audiences.delete(tenant);
      if (this.#audiences.size === 0) this.#end();
    };
  }

  /** Tells the viewers at once, because a recovery can be shorter than a tick. Viewers that are too slow do not see it. */
  lost(loss: Loss): void {
    if (this.#audiences.size > 0) this.tick(loss);
  }

  /** Called by the timer: sends the changes since the last tick. */
  tick(loss?: Loss): void {
    const { monitor } = this.#parts;
    const isAnyNew = this.#viewers().some(({ needsAll, isBusy }) => needsAll && !isBusy);
    const { version } = monitor;
    if (version === this.#version && !isAnyNew) return;
    this.#version = version;
    const runs = this.#changedRuns();
    for (const audience of this.#audiences.values()) this.#tell(audience, runs, loss);
  }

  #tell(audience: Audience, runs: readonly number[], loss: Loss | undefined): void {
    const changes = this.#changes(audience, runs, loss);
    let all: string | undefined;
    for (const state of audience.viewers) {
      if (state.isBusy) {
        state.needsAll ||= changes !== undefined;
        continue;
      }
      if (state.needsAll) {
        state.needsAll = false;
        all ??= this.#all(audience, loss);
        this.#send(state, all);
      } else if (changes !== undefined) this.#send(state, changes);
    }
  }

  #viewers(): ViewerState[] {
    return [...this.#audiences.values()].flatMap(({ viewers }) => [...viewers]);
  }

  #begin(): void {
    const { monitor } = this.#parts;
    this.#watch = monitor.watch();
    this.#cells = new Uint8Array(monitor.shape.blockCount);
    this.#nextCells = new Uint8Array(monitor.shape.blockCount);
    this.#version = -1;
    this.#timer = setInterval(() => this.tick(), TICK_MS);
    this.#timer.unref();
  }

  #end(): void {
    clearInterval(this.#timer);
    this.#watch?.close();
    this.#watch = undefined;
  }

  #send(state: ViewerState, data: string): void {
    state.isBusy = true;
    void state.viewer.send(data).then(() => {
      state.isBusy = false;
    });
  }

  /** The blocks that have changed since the last call. */
  #changedRuns(): number[] {
    const next = this.#nextCells;
    this.#watch!.drawBlocks(next);
    const runs = changedRuns(this.#cells, next);
    this.#nextCells = this.#cells;
    this.#cells = next;
    return runs;
  }

  /** What has changed for this audience since the last call; undefined: nothing. */
  #changes(audience: Audience, runs: readonly number[], loss: Loss | undefined): string | undefined {
    const parts = this.#named(audience.tenant);
    const changed = [...parts].filter(([name, json]) => audience.known.get(name) !== json);
    audience.known = parts;
    if (runs.length === 0 && changed.length === 0 && loss === undefined) return undefined;
    return this.#message({ isWhole: false, runs, lost: loss?.blocks }, new Map(changed));
  }

  /** The state that `#changes` has computed last, for a viewer that has none. */
  #all({ known }: Audience, loss: Loss | undefined): string {
    const runs = changedRuns(undefined, this.#cells);
    return this.#message({ isWhole: true, runs, lost: loss?.blocks }, known);
  }

  #message(fields: object, parts: ReadonlyMap<string, string>): string {
    const head = JSON.stringify({ type: 'state', nowMs: this.#parts.clock.nowMs(), ...fields });
    const rows = [...parts].map(([name, json]) => `${JSON.stringify(name)}:${json}`);
    return `${head.slice(0, -1)},"parts":{${rows.join(',')}}}`;
  }

  /** Every named part of the state as JSON, so that only changed parts are sent. */
  #named(tenant: Audience['tenant']): Map<string, string> {
    const watch = this.#watch!;
    const all = watch.timelines();
    const shown = shownRequests(tenant === everyTenant ? all : all.filter((timeline) => timeline.tenant === tenant));
    const parts = new Map<string, string>();
    const add = (name: string, value: unknown): void => void parts.set(name, JSON.stringify(value));
    add(
      'requests',
      shown.map(({ name }) => name),
    );
    for (const timeline of shown) add(`request ${timeline.name}`, rowOf(timeline));
    for (const { id, name } of shown.filter((timeline) => !isFinished(timeline)).slice(0, TABLES_MAX)) {
      const tables = watch.tablesOf(id);
      if (tables !== undefined)
        add(
          `tables ${name}`,
          tables.map((table) => table.slice(0, TABLE_BLOCKS_MAX)),
        );
    }
    add('totals', totalsOf(this.#parts.stats()));
    add('tiers', this.#parts.tiers());
    return parts;
  }
}

const isFinished = ({ phases }: RequestTimeline): boolean => phases.at(-1)?.phase === 'finished';

/** Requests that run come first, then those that wait, then those that have ended; in each group by arrival. */
function shownRequests(timelines: readonly RequestTimeline[]): RequestTimeline[] {
  const rankOf = (timeline: RequestTimeline): number =>
    isFinished(timeline) ? 2 : timeline.phases.at(-1)?.phase === 'queued' ? 1 : 0;
  const ranked = [0, 1, 2].map((rank) => timelines.filter((timeline) => rankOf(timeline) === rank));
  // The newest of those that have ended.
  const [running, waiting, finished] = ranked as [RequestTimeline[], RequestTimeline[], RequestTimeline[]];
  return [...running, ...waiting, ...finished.reverse()].slice(0, REQUESTS_MAX);
}

function rowOf({ phases, stats }: RequestTimeline) {
  const { promptTokens, outputTokens, cachedTokens, externalTokens, computedTokens, recomputedTokens, preemptions } =
    stats;
  return {
    phases: phases.map(({ phase, startMs }) => [phase, Math.round(startMs * 10) / 10]),
    promptTokens,
    outputTokens,
    cachedTokens,
    externalTokens: externalTokens ?? 0,
    computedTokens,
    recomputedTokens,
    preemptions,
  };
}

function totalsOf({ running, waiting, blocks, transfers, ...stats }: EngineStats) {
  const { promptTokens, cachedTokens, externalTokens, generatedTokens, recomputedTokens, preemptions } = stats;
  const { failedLoads, recoveries, affectedTokens } = transfers;
  return {
    running,
    waiting,
    blocks,
    promptTokens,
    cachedTokens,
    externalTokens,
    generatedTokens,
    recomputedTokens,
    preemptions,
    failedLoads,
    recoveries,
    affectedTokens,
  };
}

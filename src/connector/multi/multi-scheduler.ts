import type { Clock } from '../../base/clock.ts';
import type { JsonObject } from '../../base/json.ts';
import type { RequestId } from '../../core/ids.ts';
import type { BlockKey } from '../block-key.ts';
import {
  askLaterMaxMs,
  type ConnectorPlan,
  type ConnectorRequest,
  type ConnectorStep,
  type FoundBlock,
  type KvBlock,
  type KvEvent,
  type KvLoadPolicy,
  type LoadJob,
  type LoadMode,
  type LoadOutcome,
  loadTimeoutOf,
  type MatchAnswer,
  type PlaceContent,
  type PlaceKind,
  type SaveJob,
  type SchedulerConnector,
  type TransferId,
  type TransferOutcomes,
  type ValidBlock,
  type WantedBlock,
} from '../connector.ts';
import { type ConnectorStats, sumOfStats } from '../connector-stats.ts';
import type { TierAdministration } from '../tier-orders.ts';
import { administrationOf } from './multi-administration.ts';
import { messageFor } from './multi-message.ts';
import { countersOf, nameOf, ownCounters, ownName, ownStats, splitName, statsOf } from './names.ts';

/** One connector of the list, and what the list records of it. */
interface Entry {
  readonly side: SchedulerConnector;
  /** In how many of its open saves each block is. */
  readonly saving: Map<BlockKey, number>;
  /** Until when the first answer "ask later" for a request holds. */
  readonly deadlines: Map<RequestId, number>;
}

/** A save that is not decided. */
interface OpenSave {
  readonly entry: Entry;
  undecided: number;
}

/**
 * The scheduler sides of several connectors as one. Of the connectors that have a block, the first loads it. So a load may have blocks of several
 * connectors, and a block that fails is loaded from the next one. All connectors get each block to
 * save, also blocks that another one has loaded. Each sees its own loads, saves and
 * names only, so it works as if it were alone.
 */
export class MultiScheduler implements SchedulerConnector {
  readonly loadPolicy: KvLoadPolicy | undefined;
  readonly loadTimeoutMs: ((tokens: number) => number) | undefined;
  readonly tiers?: TierAdministration;
  readonly #clock: Clock;
  readonly #entries: readonly Entry[];
  readonly #saves = new Map<TransferId, OpenSave>();
  /** Blocks that were loaded since the last step, for the other connectors to save. */
  #loaded: LoadOutcome[] = [];

  constructor(sides: readonly SchedulerConnector[], clock: Clock) {
    this.#clock = clock;
    this.#entries = sides.map((side) => ({ side, saving: new Map(), deadlines: new Map() }));
    // One connector with `always` promises to load all that a request needs.
    this.loadPolicy = sides.every(({ loadPolicy }) => loadPolicy === 'auto') ? 'auto' : 'always';
    const timeouts = sides.map(loadTimeoutOf);
    if (sides.some(({ loadTimeoutMs }) => loadTimeoutMs !== undefined))
      this.loadTimeoutMs = (tokens) => Math.max(...timeouts.map((timeout) => timeout(tokens)));
    const tiers = administrationOf(sides.map((side) => side.tiers));
    if (tiers !== undefined) this.tiers = tiers;
  }

  requestArrived(request: ConnectorRequest): void {
    for (const [i, { side }] of this.#entries.entries()) side.requestArrived?.(this.#requestFor(i, request));
  }

  getMatchedBlocks(request: ConnectorRequest): MatchAnswer {
    const nowMs = this.#clock.nowMs();
    const found = new Map<BlockKey, FoundBlock>();
    const modes = new Set<LoadMode>();
    let deadlineMs: number | undefined;
    for (const [i, { side, deadlines }] of this.#entries.entries()) {
      const answer = side.getMatchedBlocks(this.#requestFor(i, request));
      if (answer.kind === 'askLater') {
        const untilMs = deadlines.get(request.id) ?? Math.min(answer.deadlineMs, nowMs + askLaterMaxMs);
        deadlines.set(request.id, untilMs);
        // Blocks that connectors before it have are not waited for, and neither is a connector that has missed its deadline.
        if (untilMs > nowMs && found.size < request.wanted.length)
          deadlineMs = Math.max(deadlineMs ?? untilMs, untilMs);
        continue;
      }
      for (const block of answer.blocks) {
        if (found.has(block.key)) continue;
        found.set(block.key, { ...block, place: nameOf(i, block.place) });
        modes.add(answer.mode);
      }
    }
    if (deadlineMs !== undefined) return { kind: 'askLater', deadlineMs };
    return { kind: 'found', blocks: [...found.values()], mode: modes.has('async') ? 'async' : 'sync' };
  }

  updateStateAfterAlloc(request: ConnectorRequest, load: LoadJob | undefined, valid: () => readonly KvBlock[]): void {
    for (const [i, { side, deadlines }] of this.#entries.entries()) {
      deadlines.delete(request.id);
      side.updateStateAfterAlloc(request, load && loadOf(i, load), valid);
    }
  }

  buildConnectorMeta(step: ConnectorStep): ConnectorPlan {
    const saves: SaveJob[] = [];
    const extras: (JsonObject | undefined)[] = [];
    const connectorOf = new Map<TransferId, number>();
    const loaded = this.#takeLoaded(step);
    for (const [i, entry] of this.#entries.entries()) {
      const fromOthers = loaded.filter(({ connector }) => connector !== i).map(({ valid }) => valid);
      const plan = entry.side.buildConnectorMeta({
        ...step,
        newlyValid: fromOthers.length === 0 ? step.newlyValid : [...step.newlyValid, ...fromOthers],
        // A block that another connector saves is not saved here yet.
        isSaving: (key) => entry.saving.has(key),
      });
      for (const save of plan.saves) {
        this.#begin(entry, save);
        connectorOf.set(save.transfer, i);
      }
      saves.push(...plan.saves);
      extras.push(plan.extra);
    }
    const extra = messageFor(connectorOf, extras);
    return extra === undefined ? { saves } : { saves, extra };
  }

  updateConnectorOutput(outcomes: TransferOutcomes): void {
    for (const outcome of outcomes.loads) if (outcome.result === 'loaded') this.#loaded.push(outcome);
    const savesOf = new Map<Entry, TransferOutcomes['saves'][number][]>();
    for (const save of outcomes.saves) {
      const entry = this.#ended(save);
      if (entry !== undefined) savesOf.set(entry, [...(savesOf.get(entry) ?? []), save]);
    }
    for (const [i, entry] of this.#entries.entries()) {
      const changes = inPlaces(i, outcomes.placeChanges);
      // Evictions of a connector's own store have no place (`MultiWorker`).
      const evicted = new Set(changes.flatMap((change) => (change.place === '' ? change.evicted : [])));
      entry.side.updateConnectorOutput({
        loads: inPlaces(i, outcomes.loads),
        saves: savesOf.get(entry) ?? [],
        evicted: [...evicted],
        placeChanges: changes.filter(({ place }) => place !== ''),
        counters: ownCounters(i, outcomes.counters),
        ...(outcomes.stats === undefined ? {} : { stats: ownStats(i, outcomes.stats) }),
      });
    }
  }

  requestFinished(
    request: ConnectorRequest,
    valid: () => readonly KvBlock[],
  ): { readonly kvTransferParams?: JsonObject } {
    let params: JsonObject | undefined;
    for (const { side, deadlines } of this.#entries) {
      deadlines.delete(request.id);
      const { kvTransferParams } = side.requestFinished(request, valid);
      // The first connector decides about a field that several of them answer.
      if (kvTransferParams !== undefined) params = { ...kvTransferParams, ...params };
    }
    return params === undefined ? {} : { kvTransferParams: params };
  }

  takeEvents(): readonly KvEvent[] {
    return this.#entries.flatMap(({ side }, i) =>
      side.takeEvents().map((event) => ({ ...event, place: nameOf(i, event.place) })),
    );
  }

  placeKind(place: string): PlaceKind | undefined {
    const split = splitName(place);
    return split && this.#entries[split.connector]?.side.placeKind?.(split.own);
  }

  listed(): readonly PlaceContent[] {
    return this.#entries.flatMap(({ side }, i) =>
      (side.listed?.() ?? []).map(({ place, keys }) => ({ place: nameOf(i, place), keys })),
    );
  }

  counters(): Readonly<Record<string, number>> {
    return Object.assign({}, ...this.#entries.map(({ side }, i) => countersOf(i, side.counters?.() ?? {}))) as Record<
      string,
      number
    >;
  }

  stats(): ConnectorStats {
    return sumOfStats(this.#entries.map(({ side }, i) => statsOf(i, side.stats?.() ?? {})));
  }

  hasPendingWork(): boolean {
    return this.#loaded.length > 0 || this.#entries.some(({ side }) => side.hasPendingWork());
  }

  async close(): Promise<void> {
    await Promise.all(this.#entries.map(({ side }) => side.close()));
  }

  /** The request as the connector sees it: with the places from which its own loads have failed, and its own open saves. */
  #requestFor(connector: number, request: ConnectorRequest): ConnectorRequest {
    const { saving } = this.#entries[connector]!;
    const isPlain = ({ failedFrom, isSaving }: WantedBlock): boolean => failedFrom === undefined && isSaving !== true;
    if (saving.size === 0 && request.wanted.every(isPlain)) return request;
    const wanted = request.wanted.map(({ failedFrom = [], isSaving: _, ...block }): WantedBlock => {
      const own = failedFrom.map((place) => ownName(connector, place)).filter((place) => place !== undefined);
      return {
        ...block,
        ...(own.length === 0 ? {} : { failedFrom: own }),
        ...(saving.has(block.key) ? { isSaving: true } : {}),
      };
    });
    return { ...request, wanted };
  }

  /** With the connector that each block came from. A block that is not valid any more is left out. */
  #takeLoaded(step: ConnectorStep): { readonly connector: number; readonly valid: ValidBlock }[] {
    const loaded = this.#loaded;
    this.#loaded = [];
    return loaded.flatMap(({ group, index, key, requestId, place }) => {
      const block = step.validBlock(key);
      if (block === undefined) return [];
      return [{ connector: splitName(place)!.connector, valid: { group, index, key, block, requestId } }];
    });
  }

  #begin(entry: Entry, { transfer, blocks }: SaveJob): void {
    this.#saves.set(transfer, { entry, undecided: blocks.length });
    for (const { key } of blocks) entry.saving.set(key, (entry.saving.get(key) ?? 0) + 1);
  }

  /** The connector of the save, one of whose blocks is decided. */
  #ended({ transfer, key }: TransferOutcomes['saves'][number]): Entry | undefined {
    const save = this.#saves.get(transfer);
    if (save === undefined) return undefined;
    if (--save.undecided === 0) this.#saves.delete(transfer);
    const { saving } = save.entry;
    const count = saving.get(key)! - 1;
    if (count > 0) saving.set(key, count);
    else saving.delete(key);
    return save.entry;
  }
}

/** What is in the places of the connector, with its own names. */
function inPlaces<Item extends { readonly place: string }>(connector: number, items: readonly Item[]): Item[] {
  const own: Item[] = [];
  for (const item of items) {
    const place = ownName(connector, item.place);
    if (place !== undefined) own.push({ ...item, place });
  }
  return own;
}

/** The connector's part of a load; undefined: it has none. */
export function loadOf(connector: number, load: LoadJob): LoadJob | undefined {
  const blocks = inPlaces(connector, load.blocks);
  return blocks.length === 0 ? undefined : { ...load, blocks };
}

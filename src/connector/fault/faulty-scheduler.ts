import { setMaxListeners } from 'node:events';
import type { JsonObject } from '../../base/json.ts';
import type { Timer } from '../../base/timers.ts';
import type { RequestId } from '../../core/ids.ts';
import type { BlockKey } from '../block-key.ts';
import type {
  ConnectorPlan,
  ConnectorRequest,
  ConnectorStep,
  KvBlock,
  KvEvent,
  KvLoadPolicy,
  LoadJob,
  MatchAnswer,
  PlaceContent,
  PlaceKind,
  SchedulerConnector,
  SchedulerConnectorContext,
  TransferOutcomes,
} from '../connector.ts';
import { delay } from './delay.ts';
import { FaultDice, type FaultPlan, type FaultRule } from './fault-rules.ts';
import { HungCalls } from './hung-calls.ts';

/** Blocks without an answer by then are missing. */
const lookupTimeoutMs = 1_000;
/** The engine waits a little longer, so that it gets the blocks that were found in time. */
const graceMs = 100;

/** The faults of one look-up: from the first question for a request until its admission. */
interface Lookup {
  readonly drawn: Set<BlockKey>;
  readonly lost: Set<BlockKey>;
  readonly controller: AbortController;
  readonly deadlineMs: number;
  readonly timer: Timer;
  /** Blocks whose look-up stalls. */
  stalled: number;
  /** The answer is not needed any more. */
  isOver: boolean;
}

/**
 * The scheduler side of a connector that has no tier to wrap, with faults of look-ups (`on: has`). Found blocks with a fault are left out of
 * the answer. While a look-up is slow or hangs, the answer is `askLater`.
 */
export class FaultyScheduler implements SchedulerConnector {
  readonly #inner: SchedulerConnector;
  readonly #context: SchedulerConnectorContext;
  readonly #dice: FaultDice;
  readonly #hung = new HungCalls();
  readonly #lookups = new Map<RequestId, Lookup>();

  constructor(inner: SchedulerConnector, context: SchedulerConnectorContext, plan: FaultPlan) {
    this.#inner = inner;
    this.#context = context;
    this.#dice = new FaultDice(plan);
  }

  getMatchedBlocks(request: ConnectorRequest): MatchAnswer {
    const answer = this.#inner.getMatchedBlocks(request);
    const lookup = this.#lookups.get(request.id) ?? this.#begin(request.id);
    for (const block of request.wanted) this.#draw(lookup, request.id, block);
    if (lookup.stalled > 0) {
      const deadlineMs = answer.kind === 'found' ? lookup.deadlineMs : Math.max(lookup.deadlineMs, answer.deadlineMs);
      return { kind: 'askLater', deadlineMs };
    }
    if (answer.kind === 'askLater') return answer;
    return { ...answer, blocks: answer.blocks.filter(({ key }) => !lookup.lost.has(key)) };
  }

  updateStateAfterAlloc(request: ConnectorRequest, load: LoadJob | undefined, valid: () => readonly KvBlock[]): void {
    this.#end(request.id);
    this.#inner.updateStateAfterAlloc(request, load, valid);
  }

  requestFinished(
    request: ConnectorRequest,
    valid: () => readonly KvBlock[],
  ): { readonly kvTransferParams?: JsonObject } {
    this.#end(request.id);
    return this.#inner.requestFinished(request, valid);
  }

  counters(): Readonly<Record<string, number>> {
    return { ...this.#inner.counters?.(), ...this.#dice.counts };
  }

  async close(): Promise<void> {
    for (const id of [...this.#lookups.keys()]) this.#end(id);
    await Promise.all([this.#inner.close(), this.#hung.close()]);
  }

  get loadTimeoutMs(): number | undefined {
    return this.#inner.loadTimeoutMs;
  }

  get loadPolicy(): KvLoadPolicy | undefined {
    return this.#inner.loadPolicy;
  }

  get canFlush(): boolean {
    return this.#inner.canFlush === true;
  }

  requestArrived(request: ConnectorRequest): void {
    this.#inner.requestArrived?.(request);
  }

  buildConnectorMeta(step: ConnectorStep): ConnectorPlan {
    return this.#inner.buildConnectorMeta(step);
  }

  updateConnectorOutput(outcomes: TransferOutcomes): void {
    this.#inner.updateConnectorOutput(outcomes);
  }

  takeEvents(): readonly KvEvent[] {
    return this.#inner.takeEvents();
  }

  placeKind(place: string): PlaceKind | undefined {
    return this.#inner.placeKind?.(place);
  }

  listed(): readonly PlaceContent[] {
    return this.#inner.listed?.() ?? [];
  }

  hasPendingWork(): boolean {
    return this.#inner.hasPendingWork();
  }

  #begin(id: RequestId): Lookup {
    const { clock, timers } = this.#context;
    const controller = new AbortController();
    // Each block that stalls listens for the abort; Node warns of more than ten listeners.
    setMaxListeners(0, controller.signal);
    const lookup: Lookup = {
      drawn: new Set(),
      lost: new Set(),
      controller,
      deadlineMs: clock.nowMs() + lookupTimeoutMs + graceMs,
      timer: timers.after(lookupTimeoutMs, () => controller.abort(new Error('the look-up has timed out'))),
      stalled: 0,
      isOver: false,
    };
    this.#lookups.set(id, lookup);
    return lookup;
  }

  /** Once for each block and look-up. */
  #draw(lookup: Lookup, requestId: RequestId, { key, index }: KvBlock): void {
    if (lookup.drawn.has(key)) return;
    lookup.drawn.add(key);
    const rule = this.#dice.draw('has', key, { requestId, index })?.rule;
    if (rule === undefined || rule.fault === 'duplicate') return;
    if (['slow', 'late', 'hung'].includes(rule.fault)) void this.#stall(lookup, key, rule);
    else lookup.lost.add(key);
  }

  async #stall(lookup: Lookup, key: BlockKey, rule: FaultRule): Promise<void> {
    const { signal } = lookup.controller;
    lookup.stalled++;
    try {
      if (rule.fault !== 'hung') await delay(this.#context.timers, rule.delayMs, signal);
      else {
        await this.#hung.hang('has', key, rule.ignoresAbort, signal);
        lookup.lost.add(key);
      }
    } catch {
      // The look-up has timed out or is over.
      lookup.lost.add(key);
    }
    lookup.stalled--;
    if (lookup.stalled === 0 && !lookup.isOver) this.#context.wake();
  }

  #end(id: RequestId): void {
    const lookup = this.#lookups.get(id);
    if (lookup === undefined) return;
    this.#lookups.delete(id);
    lookup.isOver = true;
    lookup.timer.cancel();
    lookup.controller.abort(new Error('the look-up is over'));
  }
}

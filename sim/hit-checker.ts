import { assert } from '../src/base/assert.ts';
import type { ConnectorRequest, LoadJob, MatchAnswer } from '../src/connector/connector.ts';
import type { BlockId, RequestId } from '../src/core/ids.ts';
import type { KvCacheSpec } from '../src/core/kv-spec.ts';
import type { BlockTable } from '../src/core/step.ts';
import type { ScheduledStep } from '../src/scheduler/contract.ts';

interface Seen {
  readonly tables: readonly BlockTable[];
  readonly tokens: { readonly length: number };
}

/**
 * I3 for stores: no hit is thrown away. A request that waits for its connector's answer waits until the deadline of this
 * question, and a request that has lost full blocks does not compute them before it has asked for them; what it is promised
 * then is loaded. Knows only what goes in and out: plans, losses, questions, answers, orders.
 *
 * Blocks that failed to load are not its business: the ledger decides whether they are worth another question.
 */
export class HitChecker {
  readonly #spec: KvCacheSpec;
  readonly #askLaterMaxMs: number;
  readonly #isAsked: boolean;
  readonly #available: () => number;
  readonly #seen = new Map<RequestId, Seen>();
  /** Blocks (`group/index`) that were lost and not asked for since, and the pages that they were in. */
  readonly #invalid = new Map<RequestId, Map<string, BlockId>>();
  /** Blocks that were lost, asked for and promised, and are not ordered yet. */
  readonly #promised = new Map<RequestId, Set<string>>();
  /** Until when a request is to wait for an answer, and the plan in which it was last told so. */
  readonly #waits = new Map<RequestId, { readonly untilMs: number; plan: number }>();
  #plans = 0;

  /** `isAsked`: false where lost blocks are never asked for: without prefix caching, or with the policy `fail`. */
  constructor(spec: KvCacheSpec, askLaterMaxMs: number, isAsked: boolean, available: () => number) {
    this.#spec = spec;
    this.#askLaterMaxMs = askLaterMaxMs;
    this.#isAsked = isAsked && spec.groups.every(({ kind }) => kind === 'full');
    this.#available = available;
  }

  /** Before the scheduler plans. */
  planning(): void {
    this.#plans++;
  }

  /** Whether any request has lost blocks that it has not asked for since. */
  get hasLost(): boolean {
    return this.#invalid.size > 0;
  }

  planned({ sequences }: ScheduledStep): void {
    for (const { requestId, blockTables, spans, tokens } of sequences) {
      if (this.#seen.get(requestId)?.tables !== blockTables) this.#seen.set(requestId, { tables: blockTables, tokens });
      const ownLost = this.#invalid.get(requestId);
      if (ownLost === undefined) continue;
      for (const [name, block] of ownLost) {
        const [group, index] = name.split('/').map(Number) as [number, number];
        // It has taken another request's page for the block since: what it computes there is for another group's sake.
        if (this.#blockAt(requestId, group, index) !== block && this.#isShared(requestId, group, index)) continue;
        const first = index * this.#spec.groups[group]!.blockSize;
        // The last token is computed in any case, for its logits.
        if (first === tokens.length - 1) continue;
        const isComputed = spans.some(({ start, end }) => start <= first && first < end);
        assert(!isComputed, `I3: ${requestId} computes block ${name}, which it has lost, and has not asked for it`);
      }
    }
  }

  /** The content of these pages is lost, for every request that has one of them. */
  blocksInvalidated(blocks: readonly BlockId[]): void {
    if (!this.#isAsked || blocks.length === 0) return;
    const bad = new Set<number>(blocks);
    for (const [id, { tables, tokens }] of this.#seen) {
      const invalid = this.#invalid.get(id) ?? new Map<string, BlockId>();
      for (let group = 0; group < tables.length; group++) {
        const { ids, length } = tables[group]!;
        const full = Math.min(length, Math.floor(tokens.length / this.#spec.groups[group]!.blockSize));
        for (let index = 0; index < full; index++)
          if (bad.has(ids[index]!)) invalid.set(`${group}/${index}`, ids[index]! as BlockId);
      }
      if (invalid.size > 0) this.#invalid.set(id, invalid);
    }
  }

  /** `isUsable`: whether the engine may believe a promise of this block. */
  asked(
    request: ConnectorRequest,
    answer: MatchAnswer,
    nowMs: number,
    isUsable: (key: string, place: string) => boolean,
  ) {
    const { id, wanted } = request;
    if (answer.kind === 'askLater') {
      const untilMs = Math.min(answer.deadlineMs, nowMs + this.#askLaterMaxMs);
      const wait = this.#waits.get(id) ?? { untilMs, plan: this.#plans };
      wait.plan = this.#plans;
      this.#waits.set(id, wait);
    } else {
      const wait = this.#waits.get(id);
      if (wait !== undefined) wait.plan = answered;
    }
    const invalid = this.#invalid.get(id);
    if (invalid === undefined) return;
    for (const { group, index } of wanted) this.#askedForSharers(id, group, index);
    const keys = new Map<string, string>(wanted.map(({ group, index, key }) => [`${group}/${index}`, key]));
    const hasBlocks = this.#seen.get(id)?.tables.some(({ length }) => length > 0) === true;
    if (answer.kind === 'found' && hasBlocks) {
      const first = new Map(answer.blocks.map((block) => [`${block.group}/${block.index}`, block] as const).reverse());
      const promised = [...first].filter(
        ([name, { key, place }]) => invalid.has(name) && keys.get(name) === key && isUsable(key, place),
      );
      this.#promised.set(id, new Set(promised.map(([name]) => name)));
    }
    if (answer.kind !== 'found') return;
    for (const { group, index } of wanted) invalid.delete(`${group}/${index}`);
  }

  /** Who shares the page of a block need not ask for it too, also when it inherits the page. */
  #askedForSharers(id: RequestId, group: number, index: number): void {
    const name = `${group}/${index}`;
    const blocks = [this.#blockAt(id, group, index), this.#invalid.get(id)?.get(name)];
    for (const [other, invalid] of this.#invalid) {
      if (other === id) continue;
      // Either may have another page by now: a page that a transfer still writes is replaced for each of them.
      const isShared = [this.#blockAt(other, group, index), invalid.get(name)].some(
        (block) => block !== undefined && blocks.includes(block),
      );
      if (isShared) invalid.delete(name);
    }
  }

  #isShared(id: RequestId, group: number, index: number): boolean {
    const block = this.#blockAt(id, group, index);
    for (const other of this.#seen.keys())
      if (other !== id && block !== undefined && this.#blockAt(other, group, index) === block) return true;
    return false;
  }

  #blockAt(id: RequestId, group: number, index: number): BlockId | undefined {
    const table = this.#seen.get(id)?.tables[group];
    return table === undefined || index >= table.length ? undefined : (table.ids[index] as BlockId);
  }

  /** The question is over. */
  allocated({ id }: ConnectorRequest, load: LoadJob | undefined, nowMs: number): void {
    const wait = this.#waits.get(id);
    this.#waits.delete(id);
    // What the pool has by now needs no answer: then it was not asked in this plan.
    if (wait?.plan === this.#plans)
      assert(nowMs >= wait.untilMs, `I3: ${id} is not waited for: its answer may come until ${wait.untilMs}`);
    const promised = this.#promised.get(id);
    this.#promised.delete(id);
    this.#invalid.delete(id);
    if (promised === undefined || this.#available() === 0) return;
    for (const { group, index } of load?.blocks ?? []) promised.delete(`${group}/${index}`);
    assert(promised.size === 0, `I3: ${id} does not load ${[...promised].join(', ')}, lost by it and promised to it`);
  }

  /** Loads of these blocks have failed or were abandoned, perhaps so often that no request asks for the blocks again. */
  loadsFailed(blocks: readonly { readonly group: number; readonly index: number }[]): void {
    if (this.#invalid.size === 0) return;
    for (const invalid of this.#invalid.values())
      for (const { group, index } of blocks) invalid.delete(`${group}/${index}`);
  }

  ended(id: RequestId): void {
    for (const map of [this.#seen, this.#invalid, this.#promised, this.#waits]) map.delete(id);
  }
}

const answered = -1;

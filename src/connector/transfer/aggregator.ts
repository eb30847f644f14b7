import { assert } from '../../base/assert.ts';
import type { BlockId } from '../../core/ids.ts';
import type { BlockKey } from '../block-key.ts';
import type {
  ArrivedBlock,
  BlockLoadFailure,
  BlockSaveFailure,
  ConnectorOutput,
  LoadedElsewhere,
  PlaceChange,
  TransferId,
} from '../connector.ts';
import { emptyOutput } from '../connector.ts';
import { type ConnectorStats, sumOfStats } from '../connector-stats.ts';

/** Counts the ranks that have not reported an id yet. */
interface Countdown {
  remaining: number;
  /** Ranks that have reported the id; each counts once. */
  readonly ranks: Set<number>;
}

const kinds = ['finishedSending', 'finishedRecving', 'drained'] as const;
type Kind = (typeof kinds)[number];

/**
 * Combines the outputs of all ranks into one (vLLM's `KVOutputAggregator`):
 *
 *  - an id is finished, or drained, when all ranks have reported it: as many as were expected at its first report;
 *  - a block that failed on one rank has failed at once, before the other ranks report;
 *  - a block has arrived when it has arrived on all ranks;
 *  - a load that failed as a whole is reported when its id is finished;
 *  - a second report of one rank about one id is counted and ignored (I6).
 */
export class OutputAggregator {
  readonly #isOpen: (id: TransferId) => boolean;
  readonly #countdowns: Readonly<Record<Kind, Map<TransferId, Countdown>>> = {
    finishedSending: new Map(),
    finishedRecving: new Map(),
    drained: new Map(),
  };
  readonly #failed = new Set<TransferId>();
  /** By transfer and block, the ranks where the block has arrived. */
  readonly #arrived = new Map<TransferId, Map<BlockId, Set<number>>>();
  #expected: number;

  /** `isOpen`: whether the engine waits for this id; reports about other ids are ignored. */
  constructor(worldSize: number, isOpen: (id: TransferId) => boolean = () => true) {
    assert(worldSize >= 1, `a world of ${worldSize} ranks`);
    this.#expected = worldSize;
    this.#isOpen = isOpen;
  }

  /** One output per rank, in rank order; undefined for a rank without an output. */
  aggregate(outputs: readonly (ConnectorOutput | undefined)[]): ConnectorOutput {
    const counters: Record<string, number> = {};
    const finished: Record<Kind, TransferId[]> = { finishedSending: [], finishedRecving: [], drained: [] };
    const add = (name: string, count: number): void => {
      counters[name] = (counters[name] ?? 0) + count;
    };
    for (const output of outputs) {
      // Ids that are first reported in this step use the new number.
      if (output !== undefined && output.expectedFinishedCount > 0) this.#expected = output.expectedFinishedCount;
    }
    const loadFailures: BlockLoadFailure[] = [];
    const saveFailures: BlockSaveFailure[] = [];
    const loadedElsewhere: LoadedElsewhere[] = [];
    const arrived: ArrivedBlock[] = [];
    const evicted: BlockKey[] = [];
    const placeChanges: PlaceChange[] = [];
    const stats: ConnectorStats[] = [];
    for (let rank = 0; rank < outputs.length; rank++) {
      const output = outputs[rank];
      // Most ranks report nothing in most steps.
      if (output === undefined || output === emptyOutput) continue;
      for (const name in output.counters) add(name, output.counters[name]!);
      for (const id of output.failedRecving) if (this.#isOpen(id)) this.#failed.add(id);
      for (const kind of kinds) {
        for (const id of output[kind]) {
          const outcome = this.#countDown(kind, id, rank);
          if (outcome === 'finished') finished[kind].push(id);
          else if (outcome === 'ignored') add('duplicateReports', 1);
        }
      }
      for (const failure of output.loadFailures) loadFailures.push(failure);
      for (const failure of output.saveFailures) saveFailures.push(failure);
      for (const block of output.arrived ?? []) if (this.#hasArrived(block, rank)) arrived.push(block);
      if (output.loadedElsewhere !== undefined) loadedElsewhere.push(...output.loadedElsewhere);
      for (const key of output.evicted) evicted.push(key);
      if (output.stats !== undefined) stats.push(output.stats);
      if (output.placeChanges !== undefined) placeChanges.push(...output.placeChanges);
    }
    this.#forgetClosed();
    return Object.freeze({
      finishedSending: finished.finishedSending,
      finishedRecving: finished.finishedRecving,
      drained: finished.drained,
      failedRecving: this.#takeFailed(finished.finishedRecving),
      loadFailures,
      saveFailures,
      ...(loadedElsewhere.length === 0 ? {} : { loadedElsewhere }),
      ...(arrived.length === 0 ? {} : { arrived }),
      evicted: evicted.length < 2 ? evicted : [...new Set(evicted)],
      ...(placeChanges.length === 0 ? {} : { placeChanges }),
      counters,
      ...(stats.length === 0 ? {} : { stats: sumOfStats(stats) }),
      expectedFinishedCount: 0,
    });
  }

  /** How many more ranks must report; undefined for an id that was never reported or is finished. */
  remaining(kind: Kind, id: TransferId): number | undefined {
    const countdown = this.#countdowns[kind].get(id);
    return countdown === undefined || countdown.remaining === 0 ? undefined : countdown.remaining;
  }

  #countDown(kind: Kind, id: TransferId, rank: number): 'finished' | 'counted' | 'ignored' {
    if (!this.#isOpen(id)) return 'ignored';
    let countdown = this.#countdowns[kind].get(id);
    if (countdown === undefined) {
      countdown = { remaining: this.#expected, ranks: new Set() };
      this.#countdowns[kind].set(id, countdown);
    }
    if (countdown.remaining === 0 || countdown.ranks.has(rank)) return 'ignored';
    countdown.ranks.add(rank);
    assert(countdown.remaining > 0, `transfer ${id} has a count below 0`);
    return --countdown.remaining === 0 ? 'finished' : 'counted';
  }

  /** Counts a rank where the block has arrived. True: it was the last one. */
  #hasArrived({ transfer, block }: ArrivedBlock, rank: number): boolean {
    if (!this.#isOpen(transfer)) return false;
    const blocks = this.#arrived.get(transfer) ?? new Map<BlockId, Set<number>>();
    this.#arrived.set(transfer, blocks);
    const ranks = blocks.get(block) ?? new Set();
    blocks.set(block, ranks);
    if (ranks.has(rank)) return false;
    ranks.add(rank);
    return ranks.size === this.#expected;
  }

  /** A finished countdown stays until the engine closes the id, so that further reports are counted as duplicates. */
  #forgetClosed(): void {
    for (const kind of kinds) {
      const countdowns = this.#countdowns[kind];
      if (countdowns.size === 0) continue;
      for (const id of countdowns.keys()) if (!this.#isOpen(id)) countdowns.delete(id);
    }
    for (const id of this.#arrived.keys()) if (!this.#isOpen(id)) this.#arrived.delete(id);
    if (this.#failed.size === 0) return;
    for (const id of this.#failed) if (!this.#isOpen(id)) this.#failed.delete(id);
  }

  #takeFailed(finishedRecving: readonly TransferId[]): TransferId[] {
    return this.#failed.size === 0 ? [] : finishedRecving.filter((id) => this.#failed.delete(id));
  }
}

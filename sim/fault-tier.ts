import { assert, assertDefined } from '../src/base/assert.ts';
import type { Prng } from '../src/base/prng.ts';
import { OutputAggregator } from '../src/connector/aggregator.ts';
import { type BlockKey, groupOfKey } from '../src/connector/block-key.ts';
import {
  type ConnectorMetadata,
  type ConnectorOutput,
  type ConnectorPlan,
  type ConnectorRequest,
  type ConnectorStep,
  emptyOutput,
  type FoundBlock,
  type LoadJob,
  type MatchAnswer,
  type SaveJob,
  type TransferId,
} from '../src/connector/connector.ts';
import type { BlockId, RequestId } from '../src/core/ids.ts';
import type { ConnectorPort } from '../src/scheduler/external-kv.ts';
import type { FakeRunner } from './fake-runner.ts';

/** How often what goes wrong, as shares of one. */
export interface TierFaults {
  /** The answer is "ask later". */
  readonly askLater: number;
  /** A block is promised that no store has. */
  readonly lies: number;
  /** A block's bytes are wrong; the checksum shows it. */
  readonly corrupt: number;
  /** A load that was to be there within the step is not. */
  readonly slow: number;
  /** I/O does not end by the deadline, and goes on writing. */
  readonly hung: number;
  /** A worker says nothing about a load, ever or until long after. */
  readonly silent: number;
  /** A report is repeated. */
  readonly twice: number;
  /** A report about nothing that there is. */
  readonly unknown: number;
  /** A save does not reach its store. */
  readonly saveFails: number;
}

export const noFaults: TierFaults = {
  askLater: 0,
  lies: 0,
  corrupt: 0,
  slow: 0,
  hung: 0,
  silent: 0,
  twice: 0,
  unknown: 0,
  saveFails: 0,
};

const ranks = [0, 1] as const;
const places = ['near', 'far'] as const;

/** One rank's part in a load. */
interface RankLoad {
  readonly job: LoadJob;
  readonly rank: number;
  decideAtMs: number;
  drainAtMs: number;
  readonly failed: Set<BlockId>;
  isHung: boolean;
  isSilent: boolean;
  isDecided: boolean;
}

interface OpenSave {
  readonly job: SaveJob;
  readonly readAtMs: number;
  readonly endAtMs: number;
  fails: boolean;
  bytes: (Int32Array | undefined)[];
  isRead: boolean;
}

/**
 * Both halves of a connector over two stores and two ranks, in which everything goes wrong that can. While a transfer
 * is open it treats its pages as I/O does: a load leaves garbage in them until it has arrived, also long after it was
 * given up; a save reads them when it likes. So whoever frees, reads or writes a page too early says a wrong word.
 */
export class FaultTier implements ConnectorPort {
  readonly #prng: Prng;
  readonly #runner: FakeRunner;
  readonly #stores = new Map<string, Map<BlockKey, Int32Array>>(places.map((place) => [place, new Map()]));
  readonly #aggregator: OutputAggregator;
  #loads: RankLoad[] = [];
  #saves: OpenSave[] = [];
  #repeats: { readonly rank: number; readonly output: ConnectorOutput }[] = [];
  readonly #finished = new Set<RequestId>();
  readonly #mode: 'sync' | 'async' | 'mixed';
  /** Blocks promised per request, place and key, that failed: they must not be ordered again (the promise was broken). */
  readonly #broken = new Set<string>();
  faults: TierFaults;
  nowMs = 0;
  isOpen: (id: TransferId) => boolean = () => true;
  loadedBlocks = 0;
  failedBlocks = 0;

  constructor(prng: Prng, runner: FakeRunner, faults: TierFaults) {
    this.#prng = prng;
    this.#runner = runner;
    this.faults = faults;
    this.#mode = prng.pick(['sync', 'async', 'mixed'] as const);
    this.#aggregator = new OutputAggregator(ranks.length, (id) => this.isOpen(id));
  }

  getMatchedBlocks({ wanted }: ConnectorRequest): MatchAnswer {
    const prng = this.#prng;
    if (prng.chance(this.faults.askLater)) return { kind: 'askLater', deadlineMs: this.nowMs + prng.between(1, 200) };
    const share = prng.pick([1, 1, 1, 0.7]);
    const blocks: FoundBlock[] = [];
    for (const block of wanted) {
      const place = places.find((name) => this.#stores.get(name)!.has(block.key));
      if (place !== undefined && prng.chance(share)) blocks.push({ ...block, place });
      else if (prng.chance(this.faults.lies)) blocks.push({ ...block, place: prng.pick(places) });
    }
    if (blocks.length > 0 && prng.chance(this.faults.unknown)) blocks.push({ ...blocks[0]!, index: 10_000 });
    const mode = this.#mode === 'mixed' ? prng.pick(['sync', 'async'] as const) : this.#mode;
    return { kind: 'found', blocks, mode };
  }

  updateStateAfterAlloc(request: ConnectorRequest, load: LoadJob | undefined): void {
    assert(!this.#finished.has(request.id), `${request.id} is admitted after its end`);
    for (const block of load?.blocks ?? []) {
      const name = `${request.id} ${block.place} ${block.key}`;
      assert(!this.#broken.has(name), `I8: ${name} was promised again after it had failed`);
    }
  }

  buildConnectorMeta({ newlyValid, newTransferId }: ConnectorStep): ConnectorPlan {
    const saves: SaveJob[] = [];
    for (const { key, page } of newlyValid)
      if (this.#prng.chance(0.8)) saves.push({ transfer: newTransferId(), blocks: [{ key, page }] });
    return { saves };
  }

  updateConnectorOutput(output: ConnectorOutput): void {
    for (const id of [...output.finishedRecving, ...output.finishedSending])
      assert(id < unknownIds, `I6: the unknown transfer ${id} was let through`);
  }

  requestFinished({ id }: ConnectorRequest): Record<string, never> {
    assert(!this.#finished.has(id), `${id} has ended twice`);
    this.#finished.add(id);
    return {};
  }

  hasPendingWork(): boolean {
    return false;
  }

  /** When something ends next, for a world that has nothing else to do. */
  nextEventMs(): number | undefined {
    let next: number | undefined;
    const consider = (at: number): void => {
      if (at !== Infinity && (next === undefined || at < next)) next = at;
    };
    for (const load of this.#loads) consider(load.isDecided || load.isSilent ? load.drainAtMs : load.decideAtMs);
    for (const save of this.#saves) consider(save.endAtMs);
    return next;
  }

  /** The first half of a step, before the forward pass: orders are taken; in-step loads are waited for if there is one. */
  begin(metadata: ConnectorMetadata, hasRows: boolean, lost: readonly BlockId[]): Set<BlockId> {
    for (const id of [...metadata.cancelled, ...metadata.flushed]) this.#cancel(id);
    for (const job of metadata.loads) for (const rank of ranks) this.#loads.push(this.#fateOf(job, rank, hasRows));
    for (const job of metadata.saves) {
      const readAtMs = this.nowMs + this.#prng.pick([0, 0, 30]);
      const endAtMs = readAtMs + this.#prng.pick([0, 0, 50]);
      const fails = this.#prng.chance(this.faults.saveFails);
      this.#saves.push({ job, readAtMs, endAtMs, fails, bytes: [], isRead: false });
    }
    this.memoryLost(lost);
    this.#move(true);
    const failed = new Set<BlockId>();
    for (const { job, failed: pages, isDecided } of this.#loads)
      if (job.mode === 'sync' && isDecided) for (const page of pages) failed.add(page);
    return failed;
  }

  /** The second half: what all ranks report. */
  finish(): ConnectorOutput {
    this.#move(false);
    const outputs = ranks.map((rank) => this.#reportOf(rank));
    this.#loads = this.#loads.filter(({ drainAtMs, isDecided }) => !(isDecided && drainAtMs <= this.nowMs));
    this.#saves = this.#saves.filter((save) => !save.isRead || save.endAtMs > this.nowMs);
    return this.#aggregator.aggregate(outputs);
  }

  /** A save of lost content that has not been read yet stores nothing: its worker died, or it says what it found. */
  memoryLost(pages: readonly BlockId[]): void {
    for (const save of this.#saves)
      if (!save.isRead && save.job.blocks.some(({ page }) => pages.includes(page))) save.fails = true;
  }

  /** All that is in the pool is gone, and so is the I/O of the worker. */
  workerDied(): void {
    for (const load of this.#loads) {
      if (load.rank !== 0) continue;
      if (!load.isDecided) for (const { page } of load.job.blocks) load.failed.add(page);
      Object.assign(load, { isSilent: false, decideAtMs: this.nowMs, drainAtMs: this.nowMs });
    }
  }

  /** From now on nothing goes wrong; what has, ends some time. */
  calm(): void {
    this.faults = noFaults;
    for (const load of this.#loads) load.drainAtMs = Math.min(load.drainAtMs, this.nowMs + 100_000);
  }

  #fateOf(job: LoadJob, rank: number, hasRows: boolean): RankLoad {
    const prng = this.#prng;
    const { faults } = this;
    const failed = new Set<BlockId>();
    for (const { page, key, place } of job.blocks)
      if (!this.#stores.get(place)!.has(key) || prng.chance(faults.corrupt)) failed.add(page);
    const isHung = prng.chance(faults.hung);
    const isSilent = prng.chance(faults.silent);
    const inStep = job.mode === 'sync' && hasRows && !prng.chance(faults.slow);
    const deadline = this.nowMs + job.timeoutMs;
    const decideAtMs = isHung ? deadline : inStep ? this.nowMs : this.nowMs + prng.between(0, 120);
    const drainAtMs = isHung ? deadline + prng.between(0, 20_000) : decideAtMs;
    if (isHung) for (const { page } of job.blocks) if (prng.chance(0.5)) failed.add(page);
    const load = { job, rank, decideAtMs, drainAtMs, failed, isHung, isSilent, isDecided: false };
    if (isSilent) load.drainAtMs = prng.chance(0.5) ? decideAtMs : deadline + prng.between(5000, 30_000);
    return load;
  }

  #cancel(id: TransferId): void {
    for (const load of this.#loads) {
      if (load.job.transfer !== id || load.isDecided || this.#prng.chance(0.3)) continue;
      for (const { page } of load.job.blocks) load.failed.add(page);
      load.decideAtMs = this.nowMs;
      if (!load.isHung) load.drainAtMs = Math.max(this.nowMs, load.isSilent ? load.drainAtMs : 0);
    }
  }

  /** What I/O does meanwhile. In-step loads are decided before the forward pass, or not in this step. */
  #move(isBeforeForward: boolean): void {
    for (const save of this.#saves) {
      if (save.isRead || save.readAtMs > this.nowMs) continue;
      save.isRead = true;
      save.bytes = save.job.blocks.map(({ page, key }) => this.#runner.readBlock(page, groupOfKey(key)));
    }
    for (const load of this.#loads) {
      const isDone = load.isDecided || load.decideAtMs <= this.nowMs;
      for (const { page } of load.job.blocks) {
        const isBusy = load.isHung && load.failed.has(page) && load.drainAtMs > this.nowMs;
        if (!isDone || isBusy) this.#runner.scribble(page);
      }
      if (load.isDecided || load.decideAtMs > this.nowMs) continue;
      if (load.job.mode === 'sync' && !isBeforeForward) continue;
      load.isDecided = true;
      this.#arrive(load);
    }
  }

  /** The last rank to arrive completes the pages; a page that failed anywhere is garbage. */
  #arrive({ job, rank }: RankLoad): void {
    const both = this.#loads.filter((load) => load.job === job);
    if (both.some((load) => load.rank !== rank && !load.isDecided)) return;
    for (const { page, key, place } of job.blocks) {
      const bytes = this.#stores.get(place)!.get(key);
      if (both.some(({ failed }) => failed.has(page))) {
        this.failedBlocks++;
        this.#runner.scribble(page);
      } else {
        this.loadedBlocks++;
        this.#runner.writePage(page, assertDefined(bytes, 'nothing was stored'));
      }
    }
  }

  #reportOf(rank: number): ConnectorOutput {
    const mine = this.#loads.filter((load) => load.rank === rank);
    // What a worker keeps silent about it tells, if ever, when the I/O is over.
    const decided = mine.filter((load) => load.isDecided && (!load.isSilent || load.drainAtMs <= this.nowMs));
    const fresh = decided.filter((load) => !this.#reported.has(load));
    for (const load of fresh) this.#reported.add(load);
    const ended = this.#saves.filter((save) => save.isRead && save.endAtMs <= this.nowMs);
    if (rank === 0) for (const save of ended) this.#store(save);
    const output: ConnectorOutput = {
      ...emptyOutput,
      finishedRecving: fresh.map(({ job }) => job.transfer),
      loadFailures: fresh.flatMap((load) => {
        const isPageBusy = load.isHung && load.drainAtMs > this.nowMs;
        return [...load.failed].map(
          (page) => ({ transfer: load.job.transfer, page, reason: 'corrupt', isPageBusy }) as const,
        );
      }),
      drained: [
        ...decided.filter(({ drainAtMs }) => drainAtMs <= this.nowMs).map(({ job }) => job.transfer),
        ...ended.map(({ job }) => job.transfer),
      ],
      finishedSending: ended.map(({ job }) => job.transfer),
    };
    for (const { job, failed } of fresh)
      for (const { page, place, key } of job.blocks)
        if (failed.has(page)) this.#noteBroken(`${job.requestId} ${place} ${key}`, job.transfer);
    return this.#withNoise(rank, output);
  }

  readonly #reported = new Set<RankLoad>();

  /** Only what the engine still waited for counts as a broken promise. */
  #noteBroken(name: string, transfer: TransferId): void {
    if (this.isOpen(transfer) && this.isAwaited(transfer)) this.#broken.add(name);
  }

  isAwaited: (id: TransferId) => boolean = () => false;

  #store({ job, bytes, fails }: OpenSave): void {
    if (fails) return;
    job.blocks.forEach(({ key }, i) => {
      const place = this.#prng.pick(places);
      const known = this.#stores.get(place)!.get(key);
      assert(
        known === undefined || known.every((value, at) => value === bytes[i]![at]),
        `I5: two different contents were saved under ${key}`,
      );
      this.#stores.get(place)!.set(key, bytes[i]!);
    });
  }

  #withNoise(rank: number, output: ConnectorOutput): ConnectorOutput {
    const outputs = [output];
    this.#repeats = this.#repeats.filter((repeat) => {
      if (repeat.rank !== rank || !this.#prng.chance(0.3)) return true;
      outputs.push(repeat.output);
      return false;
    });
    if (this.#prng.chance(this.faults.twice)) this.#repeats.push({ rank, output });
    const made = {
      ...output,
      finishedRecving: outputs.flatMap(({ finishedRecving }) => finishedRecving),
      finishedSending: outputs.flatMap(({ finishedSending }) => finishedSending),
      drained: outputs.flatMap(({ drained }) => drained),
      loadFailures: outputs.flatMap(({ loadFailures }) => loadFailures),
    };
    if (this.#prng.chance(this.faults.unknown)) made.finishedRecving.push((unknownIds + 1) as TransferId);
    return made;
  }
}

const unknownIds = 1e9;

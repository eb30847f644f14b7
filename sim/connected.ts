import type { JsonObject } from '../src/base/json.ts';
import { sha256 } from '../src/base/sha256.ts';
import {
  type ConnectorOutput,
  type ConnectorPlan,
  type ConnectorRequest,
  type ConnectorStep,
  emptyOutput,
  type KvBlock,
  type LoadBlock,
  type LoadJob,
  type LoadMode,
  type MatchAnswer,
  type ValidBlock,
} from '../src/connector/connector.ts';
import type { KvGroupSpec } from '../src/core/kv-spec.ts';
import type { EngineRequest, RequestUpdate } from '../src/core/request.ts';
import type { ScheduledStep, SchedulerOptions } from '../src/scheduler/contract.ts';
import type { ConnectorPort, ExternalKvOptions } from '../src/scheduler/external-kv.ts';
import { Scheduler } from '../src/scheduler/scheduler.ts';
import { FakeRunner } from './fake-runner.ts';
import { onePoolSpec } from './harness.ts';
import { keptPlan, keptUpdate } from './kept.ts';

/** A connector whose answers the test sets. It records the requests that it is asked about. */
export class ScriptedConnector implements ConnectorPort {
  /** The number of a request's first blocks that the store has in this group. */
  blocks: (request: ConnectorRequest, group: number) => number = () => 0;
  place: (block: KvBlock) => string = () => 'store';
  /** The connector's answer when a request ends. */
  kvTransferParams: JsonObject | undefined;
  mode: LoadMode = 'async';
  /** The connector answers "ask later" until this time. */
  askLaterUntilMs: number | undefined;
  readonly asked: string[] = [];
  /** For each entry of `asked`, the indices of the wanted blocks. */
  readonly wanted: number[][] = [];
  /** The requests that arrived, each with the number of wanted blocks. */
  readonly arrived: string[] = [];
  readonly finished: string[] = [];
  readonly newlyValid: ValidBlock[] = [];

  requestArrived({ id, wanted }: ConnectorRequest): void {
    this.arrived.push(`${id}: ${wanted.length}`);
  }

  getMatchedBlocks(request: ConnectorRequest): MatchAnswer {
    this.asked.push(request.id);
    this.wanted.push(request.wanted.map(({ index }) => index));
    if (this.askLaterUntilMs !== undefined) return { kind: 'askLater', deadlineMs: this.askLaterUntilMs };
    const blocks = request.wanted.filter(({ group, index }) => index < this.blocks(request, group));
    return { kind: 'found', blocks: blocks.map((block) => ({ ...block, place: this.place(block) })), mode: this.mode };
  }

  updateStateAfterAlloc(): void {}

  buildConnectorMeta({ newlyValid }: ConnectorStep): ConnectorPlan {
    this.newlyValid.push(...newlyValid);
    return { saves: [] };
  }

  updateConnectorOutput(): void {}

  requestFinished({ id }: ConnectorRequest): { readonly kvTransferParams?: JsonObject } {
    this.finished.push(id);
    return this.kvTransferParams === undefined ? {} : { kvTransferParams: this.kvTransferParams };
  }

  hasPendingWork(): boolean {
    return false;
  }
}

/** What a worker reports about one load. */
export interface LoadReport {
  readonly load: LoadJob;
  /** Indices of blocks that failed. */
  readonly failed?: readonly number[];
  /** The group of the failed blocks. Default: all groups. */
  readonly failedGroup?: number;
  /** The load failed as a whole. */
  readonly hasFailed?: boolean;
  /** Default true. */
  readonly isDecided?: boolean;
  /** Default: true if the load is decided. */
  readonly isDrained?: boolean;
  readonly isBlockBusy?: boolean;
  /** The worker died while it loaded. */
  readonly died?: boolean;
}

/** A scheduler with a connector over a fake runner, stepped by hand. The tests take the part of the workers. */
export function connected(
  blocks: number,
  options: Partial<SchedulerOptions> = {},
  external: ExternalKvOptions = {},
  groups: readonly KvGroupSpec[] = onePoolSpec(blocks, 16).groups,
) {
  const spec = { ...onePoolSpec(blocks, 16), groups };
  const connector = new ScriptedConnector();
  const defaults = { maxNumBatchedTokens: 2048, maxNumSeqs: 16, maxModelLen: 10_000 };
  const scheduler = new Scheduler(
    spec,
    { ...defaults, enablePrefixCaching: true, policy: 'fcfs', ...options },
    sha256,
    { ...external, connector },
  );
  const runner = new FakeRunner(spec, 1000);
  const updates: RequestUpdate[] = [];
  const clock = { nowMs: 0 };
  const loads = new Map<string, LoadJob>();
  const plan = (): ScheduledStep | undefined => {
    const next = scheduler.plan(clock.nowMs);
    for (const load of next?.connectorMetadata?.loads ?? []) loads.set(load.requestId, load);
    return next;
  };
  const apply = (
    step: ScheduledStep,
    reports: readonly LoadReport[] = [],
    leftOut: readonly number[] = [],
  ): readonly RequestUpdate[] => {
    const result = { ...runner.execute(step, leftOut), leftOut, connectorOutputs: [outputOf(reports)] };
    const stepUpdates = scheduler.apply(step, result, clock.nowMs).map(keptUpdate);
    updates.push(...stepUpdates);
    scheduler.checkInvariants();
    return stepUpdates;
  };
  /** One step, also if only a notification asks for it. */
  const step = (reports: readonly LoadReport[] = []): ScheduledStep => {
    scheduler.notifyTransfers();
    const next = plan();
    if (next === undefined) throw new Error('the scheduler planned no step');
    const kept = keptPlan(next);
    apply(next, reports);
    return kept;
  };
  return { scheduler, connector, runner, updates, clock, loads, plan, apply, step };
}

/** Writes the request's KV into the blocks of a load, as a store does, except into blocks for which `fails` is true. */
export function fillLoad(
  { runner }: ReturnType<typeof connected>,
  load: LoadJob,
  request: EngineRequest,
  fails: (block: LoadBlock) => boolean = () => false,
): void {
  const { groups } = runner.kvCacheSpec;
  const { length } = request.promptTokens;
  // One step computes the prompt, and has blocks for all tokens in each group.
  const blocks = groups.reduce((sum, { blockSize }) => sum + Math.ceil(length / blockSize) + 1, 0);
  const store = connected(blocks, { maxNumBatchedTokens: length }, {}, groups);
  store.scheduler.add(request);
  const plan = store.plan()!;
  const tables = plan.sequences[0]!.blockTables.map(({ ids }) => ids.slice());
  store.apply(plan);
  for (const loadBlock of load.blocks) {
    if (fails(loadBlock)) continue;
    const { group, index, block } = loadBlock;
    runner.writeBlock(block, store.runner.readBlock(tables[group]![index]!, group));
  }
}

function outputOf(reports: readonly LoadReport[]): ConnectorOutput {
  const decided = reports.filter(({ isDecided }) => isDecided !== false);
  return {
    ...emptyOutput,
    finishedRecving: decided.map(({ load }) => load.transfer),
    failedRecving: reports.filter(({ hasFailed }) => hasFailed === true).map(({ load }) => load.transfer),
    drained: decided.filter(({ isDrained }) => isDrained !== false).map(({ load }) => load.transfer),
    loadFailures: reports.flatMap(({ load, failed, failedGroup, isBlockBusy, died }) =>
      load.blocks
        .filter(({ group, index }) => failed?.includes(index) === true && group === (failedGroup ?? group))
        .map(({ block }) => ({
          transfer: load.transfer,
          block,
          reason: died === true ? ('workerDied' as const) : ('corrupt' as const),
          isBlockBusy: isBlockBusy === true,
        })),
    ),
  };
}

import type { JsonObject } from '../src/base/json.ts';
import { sha256 } from '../src/base/sha256.ts';
import {
  type ConnectorOutput,
  type ConnectorPlan,
  type ConnectorRequest,
  type ConnectorStep,
  emptyOutput,
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

/** A connector that says what the test tells it to, and writes down what it is asked. */
export class ToldConnector implements ConnectorPort {
  /** How many of a request's first blocks it has, in every group. */
  blocks: (request: ConnectorRequest, group: number) => number = () => 0;
  /** Its answer when a request ends. */
  kvTransferParams: JsonObject | undefined;
  mode: LoadMode = 'async';
  /** Until then it says "ask later". */
  askLaterUntilMs: number | undefined;
  readonly asked: string[] = [];
  readonly finished: string[] = [];
  readonly newlyValid: ValidBlock[] = [];

  getMatchedBlocks(request: ConnectorRequest): MatchAnswer {
    this.asked.push(request.id);
    if (this.askLaterUntilMs !== undefined) return { kind: 'askLater', deadlineMs: this.askLaterUntilMs };
    const blocks = request.wanted.filter(({ group, index }) => index < this.blocks(request, group));
    return { kind: 'found', blocks: blocks.map((block) => ({ ...block, place: 'told' })), mode: this.mode };
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
  /** In which group; default: in every one. */
  readonly failedGroup?: number;
  /** Default true. */
  readonly isDecided?: boolean;
  /** Default: when it is decided. */
  readonly isDrained?: boolean;
  readonly isBlockBusy?: boolean;
  /** The worker died while it loaded. */
  readonly died?: boolean;
}

/** A scheduler with a connector over a fake runner, stepped by hand; the tests play the workers. */
export function connected(
  blocks: number,
  options: Partial<SchedulerOptions> = {},
  external: ExternalKvOptions = {},
  groups: readonly KvGroupSpec[] = onePoolSpec(blocks, 16).groups,
) {
  const spec = { ...onePoolSpec(blocks, 16), groups };
  const connector = new ToldConnector();
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
  const apply = (step: ScheduledStep, reports: readonly LoadReport[] = []): readonly RequestUpdate[] => {
    const result = { ...runner.execute(step), connectorOutput: outputOf(reports) };
    const said = scheduler.apply(step, result, clock.nowMs);
    updates.push(...said);
    scheduler.checkInvariants();
    return said;
  };
  /** One step, made to happen if nothing asks for one. */
  const step = (reports: readonly LoadReport[] = []): ScheduledStep => {
    scheduler.notifyTransfers();
    const next = plan();
    if (next === undefined) throw new Error('there was nothing to do');
    apply(next, reports);
    return next;
  };
  return { scheduler, connector, runner, updates, clock, loads, plan, apply, step };
}

/** Writes into the pages of a load what a store would: the request's true KV, but for blocks that are to fail. */
export function fillTruly(
  { runner }: ReturnType<typeof connected>,
  load: LoadJob,
  request: EngineRequest,
  fails: (block: LoadBlock) => boolean = () => false,
): void {
  const { groups, blockCount } = runner.kvCacheSpec;
  const store = connected(blockCount, { maxNumBatchedTokens: request.promptTokens.length }, {}, groups);
  store.scheduler.add(request);
  const plan = store.plan()!;
  const blocks = plan.sequences[0]!.blockTables.map(({ ids }) => ids.slice());
  store.apply(plan);
  for (const block of load.blocks) {
    if (!fails(block))
      runner.writeBlock(block.block, store.runner.readBlock(blocks[block.group]![block.index]!, block.group));
  }
}

function outputOf(reports: readonly LoadReport[]): ConnectorOutput {
  const decided = reports.filter(({ isDecided }) => isDecided !== false);
  return {
    ...emptyOutput,
    finishedRecving: decided.map(({ load }) => load.transfer),
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

import { sha256 } from '../../src/base/sha256.ts';
import { type ConnectorOutput, emptyOutput } from '../../src/connector/connector.ts';
import { requestId, type TokenCount, type TokenId } from '../../src/core/ids.ts';
import type { KvCacheSpec } from '../../src/core/kv-spec.ts';
import type { EngineRequest, RequestUpdate } from '../../src/core/request.ts';
import { parseSamplingParams } from '../../src/core/sampling-parse.ts';
import type { ScheduledStep } from '../../src/scheduler/contract.ts';
import type { ConnectorPort } from '../../src/scheduler/external-kv.ts';
import { Scheduler } from '../../src/scheduler/scheduler.ts';
import type { SchedulerInterface } from '../../src/scheduler/scheduler-interface.ts';

export interface LoadOptions {
  /** Running requests. */
  readonly requests: number;
  /** Blocks of the pool, in one full attention group. */
  readonly blocks: number;
  readonly blockSize: number;
  readonly connector?: BenchConnector;
}

/**
 * `idle`: finds no blocks and stores none. `loads`: has all prompts and loads them within one step, and stores all new
 * blocks. `failing`: the same, but one block of each load fails. The clock of connectors does not advance.
 */
export type BenchConnector = 'idle' | 'loads' | 'failing';

/**
 * Runs the scheduler without a model: a step takes no time, and samples always the same token. Requests share no
 * prefix.
 */
export class SchedulerLoad {
  readonly scheduler: SchedulerInterface;
  readonly #connector: BenchConnector | undefined;
  #requests = 0;

  constructor({ requests, blocks, blockSize, connector }: LoadOptions) {
    const spec: KvCacheSpec = {
      groups: [{ kind: 'full', blockSize: blockSize as TokenCount, layers: [0] }],
      blockBytes: 1 << 20,
      blockCount: (blocks + 1) as KvCacheSpec['blockCount'],
      fingerprint: 'bench',
    };
    const options = {
      maxNumBatchedTokens: 1 << 20,
      maxNumSeqs: requests,
      maxModelLen: 1 << 24,
      enablePrefixCaching: true,
      policy: 'fcfs',
    } as const;
    this.#connector = connector;
    const port = connector === 'idle' ? idleConnector : connector === undefined ? undefined : loadingConnector;
    this.scheduler = new Scheduler(spec, options, sha256, { connector: port });
  }

  /** A new request, not added yet. Prompts of different numbers share no block. */
  request(promptLength: number, maxTokens: number, promptNumber = this.#requests): EngineRequest {
    const promptTokens = Int32Array.from({ length: promptLength }, (_, i) => (i * 31 + promptNumber) | 0);
    const params = parseSamplingParams({ maxTokens, ignoreEos: true }, limits);
    return { id: requestId(`${this.#requests++}`), promptTokens, params, eosTokenIds: [], priority: 0 };
  }

  plan(): ScheduledStep {
    return this.scheduler.plan(0)!;
  }

  /** The result that a runner would return. */
  resultOf(plan: ScheduledStep) {
    const sampled = plan.sequences.map(({ sample }) => sample && sampledToken);
    const result = { stepId: plan.stepId, sampled };
    return this.#connector === undefined ? result : { ...result, connectorOutputs: [this.#outputOf(plan)] };
  }

  step(): readonly RequestUpdate[] {
    const plan = this.plan();
    return this.scheduler.apply(plan, this.resultOf(plan), 0);
  }

  /** All transfers of the step are over. */
  #outputOf({ connectorMetadata }: ScheduledStep): ConnectorOutput {
    const { loads = [], saves = [] } = connectorMetadata ?? {};
    if (loads.length === 0 && saves.length === 0) return emptyOutput;
    const finishedRecving = loads.map(({ transfer }) => transfer);
    const finishedSending = saves.map(({ transfer }) => transfer);
    const loadFailures =
      this.#connector === 'failing'
        ? loads.map(({ transfer, blocks }) => ({
            transfer,
            block: blocks[blocks.length >> 1]!.block,
            reason: 'corrupt' as const,
            isBlockBusy: false,
          }))
        : [];
    const drained = [...finishedRecving, ...finishedSending];
    return { ...emptyOutput, finishedRecving, finishedSending, drained, loadFailures };
  }

  /** Steps until every prompt is computed. */
  prefill(): void {
    let plan: ScheduledStep;
    do {
      plan = this.plan();
      this.scheduler.apply(plan, this.resultOf(plan), 0);
    } while (plan.tokenCount > plan.sequences.length || this.scheduler.stats().waiting > 0);
  }
}

const limits = { vocabSize: 1 << 30, maxTokensDefault: 1, drawSeed: () => 0n };
const sampledToken = { token: 7 as TokenId };

const idleConnector: ConnectorPort = {
  getMatchedBlocks: () => ({ kind: 'found', blocks: [], mode: 'async' }),
  updateStateAfterAlloc: () => undefined,
  buildConnectorMeta: () => ({ saves: [] }),
  updateConnectorOutput: () => undefined,
  requestFinished: () => ({}),
  hasPendingWork: () => false,
};

/** Has every prompt, and stores the blocks of outputs too. */
const loadingConnector: ConnectorPort = {
  ...idleConnector,
  getMatchedBlocks: ({ wanted }) => ({
    kind: 'found',
    blocks: wanted.map((block) => ({ ...block, place: 'store' })),
    mode: 'async',
  }),
  buildConnectorMeta: ({ newlyValid, newTransferId }) => ({
    saves: newlyValid.length === 0 ? [] : [{ transfer: newTransferId(), blocks: newlyValid }],
  }),
};

import { sha256 } from '../../src/base/sha256.ts';
import { emptyOutput } from '../../src/connector/connector.ts';
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
  readonly withConnector?: boolean;
}

/**
 * Runs the scheduler without a model: a step takes no time, and samples always the same token. Requests share no
 * prefix. The connector finds no blocks and stores none, and its clock does not advance.
 */
export class SchedulerLoad {
  readonly scheduler: SchedulerInterface;
  readonly #withConnector: boolean;
  #requests = 0;

  constructor({ requests, blocks, blockSize, withConnector = false }: LoadOptions) {
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
    this.#withConnector = withConnector;
    this.scheduler = new Scheduler(spec, options, sha256, {
      connector: withConnector ? idleConnector : undefined,
    });
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
    return { stepId: plan.stepId, sampled, ...(this.#withConnector ? { connectorOutput: emptyOutput } : {}) };
  }

  step(): readonly RequestUpdate[] {
    const plan = this.plan();
    return this.scheduler.apply(plan, this.resultOf(plan), 0);
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

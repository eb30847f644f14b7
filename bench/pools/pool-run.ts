import { sha256 } from '../../src/base/sha256.ts';
import {
  type ConnectorOutput,
  type ConnectorRequest,
  emptyOutput,
  type LoadJob,
  type MatchAnswer,
} from '../../src/connector/connector.ts';
import { requestId, type TokenCount, type TokenId } from '../../src/core/ids.ts';
import type { KvCacheSpec } from '../../src/core/kv-spec.ts';
import type { EngineRequest } from '../../src/core/request.ts';
import { parseSamplingParams } from '../../src/core/sampling-parse.ts';
import type { ScheduledStep } from '../../src/scheduler/contract.ts';
import type { ConnectorPort } from '../../src/scheduler/external-kv.ts';
import { requestFits } from '../../src/scheduler/request-fits.ts';
import { Scheduler } from '../../src/scheduler/scheduler.ts';
import { blockSize, type PoolRequest, type PoolScenario } from './pool-scenario.ts';

export interface PoolRun {
  readonly requests: number;
  /** The mean time from the arrival of a request to its end, and to its first token. */
  readonly meanMs: number;
  readonly firstTokenMs: number;
  readonly computedTokens: number;
  readonly outputTokens: number;
  readonly preemptions: number;
}

/** Runs the scheduler without a model. Time is simulated: the scenario says how long steps and loads take. */
export function runScenario(scenario: PoolScenario, withStore: boolean): PoolRun {
  return new Run(scenario, withStore).run();
}

class Run {
  readonly #scenario: PoolScenario;
  readonly #scheduler: Scheduler;
  readonly #store: Store | undefined;
  readonly #requests = new Map<string, PoolRequest>();
  readonly #outputs = new Map<string, number>();
  readonly #spec: KvCacheSpec;
  readonly #options;
  #nowMs = 0;
  #added = 0;
  #sumMs = 0;
  #firstTokenMs = 0;
  #computedTokens = 0;
  #outputTokens = 0;
  #preemptions = 0;

  constructor(scenario: PoolScenario, withStore: boolean) {
    this.#scenario = scenario;
    this.#spec = {
      groups: [{ kind: 'full', blockSize: blockSize as TokenCount, layers: [0] }],
      blockBytes: 1 << 20,
      blockCount: (scenario.blocks + 1) as KvCacheSpec['blockCount'],
      fingerprint: 'bench',
    };
    this.#options = {
      maxNumBatchedTokens: scenario.maxNumBatchedTokens,
      maxNumSeqs: scenario.maxNumSeqs,
      maxModelLen: 1 << 20,
      enablePrefixCaching: true,
      policy: 'fcfs',
    } as const;
    this.#store = withStore ? new Store(scenario, (id) => this.#requests.get(id)!) : undefined;
    this.#scheduler = new Scheduler(this.#spec, this.#options, sha256, { connector: this.#store });
  }

  run(): PoolRun {
    const { requests } = this.#scenario;
    for (;;) {
      while (this.#added < requests.length && requests[this.#added]!.arrivesMs <= this.#nowMs) this.#add();
      if (this.#store?.hasArrived(this.#nowMs) === true) this.#scheduler.notifyTransfers();
      const plan = this.#scheduler.plan(this.#nowMs);
      if (plan !== undefined) this.#step(plan);
      else if (!this.#sleep()) break;
    }
    return {
      requests: this.#requests.size,
      meanMs: this.#sumMs / this.#requests.size,
      firstTokenMs: this.#firstTokenMs / this.#requests.size,
      computedTokens: this.#computedTokens,
      outputTokens: this.#outputTokens,
      preemptions: this.#preemptions,
    };
  }

  #step(plan: ScheduledStep): void {
    this.#store?.begin(plan, this.#nowMs);
    if (plan.tokenCount > 0) this.#nowMs += this.#scenario.stepMs + this.#scenario.tokenMs * plan.tokenCount;
    const sampled = plan.sequences.map(({ sample, requestId: id }) => sample && { token: this.#nextToken(id) });
    const connectorOutputs = [this.#store?.finish(this.#nowMs)];
    const result = { stepId: plan.stepId, sampled, connectorOutputs };
    for (const { requestId: id, newTokens, finish, stats } of this.#scheduler.apply(plan, result, this.#nowMs)) {
      const { arrivesMs } = this.#requests.get(id)!;
      const output = (this.#outputs.get(id) ?? 0) + newTokens.length;
      this.#outputs.set(id, output);
      this.#outputTokens += newTokens.length;
      if (output === 1) this.#firstTokenMs += this.#nowMs - arrivesMs;
      if (finish === undefined) continue;
      this.#sumMs += this.#nowMs - arrivesMs;
      this.#computedTokens += stats.computedTokens;
      this.#preemptions += stats.preemptions;
    }
  }

  /** Lets time pass until the next event. Returns whether there is one. */
  #sleep(): boolean {
    const arrival = this.#scenario.requests[this.#added]?.arrivesMs ?? Infinity;
    const wake = Math.min(arrival, this.#store?.nextArrivalMs() ?? Infinity);
    if (wake === Infinity) return false;
    this.#nowMs = Math.max(wake, this.#nowMs);
    return true;
  }

  #nextToken(id: string): TokenId {
    const isLast = (this.#outputs.get(id) ?? 0) + 1 >= this.#requests.get(id)!.outputTokens;
    return (isLast ? lastToken : 7) as TokenId;
  }

  #add(): void {
    const number = this.#added++;
    const request = this.#scenario.requests[number]!;
    if (!requestFits(this.#spec, this.#options, request.promptTokens, request.maxTokens)) return;
    const id = requestId(`${number}`);
    this.#requests.set(id, request);
    const promptTokens = Int32Array.from({ length: request.promptTokens }, (_, i) =>
      i < request.sharedTokens ? 1000 * request.family + (i % 100) : 100_000 * (number + 1) + i,
    );
    const params = parseSamplingParams({ maxTokens: request.maxTokens }, limits);
    const added: EngineRequest = { id, promptTokens, params, eosTokenIds: [lastToken], priority: 0 };
    this.#scheduler.add(added);
  }
}

/** A store that answers at once, loads in any number in parallel, and never fails. It stores nothing. */
class Store implements ConnectorPort {
  readonly #scenario: PoolScenario;
  readonly #requestOf: (id: string) => PoolRequest;
  readonly #open = new Map<LoadJob['transfer'], number>();

  constructor(scenario: PoolScenario, requestOf: (id: string) => PoolRequest) {
    this.#scenario = scenario;
    this.#requestOf = requestOf;
  }

  getMatchedBlocks({ id, wanted }: ConnectorRequest): MatchAnswer {
    const { storedBlocks } = this.#requestOf(id);
    const blocks = wanted.filter(({ index }) => index < storedBlocks);
    return { kind: 'found', blocks: blocks.map((block) => ({ ...block, place: 'store' })), mode: 'async' };
  }

  begin({ connectorMetadata: metadata }: ScheduledStep, nowMs: number): void {
    if (metadata === undefined) return;
    const { loadMs, loadBlockMs } = this.#scenario;
    for (const { transfer, blocks } of metadata.loads)
      this.#open.set(transfer, nowMs + loadMs + loadBlockMs * blocks.length);
    for (const transfer of metadata.cancelled) this.#open.set(transfer, nowMs);
  }

  hasArrived(nowMs: number): boolean {
    return this.nextArrivalMs() <= nowMs;
  }

  nextArrivalMs(): number {
    return Math.min(...this.#open.values(), Infinity);
  }

  finish(nowMs: number): ConnectorOutput {
    const arrived = [...this.#open].filter(([, endsMs]) => endsMs <= nowMs).map(([transfer]) => transfer);
    for (const transfer of arrived) this.#open.delete(transfer);
    return arrived.length === 0 ? emptyOutput : { ...emptyOutput, finishedRecving: arrived, drained: arrived };
  }

  updateStateAfterAlloc(): void {}
  buildConnectorMeta = () => ({ saves: [] });
  updateConnectorOutput(): void {}
  requestFinished = () => ({});
  hasPendingWork = () => false;
}

const limits = { vocabSize: 1 << 30, maxTokensDefault: 1, drawSeed: () => 0n };
const lastToken = 5 as TokenId;

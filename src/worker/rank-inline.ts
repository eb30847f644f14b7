import { assert, assertDefined } from '../base/assert.ts';
import type { BlockLoadFailure, KvIdentity, WorkerConnector } from '../connector/connector.ts';
import { tiersNotAdministered } from '../connector/errors.ts';
import type { TierOrder, TierOrderAnswer } from '../connector/tier-orders.ts';
import { stepWithConnector } from '../connector/transfer/worker-step.ts';
import type { KvCacheSpec } from '../core/kv-spec.ts';
import type { DraftRequest, SequenceFailure, StepResult } from '../core/step.ts';
import type { AdapterSource } from '../ggml/lora-adapter.ts';
import type { HiddenStates, Runner, StageResult } from '../runner/contract.ts';
import type { ScheduledStep } from '../scheduler/contract.ts';
import { adapterLost } from './errors.ts';
import { sequencesWith, withoutSequences, withoutTokensOf } from './leave-out.ts';
import type { Rank, RankOutput, UpstreamOutput } from './rank.ts';

/** A rank in this process, for the library and inside of a worker process. */
export class InlineRank implements Rank {
  readonly kvCacheSpec: KvCacheSpec;
  readonly identity: KvIdentity;
  readonly #runner: Runner;
  readonly #connector: WorkerConnector | undefined;
  #closing: Promise<void> | undefined;
  #isComputing: boolean = false;
  /** The step waits for saves that it flushes. */
  #isFlushing: boolean = false;

  /** The connector's worker side was opened for `identity` and has the runner's pool. The rank owns both. */
  constructor(runner: Runner, identity: KvIdentity, connector?: WorkerConnector) {
    this.kvCacheSpec = runner.kvCacheSpec;
    this.identity = identity;
    this.#runner = runner;
    this.#connector = connector;
  }

  get isComputing(): boolean {
    return this.#isComputing || this.#isFlushing;
  }

  async execute(step: ScheduledStep, upstream: Promise<UpstreamOutput> | undefined): Promise<RankOutput> {
    assert(this.#closing === undefined, `step ${step.stepId} begins after the rank was closed`);
    this.#runner.release?.(step.released);
    if (this.#connector === undefined) return this.#forward(step, upstream, []);
    const metadata = assertDefined(step.connectorMetadata, 'a step for a connector has its metadata');
    const forward =
      step.sequences.length === 0
        ? undefined
        : (failures: readonly BlockLoadFailure[]) => this.#forward(step, upstream, failures);
    const { endLayer, firstLayer } = this.#runner.stage;
    this.#isFlushing = metadata.jobsToFlush.length > 0;
    const done = await stepWithConnector(this.#connector, metadata, endLayer - firstLayer, forward);
    this.#isFlushing = false;
    if (done.result === undefined) await upstream;
    return { ...(done.result ?? nothingComputed(step)), connectorOutput: done.output };
  }

  async loadAdapter(source: AdapterSource): Promise<void> {
    await assertDefined(this.#runner.adapters, 'a runner that computes adapters').load(source);
  }

  async unloadAdapter(digest: string): Promise<void> {
    await this.#runner.adapters?.unload(digest);
  }

  async administer(order: TierOrder): Promise<TierOrderAnswer> {
    if (this.#connector?.administer === undefined || this.#closing !== undefined) throw tiersNotAdministered();
    return this.#connector.administer(order);
  }

  async draft(requests: readonly DraftRequest[], count: number): Promise<readonly Int32Array[]> {
    assert(this.#closing === undefined && !this.#isComputing, 'a rank drafts between steps');
    assert(this.#runner.draft !== undefined, 'the runner of the last rank drafts');
    this.#isComputing = true;
    try {
      return await this.#runner.draft(requests, count);
    } finally {
      this.#isComputing = false;
    }
  }

  close(options: { readonly timeoutMs: number }): Promise<void> {
    this.#closing ??= this.#close(options);
    return this.#closing;
  }

  async #close(options: { readonly timeoutMs: number }): Promise<void> {
    const { drained } = (await this.#connector?.shutdown(options)) ?? { drained: true };
    // I/O that cannot be stopped still writes the pool, so its memory stays until the process ends (I5).
    if (drained) await this.#runner.close();
  }

  /**
   * `absent`: the sequences that the rank before left out. `lost`: those whose adapter this rank has lost. Only sequences with the
   * same adapter read their blocks.
   */
  #leftOut(
    step: ScheduledStep,
    absent: readonly number[],
    {
      failures: loads,
      lost,
    }: { readonly failures: readonly BlockLoadFailure[]; readonly lost: readonly SequenceFailure[] },
  ): readonly number[] {
    if (loads.length === 0 && lost.length === 0) return absent;
    const failedBlocks = loads.map(({ block }) => block);
    const failed = sequencesWith(step, failedBlocks, this.kvCacheSpec);
    const withoutAdapter = lost.map(({ sequence }) => sequence);
    return [...new Set([...absent, ...failed, ...withoutAdapter])].sort((a, b) => a - b);
  }

  /** A replaced process may not find the file of an adapter again, and an adapter may be unloaded after the end of its last request. */
  #lostAdapters({ sequences }: ScheduledStep, absent: readonly number[]): readonly SequenceFailure[] {
    let lost: readonly SequenceFailure[] = nothing;
    for (let sequence = 0; sequence < sequences.length; sequence++) {
      const { adapter } = sequences[sequence]!;
      if (adapter === undefined || this.#runner.adapters?.has(adapter) === true || absent.includes(sequence)) continue;
      lost = [...lost, { sequence, error: adapterLost() }];
    }
    return lost;
  }

  async #forward(
    step: ScheduledStep,
    upstream: Promise<UpstreamOutput> | undefined,
    failures: readonly BlockLoadFailure[],
  ): Promise<RankOutput> {
    this.#isFlushing = false;
    if (step.sequences.length === 0) {
      await upstream;
      return nothingComputed(step);
    }
    // Without an `await`, the first rank computes before `execute` returns.
    const before = upstream === undefined ? undefined : await upstream;
    const absent = before?.leftOut ?? nothing;
    const lost = this.#lostAdapters(step, absent);
    const leftOut = this.#leftOut(step, absent, { failures, lost });
    if (leftOut.length === step.sequences.length) return withFailures({ ...nothingComputed(step), leftOut }, lost);
    let hidden: HiddenStates | undefined;
    if (before !== undefined) {
      assert(before.hidden !== undefined, 'the rank before sends hidden states');
      hidden = withoutTokensOf(before.hidden, step, absent, leftOut);
    }
    assert(!this.#isComputing, `step ${step.stepId} is computed while another one is`);
    this.#isComputing = true;
    try {
      const result = await this.#runner.execute(withoutSequences(step, leftOut), hidden);
      return withFailures(withLeftOut(step, result, leftOut), lost);
    } finally {
      this.#isComputing = false;
    }
  }
}

const nothing: readonly never[] = [];

/** The result of a step that left sequences out, with the sequence indices of the whole step. */
function withLeftOut(step: ScheduledStep, { hidden, ...result }: StageResult, leftOut: readonly number[]): RankOutput {
  const upstream = hidden === undefined ? {} : { hidden };
  const computed = step.sequences.length - leftOut.length;
  assert(result.stepId === step.stepId, `step ${step.stepId} has the result of step ${result.stepId}`);
  assert(result.sampled.length === computed, `${result.sampled.length} samples for ${computed} sequences`);
  if (leftOut.length === 0) return { result, leftOut, ...upstream };
  const indices = step.sequences.map((_, index) => index).filter((index) => !leftOut.includes(index));
  const sampled: StepResult['sampled'][number][] = step.sequences.map(() => undefined);
  for (const [i, index] of indices.entries()) sampled[index] = result.sampled[i];
  const failures = result.failures?.map((failure) => ({ ...failure, sequence: indices[failure.sequence]! }));
  const prompts = result.prompts?.map((prompt) => ({ ...prompt, sequence: indices[prompt.sequence]! }));
  const renumbered = { ...(failures === undefined ? {} : { failures }), ...(prompts === undefined ? {} : { prompts }) };
  return { result: { ...result, sampled, ...renumbered }, leftOut, ...upstream };
}

function withFailures(output: RankOutput, lost: readonly SequenceFailure[]): RankOutput {
  if (lost.length === 0) return output;
  return { ...output, result: { ...output.result, failures: [...(output.result.failures ?? []), ...lost] } };
}

function nothingComputed({ stepId, sequences }: ScheduledStep): RankOutput {
  return { result: { stepId, sampled: sequences.map(() => undefined) }, leftOut: [] };
}

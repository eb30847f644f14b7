import { assert, assertDefined } from '../base/assert.ts';
import { sha256 } from '../base/sha256.ts';
import { joinAnswers, type TierOrder, type TierOrderAnswer } from '../connector/tier-orders.ts';
import type { KvCacheSpec } from '../core/kv-spec.ts';
import type { DraftRequest, StepResult } from '../core/step.ts';
import type { AdapterSource } from '../ggml/lora-adapter.ts';
import type { ExecutedStep, ScheduledStep } from '../scheduler/contract.ts';
import { ranksDiffer } from './errors.ts';
import type { Executor } from './executor.ts';
import type { Rank, RankOutput, RankTrouble } from './rank.ts';

/** How long saves may take when the engine is closed. */
const closeTimeoutMs = 5_000;

/**
 * All ranks as one executor. Hidden states go from rank to rank, and the last rank samples. A block that is invalid on one rank
 * is invalid on all ranks.
 */
export class PipelineExecutor implements Executor {
  readonly kvCacheSpec: KvCacheSpec;
  readonly #ranks: readonly Rank[];
  #isExecuting: boolean = false;
  #lastStep = 0;

  constructor(ranks: readonly Rank[]) {
    assert(ranks.length > 0, 'an executor needs a rank');
    this.#ranks = ranks;
    this.kvCacheSpec = specOfAll(ranks.map(({ kvCacheSpec }) => kvCacheSpec));
  }

  async execute(step: ScheduledStep): Promise<ExecutedStep> {
    assert(!this.#isExecuting, `step ${step.stepId} begins before the step before it has ended`);
    assert(step.stepId > this.#lastStep, `step ${step.stepId} begins after step ${this.#lastStep}`);
    this.#lastStep = step.stepId;
    this.#isExecuting = true;
    try {
      const outputs: Promise<RankOutput>[] = [];
      for (const rank of this.#ranks) outputs.push(rank.execute(step, outputs.at(-1)));
      return this.#joined(step, outputs.length === 1 ? [await outputs[0]!] : await settledAll(outputs));
    } finally {
      this.#isExecuting = false;
    }
  }

  #joined(step: ScheduledStep, done: readonly RankOutput[]): ExecutedStep {
    const last = assertDefined(done.at(-1), 'an executor needs a rank');
    for (const { result } of done) assertResultOf(step, result);
    assertLeftOut(step, done);
    const partlyComputed = last.leftOut.filter((index) => done[0]?.leftOut.includes(index) === false);
    const invalid = done.flatMap(({ invalidBlocks }) => invalidBlocks ?? []);
    const failures = done.flatMap(({ result }) => result.failures ?? []);
    return {
      ...last.result,
      ...(failures.length === 0 ? {} : { failures }),
      ...(last.leftOut.length === 0 ? {} : { leftOut: last.leftOut }),
      ...(partlyComputed.length === 0 ? {} : { partlyComputed }),
      ...(invalid.length === 0 ? {} : { invalidBlocks: [...(last.result.invalidBlocks ?? []), ...invalid] }),
      ...(step.connectorMetadata === undefined
        ? {}
        : { connectorOutputs: done.map(({ connectorOutput }) => connectorOutput) }),
    };
  }

  async loadAdapter(source: AdapterSource): Promise<void> {
    const loads = await Promise.allSettled(this.#ranks.map((rank) => rank.loadAdapter(source)));
    const failed = loads.find((load) => load.status === 'rejected');
    if (failed === undefined) return;
    await this.unloadAdapter(source.digest);
    throw failed.reason;
  }

  async unloadAdapter(digest: string): Promise<void> {
    await Promise.all(this.#ranks.map((rank) => rank.unloadAdapter(digest)));
  }

  async administer(order: TierOrder): Promise<TierOrderAnswer> {
    const answers = await Promise.allSettled(
      this.#ranks.map(async (rank) => assertDefined(rank.administer, 'the rank has tiers').call(rank, order)),
    );
    const failed = answers.find((answer) => answer.status === 'rejected');
    if (failed !== undefined) throw failed.reason;
    return joinAnswers(answers.map((answer) => (answer as PromiseFulfilledResult<TierOrderAnswer>).value));
  }

  draft(requests: readonly DraftRequest[], count: number): Promise<readonly Int32Array[]> {
    assert(!this.#isExecuting, 'ranks draft between steps');
    const last = assertDefined(this.#ranks.at(-1), 'an executor needs a rank');
    assert(last.draft !== undefined, 'the last rank drafts');
    return last.draft(requests, count);
  }

  troubles(): readonly RankTrouble[] {
    return this.#ranks.flatMap((rank) => rank.trouble?.() ?? []);
  }

  async close(): Promise<void> {
    await Promise.all(this.#ranks.map((rank) => rank.close({ timeoutMs: closeTimeoutMs })));
  }
}

/** If a rank fails, the ranks after it fail too. The error of the first rank is the cause. */
async function settledAll(outputs: readonly Promise<RankOutput>[]): Promise<RankOutput[]> {
  await Promise.allSettled(outputs);
  return Promise.all(outputs);
}

function assertResultOf({ stepId, sequences }: ScheduledStep, { stepId: actual, sampled }: StepResult): void {
  assert(actual === stepId, `step ${stepId} has the result of step ${actual}`);
  assert(
    sampled.length === sequences.length,
    `step ${stepId}: ${sampled.length} samples for ${sequences.length} sequences`,
  );
}

/** A rank leaves out what the rank before left out, because it has no hidden states for these sequences. */
function assertLeftOut({ stepId, sequences }: ScheduledStep, outputs: readonly RankOutput[]): void {
  let before: readonly number[] = [];
  for (const { leftOut } of outputs) {
    const areKnown = leftOut.every((index) => index in sequences);
    assert(areKnown, `step ${stepId} leaves out ${leftOut.join(', ')} of ${sequences.length} sequences`);
    const areKept = before.every((index) => leftOut.includes(index));
    assert(areKept, `step ${stepId}: a rank computes a sequence that the rank before left out`);
    before = leftOut;
  }
}

/**
 * A block has a part on every rank: all ranks have the same number of blocks, and the bytes of the parts add up. On ranks of several devices,
 * the KV of a layer also depends on the devices of the layers before it, so keys depend on the numerics of all ranks.
 */
function specOfAll(specs: readonly KvCacheSpec[]): KvCacheSpec {
  const [first] = specs;
  assert(first !== undefined, 'an executor needs a rank');
  for (const { blockCount, fingerprint, groups } of specs) {
    assert(blockCount === first.blockCount, `ranks with ${first.blockCount} and ${blockCount} blocks`);
    if (fingerprint !== first.fingerprint) throw ranksDiffer({});
    assert(groups.length === first.groups.length, 'ranks with different KV groups');
  }
  const { sliceableLayers, numerics, ...shared } = first;
  // Hidden states of a chunk by layers stay in one runner.
  const ofOne = specs.length > 1 || sliceableLayers === undefined ? {} : { sliceableLayers };
  return {
    ...shared,
    ...ofOne,
    ...(numerics === undefined ? {} : { fingerprint: fingerprintOfAll(specs) }),
    groups: first.groups.map((group, g) => ({ ...group, layers: specs.flatMap(({ groups }) => groups[g]!.layers) })),
    blockBytes: specs.reduce((sum, { blockBytes }) => sum + blockBytes, 0),
  };
}

function fingerprintOfAll(specs: readonly KvCacheSpec[]): string {
  const parts = specs.map(({ fingerprint, numerics }) => [fingerprint, numerics]);
  return Buffer.from(sha256(new TextEncoder().encode(JSON.stringify(parts)))).toString('hex');
}

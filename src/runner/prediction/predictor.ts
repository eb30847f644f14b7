import { assertDefined } from '../../base/assert.ts';
import { type BlockId, NULL_BLOCK, type RequestId, stepId, type TokenCount, tokenCount } from '../../core/ids.ts';
import type { KvGroupSpec } from '../../core/kv-spec.ts';
import { parseSamplingParams } from '../../core/sampling-parse.ts';
import type { DraftRequest, Sample, SampleRequest, SequencePlan, StepPlan } from '../../core/step.ts';
import type { TensorPtr } from '../../ggml/ffi.ts';
import type { GraphBuilder } from '../../ggml/graph.ts';
import type { DecoderParts } from '../arch/decoder.ts';
import type { AttentionRows } from '../attention/attention.ts';
import { type Batch, type BatchSequence, layOutBatch } from '../batch.ts';
import type { HiddenStates } from '../contract.ts';
import type { DecoderGraphs } from '../decoder-graphs.ts';
import { anyRows } from '../matmul/row-rule.ts';
import type { LogitsPasses } from '../sampling/logits-candidates.ts';
import { PredictionContext } from './prediction-context.ts';

/** What a predictor is made of. */
export interface PredictorParts {
  /** Of the prediction layer, as a model of one layer with a pool of its own. */
  readonly decoder: Omit<DecoderParts, 'graph'>;
  readonly graphs: DecoderGraphs;
  readonly passes: Pick<LogitsPasses, 'best'>;
  readonly onLogits?: ((logits: Float32Array) => void) | undefined;
  /** Closes what the predictor owns. */
  readonly close: () => void;
  /** The first values of a result, valid until the next graph is computed. */
  readonly read: (graph: GraphBuilder, result: TensorPtr, length: number) => Float32Array;
}

/**
 * Drafts with the layer for multi-token prediction (MTP) of a model. Its input at a position is the token there and the model's last hidden
 * state at the position before. Its result predicts the token after it. For the next draft, its own hidden state takes the place of
 * the model's.
 *
 * The layer has KV of its own, which is no part of the blocks of the pool (ADR 29). Drafts decide how much a step computes, and never
 * which tokens come out, so nothing here needs to be exact.
 *
 * Hidden states wait until the request drafts. If many wait, as after a chunk of a prompt, only the layer's K and V are computed of them.
 * While no drafts are asked for, as at the start, only the last hidden states are kept, and the context begins with them.
 */
export class Predictor {
  readonly #parts: PredictorParts;
  readonly #group: KvGroupSpec;
  /** Those used last come last. */
  readonly #contexts = new Map<RequestId, PredictionContext>();
  readonly #freeBlocks: BlockId[] = [];
  readonly #sample: SampleRequest;
  #steps = 0;
  /** Steps of decodes only, before which drafts could be asked for, since the last drafts. */
  #stepsWithoutDrafts = IDLE_AFTER_STEPS;

  constructor(parts: PredictorParts) {
    const { memories, config } = parts.decoder;
    const memory = memories[0]!;
    this.#parts = parts;
    this.#group = { kind: 'full', blockSize: tokenCount(memory.layout.blockSize), layers: [0] };
    for (let block = memory.blockCount - 1; block > NULL_BLOCK; block--) this.#freeBlocks.push(block as BlockId);
    const limits = { vocabSize: config.vocabSize, maxTokensDefault: 1, drawSeed: () => 0n };
    const params = parseSamplingParams({ temperature: 0 }, limits);
    this.#sample = { params, promptLength: tokenCount(0), eosTokenIds: [] };
  }

  /** Requests that have ended or were preempted. */
  released(requests: readonly RequestId[]): void {
    for (const request of requests) this.#forget(request);
  }

  /** The rows of the next step whose hidden states are of use. */
  get hiddenRows(): AttentionRows {
    return this.#isIdle ? 'outputs' : 'all';
  }

  /**
   * After each step of the model that has hidden states: those of the batch's `hiddenRows`, after the last norm. `sampled`: parallel to the
   * sequences.
   */
  async stepEnded(batch: Batch, hidden: HiddenStates, sampled: readonly (Sample | undefined)[]): Promise<void> {
    if (batch.rowCount === batch.outputCount) this.#stepsWithoutDrafts++;
    const many: PredictionContext[] = [];
    for (const [i, sequence] of batch.sequences.entries()) {
      const known = knownRows(batch, sequence);
      if (known === undefined) continue;
      const context = this.#contextOf(sequence.plan.requestId);
      this.#append(
        context,
        { ...sequence.plan, spans: known.spans },
        hidden.subarray(known.firstRow * this.#width),
        sampled[i],
      );
      if (!this.#isIdle && context.waiting > WAITING_MAX) many.push(context);
      if (this.#isIdle && context.waiting > IDLE_WAITING_MAX) context.keepLast();
    }
    if (many.length > 0) await this.#computeKv(many);
  }

  /** Up to `count` tokens after each text; fewer or none where the hidden states of its end are not known. */
  async draft(requests: readonly DraftRequest[], count: number): Promise<Int32Array[]> {
    this.#stepsWithoutDrafts = 0;
    const drafts = requests.map((): number[] => []);
    const known = requests.flatMap(({ requestId, length }, index) => {
      const context = this.#contexts.get(requestId);
      return context?.end === length && context.waiting > 0 ? [{ context, index }] : [];
    });
    const ends = known.map(({ context }) => endOf(context));
    let drafting = known;
    for (let draft = 0; draft < count && drafting.length > 0; draft++) {
      const allocated = this.#allocate(drafting.map(({ context }) => context));
      drafting = drafting.filter(({ context }) => allocated.has(context));
      if (drafting.length === 0) break;
      const next = await this.#predict(drafting.map(({ context }) => context));
      drafting = drafting.filter(({ context, index }, i) => {
        const { token, hidden } = next[i]!;
        if (token === undefined) return false;
        drafts[index]!.push(token);
        context.append(context.end, Int32Array.of(token), hidden);
        return true;
      });
    }
    for (const [i, { context }] of known.entries()) {
      const { position, token, hidden } = ends[i]!;
      context.append(position, Int32Array.of(token), hidden);
    }
    return drafts.map((tokens) => Int32Array.from(tokens));
  }

  close(): void {
    this.#parts.close();
  }

  get #isIdle(): boolean {
    return this.#stepsWithoutDrafts >= IDLE_AFTER_STEPS;
  }

  get #width(): number {
    return this.#parts.decoder.config.embeddingLength;
  }

  #contextOf(request: RequestId): PredictionContext {
    const context = this.#contexts.get(request) ?? new PredictionContext(this.#width);
    this.#contexts.delete(request);
    this.#contexts.set(request, context);
    return context;
  }

  #forget(request: RequestId): void {
    this.#freeBlocks.push(...(this.#contexts.get(request)?.blocks ?? []));
    this.#contexts.delete(request);
  }

  /** The rows of a sequence whose next tokens are known: all but the last one of a chunk, and of drafts only the accepted ones. */
  #append(
    context: PredictionContext,
    { tokens, spans }: SequencePlan,
    hidden: HiddenStates,
    sample: Sample | undefined,
  ): void {
    const sampled = sample === undefined ? [] : [sample, ...(sample.further ?? [])].map(({ token }) => token);
    let row = 0;
    for (const { start, end } of spans) {
      const own = tokens.view(start + 1, Math.max(start + 1, Math.min(end + 1, tokens.length)));
      const further = end < tokens.length ? [] : sampled.slice(0, end + 1 - tokens.length);
      const next = further.length === 0 ? own : Int32Array.from([...own, ...further]);
      context.append(start + 1, next, hidden.subarray(row * this.#width, (row + next.length) * this.#width));
      row += end - start;
    }
  }

  /** Gives blocks to contexts, which are computed together. Returns those that have enough. */
  #allocate(contexts: readonly PredictionContext[]): ReadonlySet<PredictionContext> {
    const { blockSize } = this.#group;
    const lacks = ({ blocks, tokens }: PredictionContext): boolean => blocks.length * blockSize < tokens.length;
    const victims = [...this.#contexts.values()].filter(({ blocks }) => blocks.length > 0);
    return new Set(
      contexts.filter((context) => {
        while (lacks(context)) {
          const free = this.#freeBlocks.pop() ?? this.#takeBlock(victims, contexts);
          if (free !== undefined) context.blocks.push(free);
          // The text is longer than the pool: its context begins anew.
          else if (context.computed > 0) context.forgetComputed();
          else return false;
        }
        return true;
      }),
    );
  }

  /** The context that was used least recently loses its KV. */
  #takeBlock(victims: PredictionContext[], kept: readonly PredictionContext[]): BlockId | undefined {
    let victim = victims.shift();
    while (victim !== undefined && kept.includes(victim)) victim = victims.shift();
    if (victim === undefined) return undefined;
    victim.forgetComputed();
    this.#freeBlocks.push(...victim.blocks.splice(0));
    return this.#freeBlocks.pop();
  }

  /** Of all waiting tokens but the last, with which the next draft begins. */
  async #computeKv(contexts: readonly PredictionContext[]): Promise<void> {
    const allocated = this.#allocate(contexts);
    for (const context of contexts) if (!allocated.has(context)) context.keepLast();
    const ready = contexts.filter((context) => allocated.has(context) && context.waiting > 1);
    if (ready.length > 0) await this.#run(ready.map((context) => ({ context, end: context.tokens.length - 1 })));
  }

  /** The most probable token after each context, and the hidden state of its last token. */
  async #predict(contexts: readonly PredictionContext[]) {
    const { decoder: parts, passes, read, onLogits } = this.#parts;
    const sequences = contexts.map((context) => ({ context, end: context.tokens.length, sample: this.#sample }));
    const { batch, decoder } = await this.#run(sequences);
    const { graph, result, hidden, best } = decoder;
    const { vocabSize } = parts.config;
    const logits = read(graph, assertDefined(result, 'logits'), batch.outputCount * vocabSize);
    const states = read(graph, assertDefined(hidden, 'hidden states'), batch.outputCount * this.#width);
    const found = best === undefined ? undefined : graph.dataOf(best, Int32Array);
    return contexts.map((_, i) => {
      const row = logits.subarray(i * vocabSize, (i + 1) * vocabSize);
      onLogits?.(row);
      const token = found === undefined ? passes.best(row) : parts.bestTokens!.of(found, i, row);
      // With broken weights there is no best token. The model's own logits then report them.
      const isToken = Number.isFinite(row[token]);
      return { token: isToken ? token : undefined, hidden: states.slice(i * this.#width, (i + 1) * this.#width) };
    });
  }

  /** Computes the waiting tokens of contexts, which have blocks for them. */
  async #run(
    parts: readonly { readonly context: PredictionContext; readonly end: number; readonly sample?: SampleRequest }[],
  ) {
    const { decoder: decoderParts, graphs } = this.#parts;
    const sequences = parts.map(({ context, end, sample }, i): SequencePlan => {
      const table = { ids: Int32Array.from(context.blocks), length: context.blocks.length };
      return {
        requestId: `${i}` as RequestId,
        tokens: context.tokens,
        spans: [{ start: context.computed as TokenCount, end: end as TokenCount }],
        blockTables: [table],
        ...(sample === undefined ? {} : { sample }),
      };
    });
    const rows = parts.map(({ context, end }) => context.hiddenUntil(end));
    const total = parts.reduce((sum, { context, end }) => sum + end - context.computed, 0);
    const plan: StepPlan = { stepId: stepId(++this.#steps), sequences, tokenCount: tokenCount(total), released: [] };
    const { memories } = decoderParts;
    const batch = layOutBatch(plan, { memories, groups: [this.#group], hiddenRows: 'outputs' }, anyRows);
    const decoder = graphs.graphFor(decoderParts, batch);
    decoder.writeInputs(joined(rows));
    await decoder.graph.compute();
    for (const { context, end } of parts) context.advance(end);
    return { batch, decoder };
  }
}

/** More hidden states do not wait: K and V of many tokens together cost little. */
const WAITING_MAX = 64;
/** More than the steps without drafts between steps with drafts that are worth their time. */
const IDLE_AFTER_STEPS = 8;
/** A draft after many steps without drafts tries whether they are worth their time again. So it must be cheap. */
const IDLE_WAITING_MAX = 16;

/** The rows of a sequence whose hidden states are known, and the first one's index among them; undefined: none. */
function knownRows({ hiddenRows }: Batch, { plan: { spans }, firstRow, outputIndex, outputCount }: BatchSequence) {
  if (hiddenRows === 'all') return { spans, firstRow };
  if (outputIndex === undefined) return undefined;
  const { end } = spans.at(-1)!;
  return { spans: [{ start: tokenCount(end - outputCount), end }], firstRow: outputIndex };
}

/** The last token of a context, which begins each draft. */
const endOf = (context: PredictionContext) => ({
  position: context.end - 1,
  token: context.tokens.at(context.tokens.length - 1),
  hidden: context.hiddenUntil(context.tokens.length).slice(-context.width),
});

function joined(rows: readonly HiddenStates[]): HiddenStates {
  if (rows.length === 1) return rows[0]!;
  const all = new Float32Array(rows.reduce((sum, { length }) => sum + length, 0));
  let at = 0;
  for (const row of rows) {
    all.set(row, at);
    at += row.length;
  }
  return all;
}

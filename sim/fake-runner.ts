import { assert } from '../src/base/assert.ts';
import { NULL_BLOCK, type RequestId } from '../src/core/ids.ts';
import type { KvCacheSpec } from '../src/core/kv-spec.ts';
import {
  areSameSpans,
  type BlockTable,
  hasMoreLayers,
  type LayerRange,
  type PromptResult,
  type PromptRows,
  type Sample,
  type SampledToken,
  type SequencePlan,
  type Span,
  type StepPlan,
} from '../src/core/step.ts';
import type { HiddenStates, StageResult } from '../src/runner/contract.ts';
import { entryOf, firstRead, hiddenOf, hiddenSeed, mix, nextTokenOf, rowWidth, writeRow } from './fake-model.ts';
import { checkMasks } from './noted-constraint.ts';

/** A token read other KV than an engine without a cache has there. */
export interface WrongRead {
  readonly token: number;
  readonly group: number;
  /** The position whose KV was read, and the block that was read. */
  readonly position: number;
  readonly block: number;
  /** The block was filled for another salt, adapter, model or group. Its content does not matter (I10). */
  readonly isForeign: boolean;
}

/** The KV that a request must read. */
export interface ReferenceKv {
  /** By rank and group, the entries of the request's tokens. */
  readonly entries: readonly (readonly Int32Array[])[];
  /** One number for each salt and adapter. A block that is filled gets the label of the request. */
  readonly label: number;
}

/** A chunk of which some layers are computed. */
interface ChunkByLayers {
  readonly requestId: RequestId;
  readonly spans: readonly Span[];
  readonly nextLayer: number;
  readonly outputs: readonly number[];
  /** By token, whether all slices have found the same KV. */
  readonly isSame: readonly boolean[];
}

/** The content of a block, as transfers move it. */
export interface StoredBlock {
  readonly entries: Int32Array;
  readonly label: number;
}

/** The part of the model that a runner has. */
export interface FakeStage {
  readonly rank: number;
  readonly rankCount: number;
}

/**
 * Executes plans with one rank's part of the fake model over a pool of its own. It reads and writes entries through the block tables, as a
 * real runner does. A rank continues from the hidden states of the rank before, and the last rank samples. Tokens are computed one after the other in the order of the batch. This is stricter than a real runner, where all
 * writes of a layer precede its reads. So it also shows whether a block's owner comes before the requests that share the block.
 */
export class FakeRunner {
  readonly kvCacheSpec: KvCacheSpec;
  readonly vocabSize: number;
  readonly stage: FakeStage;
  /** Entry of (block, offset); state groups use offset 0. Starts as garbage, as memory does. */
  readonly #entries: Int32Array;
  readonly #entriesPerBlock: number;
  /** The label of the request for which each block was filled last; see `labelOf`. */
  readonly #labels: Int32Array;
  #garbage = 0x2545f491;
  tokensComputed = 0;
  #wrongRead: WrongRead | undefined;
  readonly #wrongReads = new Map<RequestId, WrongRead>();
  #chunk: ChunkByLayers | undefined;
  /** The places that the tokens of the present sequence have written, one for each token and group. */
  readonly #written: number[] = [];

  constructor(spec: KvCacheSpec, vocabSize: number, stage: FakeStage = { rank: 0, rankCount: 1 }) {
    this.kvCacheSpec = spec;
    this.vocabSize = vocabSize;
    this.stage = stage;
    this.#entriesPerBlock = Math.max(...spec.groups.map((group) => group.blockSize));
    this.#entries = new Int32Array(spec.blockCount * this.#entriesPerBlock);
    this.#labels = new Int32Array(spec.blockCount).fill(-1);
    this.loseAll();
  }

  /** Another process has the rank: all its memory is garbage. */
  loseAll(): void {
    this.#labels.fill(-1);
    for (let i = 0; i < this.#entries.length; i++) this.#entries[i] = this.#nextGarbage();
    this.#chunk = undefined;
  }

  /** The first wrong read of the request in the last plan, if its reference KV was known. */
  wrongReadOf(id: RequestId): WrongRead | undefined {
    return this.#wrongReads.get(id);
  }

  /** The last plan was not executed on this rank, or its result is lost. */
  forgetWrongReads(): void {
    this.#wrongReads.clear();
  }

  /**
   * `leftOut`: indices of sequences that are not computed, because a block that they read is invalid. `referenceOf`: the KV
   * that requests must read; the runner compares it with what they read. `upstream`: the hidden states of the rank before.
   */
  execute(
    plan: StepPlan,
    leftOut: readonly number[] = [],
    referenceOf: (id: RequestId) => ReferenceKv | undefined = () => undefined,
    upstream?: HiddenStates,
  ): StageResult {
    let tokenCount = 0;
    this.#wrongReads.clear();
    const { rank, rankCount } = this.stage;
    const isLast = rank === rankCount - 1;
    if ((upstream === undefined) !== (rank === 0)) assert(false, `rank ${rank} of a pipeline has the wrong input`);
    const hidden = isLast ? undefined : new Float32Array(plan.tokenCount * rowWidth);
    let row = 0;
    const sampled: (Sample | undefined)[] = [];
    const prompts: PromptResult[] = [];
    for (let index = 0; index < plan.sequences.length; index++) {
      const sequence = plan.sequences[index]!;
      let last = 0;
      const { drafts, tokens } = sequence;
      const next: number[] = [];
      const isLeftOut = leftOut.includes(index);
      const reference = referenceOf(sequence.requestId);
      this.#wrongRead = undefined;
      checkMasks(sequence);
      const { prompt } = sequence;
      const values: number[] = [];
      const before = sequence.layers === undefined ? undefined : this.#entries.slice();
      const outputs: number[] = [];
      this.#written.length = 0;
      for (const { start, end } of sequence.spans) {
        if (start >= end || end > tokens.length + (drafts?.tokens.length ?? 0))
          assert(false, `span [${start}, ${end}) of ${tokens.length} tokens`);
        for (let position: number = start; position < end && !isLeftOut; position++) {
          const before =
            upstream === undefined ? hiddenSeed(tokenAt(sequence, position), position) : hiddenOf(upstream, row, rank);
          last = this.#token(sequence, position, before, reference);
          if (hidden !== undefined) writeRow(hidden, row, last);
          row++;
          outputs.push(last);
          if (drafts !== undefined) next.push(nextTokenOf(last, this.vocabSize));
          if (prompt !== undefined && position >= prompt.start && position < prompt.end) values.push(last);
        }
        tokenCount += end - start;
      }
      if (sequence.layers !== undefined && !isLeftOut) this.#slice(sequence, sequence.layers, outputs, before!);
      if (prompt !== undefined && !isLeftOut && isLast) prompts.push({ sequence: index, ...resultOf(prompt, values) });
      if (this.#wrongRead !== undefined) this.#wrongReads.set(sequence.requestId, this.#wrongRead);
      sampled.push(
        isLeftOut || !isLast
          ? undefined
          : sequence.sample &&
              (drafts === undefined
                ? { token: nextTokenOf(last, this.vocabSize) as SampledToken['token'] }
                : verifyDrafts(drafts.tokens, next)),
      );
    }
    assert(tokenCount === plan.tokenCount, `a plan of ${plan.tokenCount} tokens schedules ${tokenCount}`);
    this.tokensComputed += tokenCount;
    const result = { stepId: plan.stepId, sampled, ...(prompts.length === 0 ? {} : { prompts }) };
    return hidden === undefined ? result : { ...result, hidden };
  }

  /**
   * Some layers of a chunk (ADR 27). The fake model has no layers: each slice computes all tokens, and all slices must find the same
   * KV. The entries of a token are garbage before the last slice, and after it if a slice has found other KV for the token.
   */
  #slice(sequence: SequencePlan, { first, end }: LayerRange, outputs: readonly number[], before: Int32Array): void {
    const { requestId, spans } = sequence;
    const chunk = first === 0 ? undefined : this.#chunk;
    if (first > 0) {
      const follows = chunk?.requestId === requestId && chunk.nextLayer === first && areSameSpans(chunk.spans, spans);
      assert(follows, `layer ${first} of ${requestId} does not follow the layers that were computed last`);
    }
    const isSame = outputs.map((value, i) => chunk === undefined || (chunk.isSame[i]! && chunk.outputs[i] === value));
    const isLast = !hasMoreLayers(sequence, this.kvCacheSpec);
    const groupCount = this.kvCacheSpec.groups.length;
    for (const [i, place] of this.#written.entries()) {
      const isValid = isLast && isSame[Math.floor(i / groupCount)];
      if (!isValid && this.#entries[place] !== before[place]) this.#entries[place] = this.#nextGarbage();
    }
    const copy = spans.map((span) => ({ ...span }));
    this.#chunk = isLast ? undefined : { requestId, spans: copy, nextLayer: end, outputs, isSame };
  }

  /** What a transfer reads: the block's entries. A state has one entry. */
  readBlock(block: number, group: number): StoredBlock {
    const { kind, blockSize } = this.kvCacheSpec.groups[group]!;
    const first = block * this.#entriesPerBlock;
    const entries = this.#entries.slice(first, first + (kind === 'state' ? 1 : blockSize));
    return { entries, label: this.#labels[block]! };
  }

  /** What a transfer writes. */
  writeBlock(block: number, { entries, label }: StoredBlock): void {
    this.#entries.set(entries, block * this.#entriesPerBlock);
    this.#labels[block] = label;
  }

  /** The block's memory is lost, or another program overwrites it. */
  overwrite(block: number): void {
    const first = block * this.#entriesPerBlock;
    for (let i = 0; i < this.#entriesPerBlock; i++) this.#entries[first + i] = this.#nextGarbage();
  }

  /** The KV of one token is lost; in a state group, the state. */
  overwriteAt(block: number, group: number, position: number): void {
    this.#entries[this.#placeOf(block, group, position)] = this.#nextGarbage();
  }

  /** Whether the block has this token's KV of the reference (in a state group, the state after the token). */
  matchesReference(block: number, group: number, position: number, reference: ReferenceKv): boolean {
    return (
      this.#entries[this.#placeOf(block, group, position)] === reference.entries[this.stage.rank]![group]![position] &&
      this.#labels[block] === labelOf(reference, group)
    );
  }

  /** Computes one token; returns the value from which the next rank continues, or the next token follows. */
  #token(sequence: SequencePlan, position: number, before: number, reference: ReferenceKv | undefined): number {
    const groups = this.kvCacheSpec.groups;
    const { blockTables } = sequence;
    // Drafts read their own KV, and the reference has only the KV of the request's tokens.
    const entries = position < sequence.tokens.length ? reference?.entries[this.stage.rank] : undefined;
    let hidden = before;
    for (let group = 0; group < groups.length; group++) {
      let read = group;
      const expected = entries?.[group];
      const label = reference === undefined ? 0 : labelOf(reference, group);
      const { kind, blockSize } = groups[group]!;
      for (let q = firstRead(groups[group]!, position); q < position; ) {
        const block = this.#blockAt(blockTables[group]!, group, q);
        const isForeign = this.#labels[block] !== label;
        const blockEnd = Math.min(q - (q % blockSize) + blockSize, position);
        for (let place = this.#placeOf(block, group, q); q < blockEnd; q++, place++) {
          const entry = this.#entries[place]!;
          if (expected !== undefined && (isForeign || expected[q] !== entry))
            this.#wrongRead ??= { token: position, group, position: q, block, isForeign };
          read = mix(read, entry);
          // All tokens of a block share one state; a token reads only the last state.
          if (kind === 'state') assert(q === position - 1, 'a state is read from further back');
        }
      }
      hidden = mix(hidden, read);
    }
    const writeTables = sequence.writeTables ?? blockTables;
    let output = hidden;
    for (let group = 0; group < groups.length; group++) {
      const block = this.#blockAt(writeTables[group]!, group, position);
      const place = this.#placeOf(block, group, position);
      this.#entries[place] = entryOf(hidden, group);
      this.#written.push(place);
      if (reference !== undefined) this.#labels[block] = labelOf(reference, group);
      output = mix(
        output,
        this.#entries[this.#placeOf(this.#blockAt(blockTables[group]!, group, position), group, position)]!,
      );
      // The null block's content has no meaning: overwriting it prevents a lucky read.
      if (block === NULL_BLOCK) this.overwrite(NULL_BLOCK);
    }
    return output;
  }

  #placeOf(block: number, group: number, position: number): number {
    const { kind, blockSize } = this.kvCacheSpec.groups[group]!;
    return block * this.#entriesPerBlock + (kind === 'state' ? 0 : position % blockSize);
  }

  #blockAt(table: BlockTable, group: number, position: number): number {
    const index = Math.floor(position / this.kvCacheSpec.groups[group]!.blockSize);
    if (index >= table.length) assert(false, `position ${position} is outside a table of ${table.length} blocks`);
    return table.ids[index]!;
  }

  #nextGarbage(): number {
    this.#garbage = mix(this.#garbage, 0x6a09e667);
    return this.#garbage;
  }
}

/** The logprobs of the rows, or their hidden states of one number each. */
function resultOf({ topCount }: PromptRows, values: readonly number[]): Pick<PromptResult, 'logprobs' | 'hidden'> {
  if (topCount === undefined) return { hidden: Float32Array.from(values) };
  return { logprobs: values.map((logprob) => ({ logprob, rank: 1, top: [] })) };
}

function tokenAt({ tokens, drafts }: SequencePlan, position: number): number {
  return position < tokens.length ? tokens.at(position) : drafts!.tokens[position - tokens.length]!;
}

/** `next`: the tokens that follow the last token and each draft. */
function verifyDrafts(drafts: Int32Array, next: readonly number[]): Sample {
  const accepted = next.findIndex((token, i) => token !== drafts[i]);
  const [first, ...further] = next.slice(0, accepted + 1).map((token) => ({ token: token as SampledToken['token'] }));
  return further.length === 0 ? first! : { ...first!, further };
}

/** Blocks of different groups have different labels, too. */
const labelOf = ({ label }: ReferenceKv, group: number): number => label * 16 + group;

import { assert } from '../src/base/assert.ts';
import { type BlockId, NULL_BLOCK, type RequestId } from '../src/core/ids.ts';
import type { KvCacheSpec } from '../src/core/kv-spec.ts';
import { type BlockTable, hasMoreLayers, type SequencePlan, spansOfTokens } from '../src/core/step.ts';
import type { ExecutedStep, ScheduledStep } from '../src/scheduler/contract.ts';
import { firstRead } from './fake-model.ts';
import type { ReferenceKv, WrongRead } from './fake-runner.ts';

/** The memory of all ranks: KV is valid where it is valid on each of them. */
export interface PoolMemory {
  readonly kvCacheSpec: KvCacheSpec;
  /** The first wrong read of the request in the last plan, on any rank. */
  wrongReadOf(id: RequestId): WrongRead | undefined;
  /** Whether the block has this token's KV of the reference (in a state group, the state after the token). */
  matchesReference(block: number, group: number, position: number, reference: ReferenceKv): boolean;
  /** The block's memory is lost. */
  overwrite(block: number): void;
  /** The KV of one token is lost; in a state group, the state. */
  overwriteAt(block: number, group: number, position: number): void;
}

/**
 * I3 from outside the engine: no step computes a token whose KV is valid or that no token needs. The memory of the fake runners,
 * compared with the reference's KV, shows what is valid. The definition, token by token, shows what is needed. The check uses
 * nothing of the KV core (residency, planner, index).
 *
 * Where memory has valid KV and the engine cannot know it, the check destroys the memory, so that both agree:
 *   - an allocated block loses its content (`on-allocation.ts`);
 *   - blocks that a report calls invalid lose their content at the end of the step;
 *   - of a request's scheduled tokens, the first that depends on an invalid block and all after it do not count. The rest of the
 *     block after such a token loses its content, too: a block is valid up to its first invalid token.
 *
 * A request may also continue from the block that its last tokens were written to (a running state, a partial block of a window),
 * although the block tables no longer have the block. The block is lost if it is allocated or the request is preempted.
 *
 * The check also counts the tokens that each request's steps compute, for the comparison with `RequestStats.computedTokens`.
 *
 * It does not see work that a better search of the pool would save: a valid block outside the request's block tables.
 */
export class MinimalRepair {
  readonly #memory: PoolMemory;
  readonly #referenceOf: (id: RequestId) => ReferenceKv | undefined;
  readonly #neededFrom: (id: RequestId) => number;
  readonly #computed = new Map<RequestId, number>();
  /** KV that the plan's scheduled tokens and loads write, marked with the plan's number: entries by place, states by block. */
  readonly #coming: Int32Array;
  readonly #comingStates: Int32Array;
  /** The offset in the block of the token after which the state is. */
  readonly #comingOffsets: Int32Array;
  #plans = 0;
  /** Blocks that were allocated since the last step. */
  #allocated: ReadonlySet<number> = new Set();
  readonly #placesPerBlock: number;
  readonly #invalid = new Set<number>();
  /** The blocks with the last tokens that each request computed. */
  readonly #last = new Map<RequestId, LastTokens>();
  #needed = new Uint8Array(0);
  /** Per group: which tokens are valid, and the first token of those whose reads are all marked. */
  readonly #valid: Uint8Array[];
  readonly #markedFrom: Int32Array;
  /** The number of checked sequences; those that compute only the last token need no check. */
  checked = 0;

  /** `neededFrom`: the first token of a request from which on all are needed for results of its prompt; Infinity: none is. */
  constructor(
    memory: PoolMemory,
    referenceOf: (id: RequestId) => ReferenceKv | undefined,
    neededFrom: (id: RequestId) => number = () => Infinity,
  ) {
    this.#memory = memory;
    this.#referenceOf = referenceOf;
    this.#neededFrom = neededFrom;
    this.#valid = memory.kvCacheSpec.groups.map(() => new Uint8Array(0));
    this.#markedFrom = new Int32Array(this.#valid.length);
    const { groups, blockCount } = memory.kvCacheSpec;
    this.#placesPerBlock = Math.max(...groups.map(({ blockSize }) => blockSize));
    this.#coming = new Int32Array(blockCount * this.#placesPerBlock);
    this.#comingStates = new Int32Array(blockCount);
    this.#comingOffsets = new Int32Array(blockCount);
  }

  computedTokens(id: RequestId): number {
    return this.#computed.get(id) ?? 0;
  }

  /** The block was allocated or is invalid, so it has lost its content. A load that still fills it changes nothing for its last user. */
  contentLost(block: number): void {
    for (const { blocks } of this.#last.values())
      for (let group = 0; group < blocks.length; group++) if (blocks[group] === block) blocks[group] = NULL_BLOCK;
  }

  /** Before the plan is executed. `allocated`: these blocks lose their content in the step, after saves have read it. */
  checkPlan(plan: ScheduledStep, allocated: readonly BlockId[]): void {
    this.#plans++;
    this.#allocated = new Set(allocated);
    for (const block of allocated) this.contentLost(block);
    for (const id of plan.released) this.#last.delete(id);
    const { groups } = this.#memory.kvCacheSpec;
    for (const { mode, blocks } of plan.connectorMetadata?.loads ?? [])
      if (mode === 'sync')
        for (const { block, group } of blocks) this.#willCome(block, group, 0, groups[group]!.blockSize);
    for (const sequence of plan.sequences) {
      // The last token is always needed, for its logits.
      if (sequence.spans[0]!.start < sequence.tokens.length - 1) this.#checkSequence(sequence);
      const tables = sequence.writeTables ?? sequence.blockTables;
      for (const { start, end } of sequence.spans)
        for (let group = 0; group < groups.length; group++) {
          const { blockSize } = groups[group]!;
          for (let token: number = start; token < end; token++)
            this.#willCome(blockAt(tables[group]!, token, blockSize), group, token % blockSize, 1);
        }
    }
  }

  /**
   * After the step. `invalid`: blocks whose content was lost before the result was applied. `notLoaded`: blocks that sync loads of
   * the step have not filled.
   */
  stepDone(
    plan: ScheduledStep,
    { leftOut = nothing, partlyComputed = nothing, failures = nothing }: ExecutedStep,
    invalid: readonly BlockId[],
    notLoaded: readonly BlockId[],
  ): void {
    for (const block of invalid) {
      this.#memory.overwrite(block);
      this.contentLost(block);
    }
    const invalidBlocks = this.#invalid;
    invalidBlocks.clear();
    for (const block of invalid) invalidBlocks.add(block);
    for (const block of notLoaded) invalidBlocks.add(block);
    for (let index = 0; index < plan.sequences.length; index++) {
      const sequence = plan.sequences[index]!;
      const isLeftOut = leftOut.includes(index) || hasMoreLayers(sequence, this.#memory.kvCacheSpec);
      if (!isLeftOut) this.#count(sequence);
      const countsNone = isLeftOut || failures.some((failure) => failure.sequence === index);
      const first = countsNone
        ? 0
        : this.#firstInvalid(sequence, this.#memory.wrongReadOf(sequence.requestId)?.token, invalidBlocks);
      this.#setLast(sequence, first);
      const isUntouched = isLeftOut && !partlyComputed.includes(index);
      if (first !== Infinity) this.#dropTokens(sequence, first, invalidBlocks, isUntouched);
    }
  }

  /** The tokens before position `first` count. */
  #setLast(sequence: SequencePlan, first: number): void {
    const end = spansOfTokens(sequence, sequence.tokens.length).findLast((span) => span.end <= first)?.end;
    if (end !== undefined) this.#setLastAt(sequence, end);
  }

  #setLastAt({ requestId, blockTables, writeTables = blockTables }: SequencePlan, end: number): void {
    const { groups } = this.#memory.kvCacheSpec;
    const blocks = groups.map(({ blockSize }, group) => blockAt(writeTables[group]!, end - 1, blockSize));
    this.#last.set(requestId, { end, blocks });
  }

  /** The drafts of the sequence's step of which `accepted` became tokens, and whose KV is valid therefore. */
  draftsKept(sequence: SequencePlan, accepted: number): void {
    const { requestId, drafts, tokens } = sequence;
    if (drafts === undefined || accepted <= 0) return;
    this.#computed.set(requestId, this.computedTokens(requestId) + accepted);
    this.#setLastAt(sequence, tokens.length - 1);
  }

  #count(sequence: SequencePlan): void {
    const { requestId } = sequence;
    let tokens = 0;
    for (const { start, end } of spansOfTokens(sequence, sequence.tokens.length)) tokens += end - start;
    this.#computed.set(requestId, this.computedTokens(requestId) + tokens);
  }

  #checkSequence(sequence: SequencePlan): void {
    this.checked++;
    const { requestId, spans, tokens } = sequence;
    const reference = this.#referenceOf(requestId);
    assert(reference !== undefined, `${requestId} is scheduled, but was never added`);
    const needed = this.#neededTokens(sequence, reference);
    for (const { start, end } of spans)
      for (let token: number = start; token < end; token++)
        if (needed[token] === 0)
          assert(false, `I3: ${requestId} computes token ${token} of ${tokens.length} without need: ${showOf(spans)}`);
  }

  /** 1 for the last token, for tokens whose results the request asks for, and for each token with invalid KV that a token of the set reads in any group. */
  #neededTokens(sequence: SequencePlan, reference: ReferenceKv): Uint8Array {
    const count = sequence.tokens.length;
    if (this.#needed.length < count) this.#needed = new Uint8Array(2 * count);
    const needed = this.#needed.fill(0, 0, count);
    needed.fill(1, Math.min(count - 1, this.#neededFrom(sequence.requestId)), count);
    const { groups } = this.#memory.kvCacheSpec;
    for (let group = 0; group < groups.length; group++) this.#setValid(sequence, reference, group);
    const markedFrom = this.#markedFrom.fill(count);
    for (let token = count - 1; token > 0; token--) {
      if (needed[token] === 0) continue;
      for (let group = 0; group < groups.length; group++) {
        const valid = this.#valid[group]!;
        const first = firstRead(groups[group]!, token);
        // A later token of the set has marked the rest: in no group does a later token read further back.
        const end = Math.min(token, markedFrom[group]!);
        for (let read = first; read < end; read++) if (valid[read] === 0) needed[read] = 1;
        markedFrom[group] = Math.min(first, markedFrom[group]!);
      }
    }
    return needed;
  }

  /** Writes 1 to `#valid` for each token whose KV (in a state group: the state after it) is in its block. */
  #setValid({ requestId, tokens, blockTables }: SequencePlan, reference: ReferenceKv, group: number): void {
    const { kind, blockSize } = this.#memory.kvCacheSpec.groups[group]!;
    const last = this.#last.get(requestId);
    const table = blockTables[group]!;
    if (this.#valid[group]!.length < tokens.length) this.#valid[group] = new Uint8Array(2 * tokens.length);
    const valid = this.#valid[group]!.fill(0, 0, tokens.length);
    for (let token = 0; token < tokens.length; token++) {
      const block = blockAt(table, token, blockSize);
      if (
        block !== NULL_BLOCK &&
        this.#isInBlock(block, token, reference, { group, isAfterValid: valid[token - 1] === 1 })
      )
        valid[token] = 1;
    }
    const lastBlock = last?.blocks[group] ?? NULL_BLOCK;
    if (kind === 'full' || last === undefined || lastBlock === NULL_BLOCK) return;
    const firstInBlock = last.end - 1 - ((last.end - 1) % blockSize);
    for (let token = kind === 'state' ? last.end - 1 : firstInBlock; token < last.end; token++) {
      if (!this.#memory.matchesReference(lastBlock, group, token, reference)) return;
      valid[token] = 1;
    }
  }

  /** Whether a block has the token's KV of the reference, or (in a state group) the state after the token. */
  #isInBlock(
    block: number,
    token: number,
    reference: ReferenceKv,
    { group, isAfterValid }: { readonly group: number; readonly isAfterValid: boolean },
  ): boolean {
    const { kind, blockSize } = this.#memory.kvCacheSpec.groups[group]!;
    const offset = token % blockSize;
    if (kind === 'state' && this.#comingStates[block] === this.#plans) return this.#comingOffsets[block] === offset;
    if (kind !== 'state') {
      if (offset !== 0 && !isAfterValid) return false;
      if (this.#coming[this.#placeOf(block, offset)] === this.#plans) return true;
    }
    return !this.#allocated.has(block) && this.#memory.matchesReference(block, group, token, reference);
  }

  #willCome(block: number, group: number, offset: number, count: number): void {
    if (block === NULL_BLOCK) return;
    if (this.#memory.kvCacheSpec.groups[group]!.kind === 'state') {
      this.#comingStates[block] = this.#plans;
      this.#comingOffsets[block] = offset + count - 1;
    } else for (let i = 0; i < count; i++) this.#coming[this.#placeOf(block, offset + i)] = this.#plans;
  }

  #placeOf(block: number, offset: number): number {
    return block * this.#placesPerBlock + offset;
  }

  #firstInvalid(sequence: SequencePlan, firstWrongToken: number | undefined, invalid: ReadonlySet<number>): number {
    const limit = firstWrongToken ?? Infinity;
    if (invalid.size === 0) return limit;
    const { groups } = this.#memory.kvCacheSpec;
    for (const { start, end } of sequence.spans)
      for (let token: number = start; token < Math.min(end, limit); token++)
        for (let group = 0; group < groups.length; group++) {
          const spec = groups[group]!;
          const table = sequence.blockTables[group]!;
          const last = Math.floor(token / spec.blockSize);
          for (let index = Math.floor(firstRead(spec, token) / spec.blockSize); index <= last; index++)
            if (invalid.has(table.ids[index]!)) return token;
        }
    return limit;
  }

  /** These tokens do not count. If a rank has computed them, their blocks lose their content from the first of these tokens on. */
  #dropTokens(sequence: SequencePlan, first: number, invalid: Set<number>, isUntouched: boolean): void {
    const tables = sequence.writeTables ?? sequence.blockTables;
    for (const { start, end } of sequence.spans)
      for (let token = Math.max(start, first); token < end; token++)
        for (const [group, { blockSize }] of this.#memory.kvCacheSpec.groups.entries()) {
          const block = blockAt(tables[group]!, token, blockSize);
          if (block === NULL_BLOCK) continue;
          invalid.add(block);
          if (isUntouched) continue;
          for (let position = token; position < token + blockSize - (token % blockSize); position++)
            this.#memory.overwriteAt(block, group, position);
        }
  }
}

interface LastTokens {
  /** The position after the last of them. */
  readonly end: number;
  /** By group: the block that the last of them was written to, or NULL_BLOCK. */
  readonly blocks: number[];
}

const showOf = (spans: SequencePlan['spans']): string => spans.map(({ start, end }) => `${start}-${end}`).join(' ');

function blockAt({ ids, length }: BlockTable, token: number, blockSize: number): number {
  const index = Math.floor(token / blockSize);
  return index < length ? ids[index]! : NULL_BLOCK;
}

const nothing: readonly never[] = [];

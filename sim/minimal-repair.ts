import { assert } from '../src/base/assert.ts';
import { type BlockId, NULL_BLOCK, type RequestId } from '../src/core/ids.ts';
import type { BlockTable, SequencePlan } from '../src/core/step.ts';
import type { ScheduledStep } from '../src/scheduler/contract.ts';
import { firstRead } from './fake-model.ts';
import type { FakeRunner, ReferenceKv } from './fake-runner.ts';

/**
 * I3, seen from outside: no step computes a token whose KV is valid or that nothing needs. What is valid is read from the fake
 * runner's memory and compared with the reference's KV; what is needed is the definition, token by token. Nothing of the KV
 * core (residency, planner, index) is asked.
 *
 * Where memory is true and the engine cannot know it, the memory is destroyed, so that the two agree:
 *   - a page that is handed out loses its content (`on-allocation.ts`);
 *   - pages that are said to be lost in a step are lost at its end, too;
 *   - of a request's rows in a step, the first that depends on a lost page and all after it do not count. What lies behind such
 *     a row in its page is lost, too: a page is valid up to its first untrue token.
 *
 * It also counts the tokens that each request's steps compute, for the comparison with `RequestStats.computedTokens`.
 *
 * It does not see work that a better search of the pool would spare: a block that is valid in a page outside the request's tables.
 */
export class MinimalRepair {
  readonly #runner: FakeRunner;
  readonly #referenceOf: (id: RequestId) => ReferenceKv | undefined;
  readonly #computed = new Map<RequestId, number>();
  /** What the rows and loads of the plan so far will have brought, marked with the plan's number: entries by place, states by page. */
  readonly #coming: Int32Array;
  readonly #comingStates: Int32Array;
  /** Where a state is to come: after which token of its block. */
  readonly #comingOffsets: Int32Array;
  #plans = 0;
  readonly #placesPerPage: number;
  readonly #invalid = new Set<number>();
  #needed = new Uint8Array(0);
  /** Per group: which tokens are valid, and the token from which on all that are read are marked. */
  readonly #valid: Uint8Array[];
  readonly #markedFrom: Int32Array;
  /** Sequences that compute more than one token, whose rows were looked at. */
  checked = 0;

  constructor(runner: FakeRunner, referenceOf: (id: RequestId) => ReferenceKv | undefined) {
    this.#runner = runner;
    this.#referenceOf = referenceOf;
    this.#valid = runner.kvCacheSpec.groups.map(() => new Uint8Array(0));
    this.#markedFrom = new Int32Array(this.#valid.length);
    const { groups, blockCount } = runner.kvCacheSpec;
    this.#placesPerPage = Math.max(...groups.map(({ blockSize }) => blockSize));
    this.#coming = new Int32Array(blockCount * this.#placesPerPage);
    this.#comingStates = new Int32Array(blockCount);
    this.#comingOffsets = new Int32Array(blockCount);
  }

  computedTokens(id: RequestId): number {
    return this.#computed.get(id) ?? 0;
  }

  /** Before the plan is executed. */
  checkPlan(plan: ScheduledStep): void {
    this.#plans++;
    const { groups } = this.#runner.kvCacheSpec;
    for (const { mode, blocks } of plan.connectorMetadata?.loads ?? [])
      if (mode === 'sync')
        for (const { block, group } of blocks) this.#willCome(block, group, 0, groups[group]!.blockSize);
    for (const sequence of plan.sequences) {
      // The last token's logits are wanted, whatever is valid.
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
   * After the step. `lost`: pages whose content was lost before its result was applied; `notLoaded`: pages that loads within
   * the step were to fill, and have not filled.
   */
  stepDone(
    plan: ScheduledStep,
    leftOut: readonly number[],
    invalid: readonly BlockId[],
    notLoaded: readonly BlockId[],
  ): void {
    for (const block of invalid) this.#runner.overwrite(block);
    const spoiled = this.#invalid;
    spoiled.clear();
    for (const block of invalid) spoiled.add(block);
    for (const block of notLoaded) spoiled.add(block);
    for (let index = 0; index < plan.sequences.length; index++) {
      const sequence = plan.sequences[index]!;
      const isLeftOut = leftOut.includes(index);
      if (!isLeftOut) this.#count(sequence);
      const first = isLeftOut ? 0 : this.#firstInvalid(sequence, this.#runner.wrongReads[index]?.token, spoiled);
      if (first !== Infinity) this.#destroyTokens(sequence, first, spoiled);
    }
  }

  #count({ requestId, spans }: SequencePlan): void {
    let rows = 0;
    for (const { start, end } of spans) rows += end - start;
    this.#computed.set(requestId, this.computedTokens(requestId) + rows);
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

  /** 1 for the last token, and for each token that a token of the set reads in any group where it is not valid. */
  #neededTokens(sequence: SequencePlan, reference: ReferenceKv): Uint8Array {
    const count = sequence.tokens.length;
    if (this.#needed.length < count) this.#needed = new Uint8Array(2 * count);
    const needed = this.#needed.fill(0, 0, count);
    needed[count - 1] = 1;
    const { groups } = this.#runner.kvCacheSpec;
    for (let group = 0; group < groups.length; group++) this.#setValid(sequence, reference, group);
    const markedFrom = this.#markedFrom.fill(count);
    for (let token = count - 1; token > 0; token--) {
      if (needed[token] === 0) continue;
      for (let group = 0; group < groups.length; group++) {
        const valid = this.#valid[group]!;
        const first = firstRead(groups[group]!, token);
        // A later token of the set has read the rest already: no rule lets a later token see further back.
        const end = Math.min(token, markedFrom[group]!);
        for (let read = first; read < end; read++) if (valid[read] === 0) needed[read] = 1;
        markedFrom[group] = Math.min(first, markedFrom[group]!);
      }
    }
    return needed;
  }

  /** Writes 1 to `#valid` for each token whose KV (in a state group: the state after it) is in its page. */
  #setValid({ tokens, blockTables }: SequencePlan, reference: ReferenceKv, group: number): void {
    const { kind, blockSize } = this.#runner.kvCacheSpec.groups[group]!;
    const table = blockTables[group]!;
    if (this.#valid[group]!.length < tokens.length) this.#valid[group] = new Uint8Array(2 * tokens.length);
    const valid = this.#valid[group]!.fill(0, 0, tokens.length);
    for (let token = 0; token < tokens.length; token++) {
      const block = blockAt(table, token, blockSize);
      if (block === NULL_BLOCK) continue;
      const offset = token % blockSize;
      if (kind === 'state') {
        const isComing = this.#comingStates[block] === this.#plans;
        if (
          isComing
            ? this.#comingOffsets[block] === offset
            : this.#runner.matchesReference(block, group, token, reference)
        )
          valid[token] = 1;
      } else if (offset === 0 || valid[token - 1] === 1) {
        if (
          this.#coming[this.#placeOf(block, offset)] === this.#plans ||
          this.#runner.matchesReference(block, group, token, reference)
        )
          valid[token] = 1;
      }
    }
  }

  #willCome(block: number, group: number, offset: number, count: number): void {
    if (block === NULL_BLOCK) return;
    if (this.#runner.kvCacheSpec.groups[group]!.kind === 'state') {
      this.#comingStates[block] = this.#plans;
      this.#comingOffsets[block] = offset + count - 1;
    } else for (let i = 0; i < count; i++) this.#coming[this.#placeOf(block, offset + i)] = this.#plans;
  }

  #placeOf(block: number, offset: number): number {
    return block * this.#placesPerPage + offset;
  }

  #firstInvalid(sequence: SequencePlan, firstWrongToken: number | undefined, invalid: ReadonlySet<number>): number {
    const limit = firstWrongToken ?? Infinity;
    if (invalid.size === 0) return limit;
    const { groups } = this.#runner.kvCacheSpec;
    for (const { start, end } of sequence.spans)
      for (let token: number = start; token < Math.min(end, limit); token++)
        for (let group = 0; group < groups.length; group++) {
          const spec = groups[group]!;
          const table = sequence.blockTables[group]!;
          const last = Math.floor(token / spec.blockSize);
          for (let block = Math.floor(firstRead(spec, token) / spec.blockSize); block <= last; block++)
            if (invalid.has(table.ids[block]!)) return token;
        }
    return limit;
  }

  #destroyTokens(sequence: SequencePlan, first: number, invalid: Set<number>): void {
    const tables = sequence.writeTables ?? sequence.blockTables;
    for (const { start, end } of sequence.spans)
      for (let token = Math.max(start, first); token < end; token++)
        for (const [group, { blockSize }] of this.#runner.kvCacheSpec.groups.entries()) {
          const block = blockAt(tables[group]!, token, blockSize);
          if (block === NULL_BLOCK) continue;
          for (let invalid = token; invalid < token + blockSize - (token % blockSize); invalid++)
            this.#runner.overwriteAt(block, group, invalid);
          invalid.add(block);
        }
  }
}

const showOf = (spans: SequencePlan['spans']): string => spans.map(({ start, end }) => `${start}-${end}`).join(' ');

function blockAt({ ids, length }: BlockTable, token: number, blockSize: number): number {
  const block = Math.floor(token / blockSize);
  return block < length ? ids[block]! : NULL_BLOCK;
}

import { assert } from '../src/base/assert.ts';
import type { RequestId } from '../src/core/ids.ts';
import type { KvCacheSpec } from '../src/core/kv-spec.ts';
import type { EngineRequest, RequestUpdate } from '../src/core/request.ts';
import type { BlockTable } from '../src/core/step.ts';
import type { ScheduledStep } from '../src/scheduler/contract.ts';
import type { ReferenceKv, WrongRead } from './fake-runner.ts';
import { type ReferenceOutput, referenceOutput } from './reference.ts';

interface Case {
  readonly request: EngineRequest;
  readonly expected: ReferenceOutput;
  readonly reference: ReferenceKv;
  readonly output: number[];
  /** The next prompt position whose result the request must get. */
  promptNext: number;
  /** The position after the last one whose result it must get; 0: it asks for none. */
  readonly promptEnd: number;
  /** Known from the request's first step on; the objects stay the same while the request lives. */
  tables: readonly BlockTable[] | undefined;
}

/** The faults since the last updates that allow a request to end with an error. */
export interface AllowedErrors {
  /** Requests whose own sampling failed in the runner. */
  readonly ownFaults: ReadonlySet<RequestId>;
  /** Policy `fail`: requests that invalid blocks may not end. Policy `recompute`: undefined; they may end no request. */
  readonly unaffected: ReadonlySet<RequestId> | undefined;
}

/**
 * Compares all output of the scheduler with the naive reference: which KV was read (I1), which tokens were output (I2), which requests
 * ended and why (I9), and for whom blocks were filled (I10).
 */
export class OutputChecker {
  readonly #spec: KvCacheSpec;
  readonly #vocabSize: number;
  readonly #maxModelLen: number;
  readonly #rankCount: number;
  readonly #cases = new Map<RequestId, Case>();
  readonly #references = new Map<RequestId, ReferenceKv>();
  /** By salt and adapter. */
  readonly #labels = new Map<string, number>();
  /** By block: the last step with the block in a table, and the label and group of the table. */
  readonly #blockStamps: Int32Array;
  readonly #blockUses: Int32Array;
  #stamp = 0;
  finished = 0;

  constructor(spec: KvCacheSpec, vocabSize: number, maxModelLen: number, rankCount: number) {
    this.#rankCount = rankCount;
    this.#spec = spec;
    this.#vocabSize = vocabSize;
    this.#maxModelLen = maxModelLen;
    this.#blockStamps = new Int32Array(spec.blockCount);
    this.#blockUses = new Int32Array(spec.blockCount);
  }

  get liveCount(): number {
    return this.#cases.size;
  }

  get liveIds(): RequestId[] {
    return [...this.#cases.keys()];
  }

  /** Tokens that the live requests may need at most. */
  get liveTokens(): number {
    let tokens = 0;
    for (const { request } of this.#cases.values()) tokens += request.promptTokens.length + request.params.maxTokens;
    return tokens;
  }

  /** Also for requests that have ended: the step in flight may still compute their tokens. */
  readonly referenceOf = (id: RequestId): ReferenceKv | undefined => this.#references.get(id);

  /** The first prompt position whose result the request still has to get, so that it computes all tokens from there on. */
  readonly neededFrom = (id: RequestId): number => {
    const known = this.#cases.get(id);
    return known === undefined || known.promptNext >= known.promptEnd ? Infinity : known.promptNext;
  };

  /** The output tokens of the reference after those that the request has. */
  readonly nextTokens = (id: RequestId): readonly number[] => {
    const known = this.#cases.get(id);
    return known === undefined ? [] : known.expected.tokens.slice(known.output.length);
  };

  add(request: EngineRequest): void {
    const expected = referenceOutput(request, this.#spec, this.#vocabSize, this.#maxModelLen, this.#rankCount);
    const cache = JSON.stringify([request.cacheSalt ?? null, request.adapter?.digest ?? null]);
    const label = this.#labels.get(cache) ?? this.#labels.size;
    this.#labels.set(cache, label);
    const reference = { entries: expected.entries, label };
    this.#references.set(request.id, reference);
    const { start, end } = promptResultsOf(request);
    const results = { promptNext: start, promptEnd: end };
    this.#cases.set(request.id, { request, expected, reference, output: [], tables: undefined, ...results });
  }

  aborted(id: RequestId): void {
    this.#cases.delete(id);
  }

  /**
   * I10: requests share a block only in one group and with equal salts and adapters. The requests that read a shared block show whether its
   * content is right for each of them.
   */
  checkTables(plan: ScheduledStep): void {
    this.#stamp++;
    for (const { requestId, blockTables } of plan.sequences) {
      const user = this.#cases.get(requestId);
      if (user === undefined) continue;
      user.tables = blockTables;
      for (let group = 0; group < blockTables.length; group++) this.#checkTable(blockTables[group]!, user, group);
    }
  }

  /** Requests that certainly have none of the blocks and are not in `loaders`. */
  requestsWithout(blocks: ReadonlySet<number>, loaders: ReadonlySet<RequestId>): ReadonlySet<RequestId> {
    const ids = new Set<RequestId>();
    // The reserved blocks of state groups are in no table.
    const areTablesComplete = this.#spec.groups.every(({ kind }) => kind !== 'state');
    const hasNone = (table: BlockTable): boolean =>
      !table.ids.subarray(0, table.length).some((block) => blocks.has(block));
    for (const [id, { tables }] of this.#cases) {
      if (loaders.has(id)) continue;
      if (blocks.size === 0 || (areTablesComplete && tables?.every(hasNone) === true)) ids.add(id);
    }
    return ids;
  }

  #checkTable({ ids, length }: BlockTable, { request, reference }: Case, group: number): void {
    const use = reference.label * 16 + group;
    for (let index = 0; index < length; index++) {
      const block = ids[index]!;
      if (block === 0) continue;
      if (this.#blockStamps[block] === this.#stamp && this.#blockUses[block] !== use)
        assert(false, `I10: ${request.id} shares block ${block} with another salt, adapter or group`);
      this.#blockStamps[block] = this.#stamp;
      this.#blockUses[block] = use;
    }
  }

  /** `wrongRead`: the wrong KV that the request has read in this step. */
  check(update: RequestUpdate, wrongRead: WrongRead | undefined, allowedErrors: AllowedErrors): void {
    const id = update.requestId;
    const known = this.#cases.get(id);
    assert(known !== undefined, `I9: an update for ${id}, which has ended`);
    if (update.prompt !== undefined) checkPrompt(known, update.prompt);
    if (wrongRead !== undefined && update.newTokens.length > 0)
      assert(
        false,
        `${wrongRead.isForeign ? 'I10' : 'I1'}: a token of ${id} counts, though its step read wrong KV: ${JSON.stringify(wrongRead)}`,
      );
    const { output, expected } = known;
    for (const { token } of update.newTokens) {
      const wanted = expected.tokens[output.length];
      if (token !== wanted)
        assert(false, `I2: token ${output.length} of ${id} is ${token}, but the reference has ${wanted}`);
      output.push(token);
    }
    assert(update.stats.outputTokens === output.length, `wrong output count for ${id}`);
    if (update.finish === undefined) return;
    this.#cases.delete(id);
    if (update.finish.reason === 'error') {
      const isAllowed = allowedErrors.ownFaults.has(id) || allowedErrors.unaffected?.has(id) === false;
      assert(isAllowed, `I9: ${id} ended with an error that other requests caused`);
      return;
    }
    assert(
      output.length === expected.tokens.length,
      `I2: ${id} ended after ${output.length} of ${expected.tokens.length} tokens`,
    );
    assert(
      update.finish.reason === expected.reason,
      `I2: ${id} ended with ${update.finish.reason}, but the reference with ${expected.reason}`,
    );
    assert(
      known.promptNext >= known.promptEnd,
      `I2: ${id} ended without the results of its prompt from position ${known.promptNext} on`,
    );
    this.finished++;
  }
}

/** The prompt positions whose results the request asks for: all, all but the last, or the last. */
function promptResultsOf({ promptTokens: { length }, params, pooling }: EngineRequest): { start: number; end: number } {
  if (pooling !== undefined) return { start: pooling === 'last' ? length - 1 : 0, end: length };
  return { start: 0, end: params.promptLogprobs === undefined ? 0 : length - 1 };
}

/** Each position comes once, in ascending order, with the value of the reference. */
function checkPrompt(known: Case, { logprobs, hidden }: NonNullable<RequestUpdate['prompt']>): void {
  const { request, expected } = known;
  const values = logprobs?.map(({ logprob }) => logprob) ?? hidden ?? nothing;
  for (const value of values) {
    const position = known.promptNext++;
    assert(position < known.promptEnd, `I2: ${request.id} has a result of prompt position ${position}`);
    const wanted = expected.promptValues[position]!;
    assert(
      value === (hidden === undefined ? wanted : Math.fround(wanted)),
      `I2: the result of prompt position ${position} of ${request.id} is ${value}, but the reference has ${wanted}`,
    );
  }
}

const nothing: readonly never[] = [];

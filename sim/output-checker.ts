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
  /** As of the first step that it was in; they are the same objects for as long as it lives. */
  tables: readonly BlockTable[] | undefined;
}

/** What has gone wrong since the last updates, as far as it excuses a request that ends with an error. */
export interface AllowedErrors {
  /** Requests whose own row failed in the runner. */
  readonly ownFaults: ReadonlySet<RequestId>;
  /** By the policy, KV that is lost ends whoever had it, but none of these; undefined: by the policy it ends nobody. */
  readonly unaffected: ReadonlySet<RequestId> | undefined;
}

/**
 * Compares everything that leaves the scheduler with the naive reference: what was read (I1), what was said (I2), who
 * ended and why (I9), and for whom pages were filled (I10).
 */
export class OutputChecker {
  readonly #spec: KvCacheSpec;
  readonly #vocabSize: number;
  readonly #maxModelLen: number;
  readonly #cases = new Map<RequestId, Case>();
  readonly #references = new Map<RequestId, ReferenceKv>();
  readonly #salts = new Map<string | undefined, number>();
  /** By page: the last step with it in a table, and for whom. */
  readonly #pageStamps: Int32Array;
  readonly #pageUses: Int32Array;
  #stamp = 0;
  finished = 0;

  constructor(spec: KvCacheSpec, vocabSize: number, maxModelLen: number) {
    this.#spec = spec;
    this.#vocabSize = vocabSize;
    this.#maxModelLen = maxModelLen;
    this.#pageStamps = new Int32Array(spec.blockCount);
    this.#pageUses = new Int32Array(spec.blockCount);
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

  /** Also of requests that have ended: rows of theirs may be out, and are as good as any. */
  readonly referenceOf = (id: RequestId): ReferenceKv | undefined => this.#references.get(id);

  add(request: EngineRequest): void {
    const expected = referenceOutput(request, this.#spec, this.#vocabSize, this.#maxModelLen);
    const label = this.#salts.get(request.cacheSalt) ?? this.#salts.size;
    this.#salts.set(request.cacheSalt, label);
    const reference = { entries: expected.entries, label };
    this.#references.set(request.id, reference);
    this.#cases.set(request.id, { request, expected, reference, output: [], tables: undefined });
  }

  aborted(id: RequestId): void {
    this.#cases.delete(id);
  }

  /**
   * I10: requests share a page only in one group and for equal salts. Whether what they share is the same content is
   * seen by whoever reads it.
   */
  checkTables(plan: ScheduledStep): void {
    this.#stamp++;
    for (const { requestId, blockTables } of plan.sequences) {
      const user = this.#cases.get(requestId);
      if (user === undefined) continue;
      user.tables = blockTables;
      for (let g = 0; g < blockTables.length; g++) this.#checkTable(blockTables[g]!, user, g);
    }
  }

  /** Those whose tables are known and hold none of the pages. With states nobody is sure: some wait beside the tables. */
  whoHasNone(blocks: ReadonlySet<number>): ReadonlySet<RequestId> {
    const ids = new Set<RequestId>();
    if (this.#spec.groups.some(({ kind }) => kind === 'state')) return ids;
    for (const [id, { tables }] of this.#cases)
      if (tables?.some((table) => table.ids.subarray(0, table.length).some((block) => blocks.has(block))) === false)
        ids.add(id);
    return ids;
  }

  #checkTable({ ids, length }: BlockTable, { request, reference }: Case, group: number): void {
    const use = reference.label * 16 + group;
    for (let block = 0; block < length; block++) {
      const page = ids[block]!;
      if (page === 0) continue;
      if (this.#pageStamps[page] === this.#stamp && this.#pageUses[page] !== use)
        assert(false, `I10: ${request.id} shares page ${page} with another salt or group`);
      this.#pageStamps[page] = this.#stamp;
      this.#pageUses[page] = use;
    }
  }

  /** `untrue`: what the request has read in this step that it must not have read. */
  checker(update: RequestUpdate, wrongRead: WrongRead | undefined, allowedErrors: AllowedErrors): void {
    const id = update.requestId;
    const known = this.#cases.get(id);
    assert(known !== undefined, `I9: an update for ${id}, which is gone`);
    if (wrongRead !== undefined && update.newTokens.length > 0)
      assert(
        false,
        `${wrongRead.isForeign ? 'I10' : 'I1'}: a token of ${id} counts that read ${JSON.stringify(wrongRead)}`,
      );
    const { output, expected } = known;
    for (const { token } of update.newTokens) {
      const wanted = expected.tokens[output.length];
      if (token !== wanted) assert(false, `I2: token ${output.length} of ${id} is ${token}, must be ${wanted}`);
      output.push(token);
    }
    assert(update.stats.outputTokens === output.length, `wrong output count for ${id}`);
    if (update.finish === undefined) return;
    this.#cases.delete(id);
    if (update.finish.reason === 'error') {
      const isAllowed = allowedErrors.ownFaults.has(id) || allowedErrors.unaffected?.has(id) === false;
      assert(isAllowed, `I9: ${id} ended with an error that is not its own`);
      return;
    }
    assert(output.length === expected.tokens.length, `I2: ${id} ended early`);
    assert(update.finish.reason === expected.reason, `I2: ${id} ended by ${update.finish.reason}`);
    this.finished++;
  }
}

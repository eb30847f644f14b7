import { crc32 } from 'node:zlib';
import { byName } from '../../base/by-name.ts';
import type { FieldReader } from '../../base/field-reader.ts';
import { uniform } from '../../base/philox.ts';
import type { RequestId } from '../../core/ids.ts';
import type { BlockKey } from '../block-key.ts';
import type { KvIdentity } from '../connector.ts';
import type { TierCall, TierContext } from '../tier/tier.ts';

/** The faults of a store. */
export const faultKinds = [
  /** The block is missing. A `store` call answers that it stored the block, and does not. */
  'missing',
  /**
   * The stored block is cut in half. For this fault and the next two, the stored bytes change, and verification detects
   * it.
   */
  'truncated',
  /** One bit of the stored block is flipped. */
  'bitFlip',
  /** The stored block has the header of another model. */
  'wrongModel',
  /** Half of the bytes are in memory when the load fails. */
  'partial',
  /** The call takes `delayMs`, and ends at an abort. */
  'slow',
  /** The call takes `delayMs` and ignores an abort: memory is written after the deadline. */
  'late',
  /**
   * The call never ends; with `ignoresAbort` not even at an abort. A thread is blocked in a system call that does not
   * return (`HungCalls`).
   */
  'hung',
  /** The call runs twice. */
  'duplicate',
  /** The store answers with an error. */
  'error',
  /** The store has no room. */
  'full',
] as const;
export type FaultKind = (typeof faultKinds)[number];

/** The fault of calls that meet all conditions. The first rule that applies to a call is used. */
export interface FaultRule {
  readonly fault: FaultKind;
  readonly on: TierCall;
  /** In [0, 1]. */
  readonly probability: number;
  /** Block indices of a request; for loads only. */
  readonly blocks?: readonly number[];
  readonly keys?: readonly string[];
  /** Request ids, whole or up to the `#` that the engine adds; or numbers: n is the n-th request with a call, from 0. */
  readonly requests?: readonly (string | number)[];
  /** How often the rule is used at most. */
  readonly limit: number;
  readonly delayMs: number;
  readonly ignoresAbort: boolean;
}

export interface FaultPlan {
  readonly seed: number;
  readonly rules: readonly FaultRule[];
}

const calls: readonly TierCall[] = ['has', 'load', 'store'];

/** `{"seed": 1, "rules": [{"fault": "bitFlip", "on": "load", "probability": 0.1}]}` */
export function readFaultPlan(extra: FieldReader | undefined): FaultPlan | undefined {
  if (extra === undefined) return undefined;
  const rules = extra.objects('rules', (rule) => {
    const read = faultRule({
      fault: rule.requiredChoice('fault', faultKinds),
      on: rule.choice('on', calls) ?? 'load',
      probability: rule.number('probability', { min: 0, max: 1 }) ?? 1,
      limit: rule.integer('limit', { min: 0 }) ?? Number.MAX_SAFE_INTEGER,
      delayMs: rule.number('delay_ms', { min: 0 }) ?? 100,
      ignoresAbort: rule.boolean('ignores_abort') ?? false,
      ...readList(rule, 'blocks', (value) => Number.isSafeInteger(value)),
      ...readList(rule, 'keys', (value) => typeof value === 'string'),
      ...readList(rule, 'requests', (value) => typeof value === 'string' || Number.isSafeInteger(value)),
    });
    rule.finish();
    return read;
  });
  const plan = { seed: extra.integer('seed', { min: 0 }) ?? 0, rules: rules ?? [] };
  extra.finish();
  return plan;
}

function readList(rule: FieldReader, name: string, isRight: (value: unknown) => boolean): object {
  const list = rule.list(name, (value) => value);
  if (list === undefined) return {};
  if (!list.every(isRight)) throw rule.invalid(name, 'an array of names or integers');
  return { [name]: list };
}

/** A rule with the defaults filled in. */
export const faultRule = (rule: Pick<FaultRule, 'fault'> & Partial<FaultRule>): FaultRule => ({
  on: 'load',
  probability: 1,
  limit: Number.MAX_SAFE_INTEGER,
  delayMs: 100,
  ignoresAbort: false,
  ...rule,
});

export interface DrawnFault {
  readonly rule: FaultRule;
  /** In [0, 1), such as for the bit to flip. */
  readonly chance: number;
}

/** A fault that was drawn. `number`: counts from 1. */
export interface InjectedFault {
  readonly number: number;
  readonly fault: FaultKind;
  readonly on: TierCall;
  readonly key: BlockKey;
  readonly context: TierContext | undefined;
}
export type FaultListener = (fault: InjectedFault) => void;

/** Writes a line for each fault to the log of the operator. */
export function faultLog(
  event: ((message: string) => void) | undefined,
  { rank }: Pick<KvIdentity, 'rank'>,
): FaultListener {
  return ({ number, fault, on, key, context }) => {
    const { requestId, index } = context ?? {};
    const request = requestId === undefined ? '' : `, request ${requestId}`;
    const block = index === undefined ? '' : `, block ${index} of its table`;
    event?.(`Injected fault ${number} on rank ${rank}: ${fault} in a \`${on}\` of block ${key}${request}${block}.`);
  };
}

/** Of calls and keys. The faults of further keys depend a little on the order of calls. */
const countedKeysMax = 1024;
/** A power of two, larger than the number of keys in most stores of tests. */
const sharedCounts = 1 << 16;

/**
 * Decides which calls fail. The randomness is a function of the seed, the rule, the key and the number of earlier calls
 * for this key. It does not depend on the order of calls, so the same run has the same faults on every disk. A server has any number of
 * keys: after the first ones, keys with the same hash share a counter.
 */
export class FaultDice {
  readonly #plan: FaultPlan;
  readonly #used: number[];
  readonly #counts: Record<string, number> = byName();
  readonly #asked = new Map<string, number>();
  readonly #askedOfOthers = new Uint32Array(sharedCounts);
  readonly #requests: RequestId[] = [];
  /** Whether a rule names requests by their number. Otherwise they are not counted: a server has any number of them. */
  readonly #countsRequests: boolean;
  readonly #tell: FaultListener;

  /** `tell`: called for each fault that is drawn. */
  constructor(plan: FaultPlan, tell: FaultListener = () => undefined) {
    this.#tell = tell;
    this.#plan = plan;
    this.#used = plan.rules.map(() => 0);
    this.#countsRequests = plan.rules.some(({ requests = [] }) => requests.some((named) => typeof named === 'number'));
  }

  /** How often each rule was used. */
  get used(): readonly number[] {
    return this.#used;
  }

  /** How often each fault was drawn, as `injected.<fault>`. */
  get counts(): Readonly<Record<string, number>> {
    return this.#counts;
  }

  draw(on: TierCall, key: BlockKey, context: TierContext | undefined): DrawnFault | undefined {
    const requestId = context?.requestId;
    if (this.#countsRequests && requestId !== undefined && !this.#requests.includes(requestId))
      this.#requests.push(requestId);
    const name = `${on}/${key}`;
    const count = this.#countCall(name);
    const counter = crc32(`${name}/${count}`);
    for (const [i, rule] of this.#plan.rules.entries()) {
      if (rule.on !== on || this.#used[i]! >= rule.limit || !this.#concerns(rule, key, context)) continue;
      const seed = BigInt(this.#plan.seed) * 4096n + BigInt(i);
      if (uniform(seed, counter * 2) >= rule.probability) continue;
      this.#used[i]!++;
      const count = `injected.${rule.fault}`;
      this.#counts[count] = (this.#counts[count] ?? 0) + 1;
      this.#tell({ number: this.#used.reduce((sum, used) => sum + used, 0), fault: rule.fault, on, key, context });
      return { rule, chance: uniform(seed, counter * 2 + 1) };
    }
    return undefined;
  }

  /** Returns the number of earlier calls. */
  #countCall(name: string): number {
    const count = this.#asked.get(name) ?? 0;
    if (count === 0 && this.#asked.size >= countedKeysMax) return this.#askedOfOthers[crc32(name) % sharedCounts]!++;
    this.#asked.set(name, count + 1);
    return count;
  }

  #concerns({ blocks, keys, requests }: FaultRule, key: BlockKey, context: TierContext | undefined): boolean {
    if (blocks !== undefined && (context?.index === undefined || !blocks.includes(context.index))) return false;
    if (keys !== undefined && !keys.includes(key)) return false;
    if (requests === undefined) return true;
    const id = context?.requestId;
    if (id === undefined) return false;
    return requests.some((request) =>
      typeof request === 'number' ? this.#requests[request] === id : request === id || id.startsWith(`${request}#`),
    );
  }
}

import { crc32 } from 'node:zlib';
import { uniform } from '../../base/philox.ts';
import type { RequestId } from '../../core/ids.ts';
import type { BlockKey } from '../block-key.ts';
import type { ExtraConfig } from '../extra-config.ts';
import type { TierContext } from '../tier/tier.ts';

/** What may go wrong with a store. */
export const faultKinds = [
  /** The block is not there. A store says that it has kept it, and has not. */
  'missing',
  /** Bytes that are stored are really spoilt, and the real verification meets them: cut in half, */
  'truncated',
  /** one bit flipped, */
  'bitFlip',
  /** or another model's block. */
  'wrongModel',
  /** Half of the bytes are in memory when the store fails. */
  'partial',
  /** It takes `delayMs`, and stops when it is told to. */
  'slow',
  /** It takes `delayMs` and cannot be stopped: memory is written although nobody waits any more. */
  'late',
  /**
   * It never ends; with `ignoresAbort` not even when it is told to. A load from a `HangableTier` blocks in the system; every
   * other call is a promise that does not settle.
   */
  'hung',
  /** The bytes arrive twice. */
  'duplicate',
  /** The store answers with an error. */
  'error',
  /** The store has no room. */
  'full',
] as const;
export type FaultKind = (typeof faultKinds)[number];
export type TierCall = 'has' | 'load' | 'store';

/** A call that meets all conditions fails in this way; the first rule that applies is taken. */
export interface FaultRule {
  readonly fault: FaultKind;
  readonly on: TierCall;
  /** In [0, 1]. */
  readonly probability: number;
  /** Logical blocks of a request; only loads know theirs. */
  readonly blocks?: readonly number[];
  readonly keys?: readonly string[];
  /** Ids, whole or up to the `#` that the engine adds; or numbers: the n-th request that was seen, from 0. */
  readonly requests?: readonly (string | number)[];
  /** How often at most. */
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
export function readFaultPlan(extra: ExtraConfig | undefined): FaultPlan | undefined {
  if (extra === undefined) return undefined;
  const rules = extra.objects('rules').map((rule) => {
    const read = faultRule({
      fault: rule.choice('fault', faultKinds, undefined),
      on: rule.choice('on', calls, 'load'),
      probability: rule.number('probability', 1, { min: 0, max: 1 }),
      limit: rule.integer('limit', Number.MAX_SAFE_INTEGER, { min: 0 }),
      delayMs: rule.number('delay_ms', 100, { min: 0 }),
      ignoresAbort: rule.boolean('ignores_abort', false),
      ...readList(rule, 'blocks', (value) => Number.isSafeInteger(value)),
      ...readList(rule, 'keys', (value) => typeof value === 'string'),
      ...readList(rule, 'requests', (value) => typeof value === 'string' || Number.isSafeInteger(value)),
    });
    rule.finish();
    return read;
  });
  const plan = { seed: extra.integer('seed', 0, { min: 0 }), rules };
  extra.finish();
  return plan;
}

function readList(rule: ExtraConfig, name: string, isRight: (value: unknown) => boolean): object {
  const list = rule.list(name);
  if (list === undefined) return {};
  if (!list.every(isRight)) throw rule.wrong(name, 'an array of names or whole numbers', list);
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

/**
 * Decides which calls fail. Chance is a function of seed, rule, key and how often this key was asked for, not of the
 * order in which calls happen to come: the same run has the same faults, whatever the disks do.
 */
export class FaultDice {
  readonly #plan: FaultPlan;
  readonly #used: number[];
  readonly #asked = new Map<string, number>();
  readonly #requests: RequestId[] = [];

  constructor(plan: FaultPlan) {
    this.#plan = plan;
    this.#used = plan.rules.map(() => 0);
  }

  /** How often each rule was applied. */
  get used(): readonly number[] {
    return this.#used;
  }

  /** `chance`: a number in [0, 1) for what else is to be decided. */
  draw(
    on: TierCall,
    key: BlockKey,
    context: TierContext | undefined,
  ): { readonly rule: FaultRule; readonly chance: number } | undefined {
    const requestId = context?.requestId;
    if (requestId !== undefined && !this.#requests.includes(requestId)) this.#requests.push(requestId);
    const name = `${on}/${key}`;
    const count = this.#asked.get(name) ?? 0;
    this.#asked.set(name, count + 1);
    const counter = crc32(`${name}/${count}`);
    for (const [i, rule] of this.#plan.rules.entries()) {
      if (rule.on !== on || this.#used[i]! >= rule.limit || !this.#concerns(rule, key, context)) continue;
      const seed = BigInt(this.#plan.seed) * 4096n + BigInt(i);
      if (uniform(seed, counter * 2) >= rule.probability) continue;
      this.#used[i]!++;
      return { rule, chance: uniform(seed, counter * 2 + 1) };
    }
    return undefined;
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

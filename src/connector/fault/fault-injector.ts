import { setMaxListeners } from 'node:events';
import { assertNever } from '../../base/assert.ts';
import { delay } from '../../base/deadlines.ts';
import type { Timers } from '../../base/timers.ts';
import type { BlockKey } from '../block-key.ts';
import type { KvIdentity } from '../connector.ts';
import { tierFailed } from '../errors.ts';
import type { LoadFailureReason } from '../reasons.ts';
import { BlockCodec, headerBytes } from '../tier/block-header.ts';
import { type LookupAnswers, lookUpEach } from '../tier/look-up.ts';
import type { StoreAnswer, TamperableTier, Tier, TierCall, TierContext } from '../tier/tier.ts';
import { FaultDice, type FaultKind, type FaultPlan, type FaultRule, faultLog } from './fault-rules.ts';
import { HungCalls, never } from './hung-calls.ts';

export type FaultInjectorOptions = {
  readonly identity: KvIdentity;
  readonly timers: Timers;
  /** Receives a line for each fault; only with `plan`. */
  readonly event?: ((message: string) => void) | undefined;
} & ({ readonly plan: FaultPlan } | { readonly dice: Pick<FaultDice, 'draw' | 'counts'> });

const isTamperable = (tier: Tier): tier is TamperableTier => 'tamper' in tier && typeof tier.tamper === 'function';

/**
 * A tier whose calls fail according to rules. The faults are real: stored bytes are changed and memory is written late, so
 * that the same code detects them that detects faults in production.
 */
export class FaultInjector implements Tier {
  readonly name: string;
  readonly dice: Pick<FaultDice, 'draw' | 'counts'>;
  readonly #tier: Tier;
  readonly #timers: Timers;
  readonly #foreign: BlockCodec;
  readonly #hung: HungCalls;

  constructor(tier: Tier, options: FaultInjectorOptions) {
    const { identity, timers } = options;
    this.name = tier.name;
    this.dice = 'dice' in options ? options.dice : new FaultDice(options.plan, faultLog(options.event, identity));
    this.#tier = tier;
    this.#timers = timers;
    this.#hung = new HungCalls(tier);
    this.#foreign = new BlockCodec({ ...identity, fingerprint: `not ${identity.fingerprint}` });
  }

  /** Each key has its own fault: a key that fails or hangs is unknown, and the other keys are answered. */
  async has(
    keys: readonly BlockKey[],
    signal: AbortSignal,
    contextOf: (key: BlockKey) => TierContext | undefined = () => undefined,
  ): Promise<LookupAnswers> {
    const rules = new Map(keys.map((key) => [key, this.#draw('has', key, contextOf(key))?.rule]));
    const unaffected = keys.filter((key) => rules.get(key) === undefined);
    const found = await this.#tier.has(unaffected, signal);
    const answers = new Map(unaffected.map((key, i) => [key, found[i]]));
    if (unaffected.length === keys.length) return found;
    // Each key that stalls listens for the abort; Node warns of more than ten listeners.
    setMaxListeners(0, signal);
    // A look-up that hangs and ignores its signal gives no answer until it is released.
    const ignoresAbort = [...rules.values()].some((rule) => rule?.fault === 'hung' && rule.ignoresAbort);
    // One thread blocks for all keys that hang, because a look-up asks for many keys in one call.
    let hung: Promise<void> | undefined;
    return lookUpEach(keys, ignoresAbort ? never : signal, async (key) => {
      const rule = rules.get(key);
      if (rule === undefined) return answers.get(key);
      if (rule.fault === 'missing') return false;
      if (rule.fault === 'hung') {
        hung ??= this.#hung.hang('has', key, ignoresAbort, signal);
        await hung;
        throw this.#failure('has');
      }
      await this.#stall('has', key, rule, signal);
      return (await this.#tier.has([key], signal))[0];
    });
  }

  async load(
    key: BlockKey,
    into: Uint8Array,
    signal: AbortSignal,
    context?: TierContext,
  ): Promise<LoadFailureReason | undefined> {
    const drawn = this.#draw('load', key, context);
    const load = (until = signal): Promise<LoadFailureReason | undefined> => this.#tier.load(key, into, until, context);
    if (drawn === undefined) return load();
    const { rule, chance } = drawn;
    switch (rule.fault) {
      case 'missing':
        return 'missing';
      case 'truncated':
      case 'bitFlip':
      case 'wrongModel':
        if (!isTamperable(this.#tier)) {
          // Only the tier can change its stored bytes. This is the answer of its verification.
          into.fill(0x5a);
          return rule.fault === 'bitFlip' ? 'corrupt' : rule.fault;
        }
        await this.#tier.tamper(key, (stored) => this.#corrupt(rule.fault, key, stored, chance));
        return load();
      case 'partial':
        await load();
        into.fill(0x5a, Math.floor(into.length / 2));
        throw this.#failure('load');
      case 'late':
        await delay(this.#timers, rule.delayMs, never);
        if (signal.aborted) into.fill(0x5a);
        return load(never);
      case 'duplicate':
        await load();
        return load();
      case 'slow':
      case 'hung':
      case 'error':
      case 'full':
        await this.#stall('load', key, rule, signal);
        return load();
      default:
        return assertNever(rule.fault);
    }
  }

  async store(key: BlockKey, bytes: Uint8Array, signal: AbortSignal, context?: TierContext): Promise<StoreAnswer> {
    const drawn = this.#draw('store', key, context);
    const store = (until = signal): Promise<StoreAnswer> => this.#tier.store(key, bytes, until, context);
    if (drawn === undefined) return store();
    const { rule, chance } = drawn;
    switch (rule.fault) {
      case 'missing':
        return 'stored';
      case 'full':
        return 'full';
      case 'truncated':
      case 'bitFlip':
      case 'wrongModel': {
        // Only the tier can change its stored bytes. Without `tamper`, the block is not stored.
        if (!isTamperable(this.#tier)) return 'stored';
        const answer = await store();
        await this.#tier.tamper(key, (stored) => this.#corrupt(rule.fault, key, stored, chance));
        return answer;
      }
      case 'late':
        await delay(this.#timers, rule.delayMs, never);
        return store(never);
      case 'duplicate':
        await store();
        return store();
      case 'slow':
      case 'hung':
      case 'error':
      case 'partial':
        await this.#stall('store', key, rule, signal);
        return store();
      default:
        return assertNever(rule.fault);
    }
  }

  delete(key: BlockKey): Promise<void> {
    return this.#tier.delete(key);
  }

  takeEvicted(): readonly BlockKey[] {
    return this.#tier.takeEvicted();
  }

  counters(): Readonly<Record<string, number>> {
    return { ...this.#tier.counters(), ...this.dice.counts };
  }

  levels(): Readonly<Record<string, number>> {
    return this.#tier.levels?.() ?? {};
  }

  /** Ends the calls that hang. They fail. */
  releaseHung(): void {
    this.#hung.release();
  }

  async close(): Promise<void> {
    this.#hung.end();
    await this.#tier.close();
    await this.#hung.close();
  }

  /** A key whose call does not hang now: threads that are blocked for its earlier calls return. */
  #draw(on: TierCall, key: BlockKey, context: TierContext | undefined): ReturnType<FaultDice['draw']> {
    const drawn = this.dice.draw(on, key, context);
    if (drawn?.rule.fault !== 'hung') this.#hung.recover(on, key);
    return drawn;
  }

  /** Waits according to the rule. Fails afterwards, except for `slow` and `late`. */
  async #stall(on: TierCall, key: BlockKey, rule: FaultRule, signal: AbortSignal): Promise<void> {
    if (rule.fault === 'hung') await this.#hung.hang(on, key, rule.ignoresAbort, signal);
    else if (rule.fault === 'slow' || rule.fault === 'late') return delay(this.#timers, rule.delayMs, signal);
    throw this.#failure(on);
  }

  #corrupt(fault: FaultKind, key: BlockKey, stored: Uint8Array, chance: number): Uint8Array {
    if (fault === 'truncated') return stored.subarray(0, Math.floor(stored.length / 2));
    const corrupted = stored.slice();
    // Another fault may have truncated the block already.
    if (corrupted.length <= headerBytes) return corrupted;
    if (fault === 'wrongModel') corrupted.set(this.#foreignHeader(key, corrupted));
    else {
      const bit = Math.floor(chance * corrupted.length * 8);
      corrupted[bit >> 3]! ^= 1 << (bit & 7);
    }
    return corrupted;
  }

  #foreignHeader(key: BlockKey, stored: Uint8Array): Uint8Array {
    const payload = new Uint8Array(this.#foreign.identity.blockBytes);
    payload.set(stored.subarray(headerBytes, headerBytes + payload.length));
    return this.#foreign.encode(key, payload);
  }

  #failure(on: TierCall) {
    return tierFailed({ tier: this.name, action: actions[on], reason: 'a fault was injected' });
  }
}

/**
 * Says that it has every block, and neither reads nor writes one: for faults of a connector without a tier, whose blocks it
 * moves itself.
 */
export const nothingStored: Tier = {
  name: 'faults',
  has: (keys) => Promise.resolve(keys.map(() => true)),
  load: () => Promise.resolve(undefined),
  store: () => Promise.resolve('stored'),
  delete: () => Promise.resolve(),
  takeEvicted: () => [],
  counters: () => ({}),
  close: () => Promise.resolve(),
};

const actions: Readonly<Record<TierCall, string>> = {
  has: 'look up blocks',
  load: 'load a block',
  store: 'store a block',
};

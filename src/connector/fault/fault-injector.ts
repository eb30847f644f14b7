import { setMaxListeners } from 'node:events';
import { assertNever } from '../../base/assert.ts';
import type { Timers } from '../../base/timers.ts';
import type { BlockKey } from '../block-key.ts';
import type { KvIdentity } from '../connector.ts';
import { tierFailed } from '../errors.ts';
import type { LoadFailureReason } from '../reasons.ts';
import { BlockCodec, headerBytes } from '../tier/block-header.ts';
import { type LookupAnswers, lookUpEach } from '../tier/look-up.ts';
import type { HangableTier, StoreAnswer, TamperableTier, Tier, TierContext } from '../tier/tier.ts';
import { FaultDice, type FaultKind, type FaultPlan, type FaultRule } from './fault-rules.ts';

export interface FaultInjectorOptions {
  readonly identity: KvIdentity;
  readonly timers: Timers;
  readonly plan: FaultPlan;
}

const never = new AbortController().signal;
// Each hung call listens to it. From the eleventh on, Node would warn of a leak.
setMaxListeners(0, never);

const isTamperable = (tier: Tier): tier is TamperableTier => 'tamper' in tier && typeof tier.tamper === 'function';
const isHangable = (tier: Tier): tier is HangableTier => 'hang' in tier && typeof tier.hang === 'function';

/**
 * A tier whose calls fail according to rules. The faults are real: stored bytes are changed and memory is written late, so
 * that the same code detects them that detects faults in production.
 */
export class FaultInjector implements Tier {
  readonly name: string;
  readonly dice: FaultDice;
  readonly #tier: Tier;
  readonly #timers: Timers;
  readonly #foreign: BlockCodec;
  readonly #hung = new Set<() => void>();
  /** Blocks whose reads hang in a system call. `waiting`: how many loads that a rule selected are in such a read. */
  readonly #hanging = new Map<BlockKey, { waiting: number }>();
  #injected: Record<string, number> = {};

  constructor(tier: Tier, { identity, timers, plan }: FaultInjectorOptions) {
    this.name = tier.name;
    this.dice = new FaultDice(plan);
    this.#tier = tier;
    this.#timers = timers;
    this.#foreign = new BlockCodec({ ...identity, fingerprint: `not ${identity.fingerprint}` });
  }

  /** Each key has its own fault: a key that fails or hangs is unknown, and the other keys are answered. */
  async has(keys: readonly BlockKey[], signal: AbortSignal): Promise<LookupAnswers> {
    const rules = new Map(keys.map((key) => [key, this.#draw('has', key, undefined)?.rule]));
    const unaffected = keys.filter((key) => rules.get(key) === undefined);
    const found = await this.#tier.has(unaffected, signal);
    const answers = new Map(unaffected.map((key, i) => [key, found[i]]));
    if (unaffected.length === keys.length) return found;
    // Each key that stalls listens for the abort; Node warns of more than ten listeners.
    setMaxListeners(0, signal);
    // A look-up that hangs and ignores its signal gives no answer until it is released.
    const ignoresAbort = [...rules.values()].some((rule) => rule?.fault === 'hung' && rule.ignoresAbort);
    return lookUpEach(keys, ignoresAbort ? never : signal, async (key) => {
      const rule = rules.get(key);
      if (rule === undefined) return answers.get(key);
      if (rule.fault === 'missing') return false;
      await this.#stall(rule, signal, 'look up blocks');
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
    // After the last use of a rule, the block loads again as soon as no load that the rule selected waits.
    if (drawn?.rule.fault !== 'hung' && this.#hanging.get(key)?.waiting === 0) this.#mend(key);
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
        throw this.#failure('load a block');
      case 'late':
        await this.#wait(rule.delayMs);
        return load(never);
      case 'duplicate':
        await load();
        return load();
      case 'hung':
        if (isHangable(this.#tier) && this.#tier.hang(key)) return this.#loadHung(key, rule, load);
        await this.#stall(rule, signal, 'load a block');
        return load();
      case 'slow':
      case 'error':
      case 'full':
        await this.#stall(rule, signal, 'load a block');
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
        await this.#wait(rule.delayMs);
        return store(never);
      case 'duplicate':
        await store();
        return store();
      case 'slow':
      case 'hung':
      case 'error':
      case 'partial':
        await this.#stall(rule, signal, 'store a block');
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
    return { ...this.#tier.counters(), ...this.#injected };
  }

  levels(): Readonly<Record<string, number>> {
    return this.#tier.levels?.() ?? {};
  }

  /** Ends the calls that hang. They fail. */
  releaseHung(): void {
    for (const key of [...this.#hanging.keys()]) this.#mend(key);
    for (const release of [...this.#hung]) release();
  }

  async close(): Promise<void> {
    this.releaseHung();
    await this.#tier.close();
  }

  #draw(...call: Parameters<FaultDice['draw']>): ReturnType<FaultDice['draw']> {
    const drawn = this.dice.draw(...call);
    if (drawn !== undefined) {
      const name = `injected.${drawn.rule.fault}`;
      this.#injected[name] = (this.#injected[name] ?? 0) + 1;
    }
    return drawn;
  }

  /** The read hangs in a system call. It ends at an abort or when the block is mended. */
  async #loadHung(
    key: BlockKey,
    rule: FaultRule,
    load: () => Promise<LoadFailureReason | undefined>,
  ): Promise<LoadFailureReason | undefined> {
    const hanging = this.#hanging.get(key) ?? { waiting: 0 };
    this.#hanging.set(key, hanging);
    hanging.waiting++;
    const released = rule.ignoresAbort ? this.#hang(never) : undefined;
    try {
      return await load();
    } finally {
      await released;
      hanging.waiting--;
    }
  }

  #mend(key: BlockKey): void {
    this.#hanging.delete(key);
    if (isHangable(this.#tier)) this.#tier.mend(key);
  }

  /** Waits according to the rule. Fails afterwards, except for `slow` and `late`. */
  async #stall(rule: FaultRule, signal: AbortSignal, action: string): Promise<void> {
    if (rule.fault === 'hung') await this.#hang(rule.ignoresAbort ? never : signal);
    else if (rule.fault === 'slow' || rule.fault === 'late') return this.#wait(rule.delayMs, signal);
    throw this.#failure(action);
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

  #wait(delayMs: number, signal: AbortSignal = never): Promise<void> {
    return new Promise((resolve, reject) => {
      const onAbort = (): void => {
        timer.cancel();
        reject(signal.reason as Error);
      };
      const timer = this.#timers.after(delayMs, () => {
        signal.removeEventListener('abort', onAbort);
        resolve();
      });
      if (signal.aborted) onAbort();
      else signal.addEventListener('abort', onAbort, { once: true });
    });
  }

  #hang(signal: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      const release = (): void => {
        this.#hung.delete(release);
        signal.removeEventListener('abort', onAbort);
        resolve();
      };
      const onAbort = (): void => {
        this.#hung.delete(release);
        reject(signal.reason as Error);
      };
      this.#hung.add(release);
      if (signal.aborted) onAbort();
      else signal.addEventListener('abort', onAbort, { once: true });
    });
  }

  #failure(action: string) {
    return tierFailed({ tier: this.name, action, reason: 'a fault was injected' });
  }
}

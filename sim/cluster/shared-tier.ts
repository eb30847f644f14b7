import type { Prng } from '../../src/base/prng.ts';
import type { BlockKey } from '../../src/connector/block-key.ts';
import type { KvIdentity } from '../../src/connector/connector.ts';
import type { LoadFailureReason } from '../../src/connector/reasons.ts';
import { BlockCodec, headerBytes } from '../../src/connector/tier/block-header.ts';
import type { LookupAnswers } from '../../src/connector/tier/look-up.ts';
import type { StoreAnswer, Tier } from '../../src/connector/tier/tier.ts';
import type { TierFaultRates } from './cluster-faults.ts';
import type { ProcessLife } from './process-life.ts';
import type { SimulatedTime } from './simulated-time.ts';

export interface SharedTierOptions {
  /** Bytes per millisecond in each direction, for all replicas together, and for one replica. */
  readonly bytesPerMs: number;
  readonly replicaBytesPerMs: number;
  /** From a call to the first byte of its answer. */
  readonly latencyMs: number;
  /** The tier removes the block that was used least recently. */
  readonly blocksMax: number;
  /** Bytes that a block has on the network. The simulated blocks have fewer. */
  readonly blockBytes: number;
  readonly identity: KvIdentity;
  readonly faults: TierFaultRates;
}

/** Messages pass one after the other. */
class Wire {
  readonly #bytesPerMs: number;
  #freeAtMs = 0;

  constructor(bytesPerMs: number) {
    this.#bytesPerMs = bytesPerMs;
  }

  /** When a message that is ready at `readyMs` has passed. */
  pass(readyMs: number, bytes: number): number {
    this.#freeAtMs = Math.max(readyMs, this.#freeAtMs) + bytes / this.#bytesPerMs;
    return this.#freeAtMs;
  }
}

/** The store that all replicas share, as one Redis server or one bucket: its content, its two wires and its faults. */
export class SharedTier {
  readonly options: SharedTierOptions;
  readonly codec: BlockCodec;
  readonly time: SimulatedTime;
  readonly reads: Wire;
  readonly writes: Wire;
  readonly #prng: Prng;
  /** By key, the block that was used least recently first. */
  readonly #blocks = new Map<BlockKey, Uint8Array>();
  /** The content under each key, whatever the tier has lost since. */
  readonly #contents = new Map<BlockKey, string>();
  #faults: TierFaultRates;
  #downUntilMs = 0;
  #hungUntilMs = 0;
  #slowUntilMs = 0;
  #slowness = 1;
  /** All blocks that were stored are there, undamaged. */
  isLossless: boolean;
  readonly counts = { loads: 0, loadFailures: 0, stores: 0, evictions: 0 };

  constructor(time: SimulatedTime, prng: Prng, options: SharedTierOptions) {
    this.options = options;
    this.codec = new BlockCodec(options.identity);
    this.time = time;
    this.#prng = prng;
    this.#faults = options.faults;
    const { corrupt, swap, truncate, vanish } = options.faults;
    this.isLossless = corrupt + swap + truncate + vanish === 0;
    this.reads = new Wire(options.bytesPerMs);
    this.writes = new Wire(options.bytesPerMs);
  }

  /** All calls fail until then. */
  fallDown(untilMs: number): void {
    this.#downUntilMs = untilMs;
  }

  /** All calls are answered then, and not before. */
  hang(untilMs: number): void {
    this.#hungUntilMs = untilMs;
  }

  /** Answers take so many times as long until then. */
  slowDown(untilMs: number, factor: number): void {
    this.#slowUntilMs = untilMs;
    this.#slowness = factor;
  }

  wipe(): void {
    this.isLossless = false;
    this.#blocks.clear();
  }

  calm(): void {
    this.#faults = { corrupt: 0, swap: 0, truncate: 0, vanish: 0 };
    this.#downUntilMs = this.#hungUntilMs = this.#slowUntilMs = 0;
  }

  /** Resolves after the latency and the faults of a call. Rejects if the tier is down, and at an abort. */
  answer(signal: AbortSignal): Promise<void> {
    const { time } = this;
    return new Promise((resolve, reject) => {
      const onAbort = (): void => reject(signal.reason);
      if (signal.aborted) return onAbort();
      signal.addEventListener('abort', onAbort, { once: true });
      const latencyMs = this.options.latencyMs * (time.nowMs() < this.#slowUntilMs ? this.#slowness : 1);
      const respond = (): void => {
        const hungMs = this.#hungUntilMs - time.nowMs();
        if (hungMs > 0) {
          // The end of the chaos may come before the end of the fault.
          time.after(Math.min(hungMs, recheckMs), respond);
          return;
        }
        signal.removeEventListener('abort', onAbort);
        if (time.nowMs() < this.#downUntilMs) reject(new Error('the tier is down'));
        else resolve();
      };
      time.after(latencyMs, respond);
    });
  }

  has(key: BlockKey): boolean {
    return this.#blocks.has(key);
  }

  remove(key: BlockKey): void {
    this.isLossless = false;
    this.#blocks.delete(key);
  }

  read(key: BlockKey): Uint8Array | undefined {
    if (this.#prng.chance(this.#faults.vanish)) this.#blocks.delete(key);
    const stored = this.#blocks.get(key);
    if (stored === undefined) return undefined;
    this.#blocks.delete(key);
    this.#blocks.set(key, stored);
    return stored;
  }

  write(key: BlockKey, payload: Uint8Array): StoreAnswer {
    const content = payload.join();
    const known = this.#contents.get(key) ?? content;
    if (known !== content) {
      // A rejection would end the process: no one awaits a store.
      this.time.fail(new Error(`I10: a replica stores a second content under the key ${key}`));
      return 'alreadyStored';
    }
    this.#contents.set(key, content);
    if (this.#blocks.has(key)) return 'alreadyStored';
    const stored = Buffer.concat([this.codec.encode(key, payload), payload]);
    this.#blocks.set(key, this.#damaged(stored));
    this.counts.stores++;
    if (this.#blocks.size > this.options.blocksMax)
      for (const oldest of this.#blocks.keys()) {
        this.#blocks.delete(oldest);
        this.counts.evictions++;
        this.isLossless = false;
        break;
      }
    return 'stored';
  }

  #damaged(stored: Uint8Array): Uint8Array {
    const prng = this.#prng;
    const { corrupt, swap, truncate } = this.#faults;
    if (prng.chance(swap)) return this.#blocks.values().next().value ?? stored;
    if (prng.chance(truncate)) return stored.slice(0, prng.between(0, stored.length - 1));
    if (prng.chance(corrupt)) {
      const changed = stored.slice();
      const at = prng.between(0, stored.length - 1);
      changed[at] = changed[at]! ^ (1 << prng.between(0, 7));
      return changed;
    }
    return stored;
  }
}

/** A replica's connection to the shared tier. Loads verify what they read, as the tiers of `src/connector/tier` do. */
export class TierConnection implements Tier {
  readonly name: string;
  readonly #tier: SharedTier;
  readonly #life: ProcessLife;
  readonly #reads: Wire;
  readonly #writes: Wire;
  /** Stores that have no answer, with the time of their call. */
  readonly openStores = new Set<{ readonly key: BlockKey; readonly sinceMs: number }>();

  constructor(tier: SharedTier, life: ProcessLife, name = 'shared') {
    this.#tier = tier;
    this.#life = life;
    this.name = name;
    this.#reads = new Wire(tier.options.replicaBytesPerMs);
    this.#writes = new Wire(tier.options.replicaBytesPerMs);
  }

  async has(keys: readonly BlockKey[], signal: AbortSignal): Promise<LookupAnswers> {
    await this.#answer(signal);
    return keys.map((key) => this.#tier.has(key));
  }

  /** Bytes that are on the wire are still received after an abort. */
  async load(key: BlockKey, into: Uint8Array, signal: AbortSignal): Promise<LoadFailureReason | undefined> {
    const tier = this.#tier;
    await this.#answer(signal);
    tier.counts.loads++;
    const stored = tier.read(key);
    if (stored !== undefined) await this.#pass(tier.reads, this.#reads);
    await this.#life.check();
    const reason = stored === undefined ? 'missing' : decode(tier.codec, key, stored, into);
    signal.throwIfAborted();
    if (reason !== undefined) tier.counts.loadFailures++;
    return reason;
  }

  /** Reads the bytes when they have passed the wire. */
  async store(key: BlockKey, bytes: Uint8Array, signal: AbortSignal): Promise<StoreAnswer> {
    const tier = this.#tier;
    const open = { key, sinceMs: this.#life.nowMs() };
    this.openStores.add(open);
    try {
      await this.#life.check();
      await this.#pass(this.#writes, tier.writes);
      await this.#life.check();
      await tier.answer(signal);
      return tier.write(key, bytes);
    } finally {
      this.openStores.delete(open);
    }
  }

  async delete(key: BlockKey): Promise<void> {
    await this.#answer(new AbortController().signal);
    this.#tier.remove(key);
  }

  takeEvicted(): readonly BlockKey[] {
    return [];
  }

  counters(): Readonly<Record<string, number>> {
    return {};
  }

  close(): Promise<void> {
    return Promise.resolve();
  }

  async #answer(signal: AbortSignal): Promise<void> {
    await this.#life.check();
    await this.#tier.answer(signal);
    await this.#life.check();
  }

  /** The bytes of a block pass both wires. */
  #pass(first: Wire, second: Wire): Promise<void> {
    const { time, options } = this.#tier;
    const { blockBytes, bytesPerMs, replicaBytesPerMs } = options;
    // The second wire sends while it receives, so only the slower one counts if both are free.
    const startMs = first.pass(time.nowMs(), blockBytes) - blockBytes / Math.max(bytesPerMs, replicaBytesPerMs);
    const endMs = second.pass(Math.max(startMs, time.nowMs()), blockBytes);
    return time.sleep(endMs - time.nowMs());
  }
}

function decode(codec: BlockCodec, key: BlockKey, stored: Uint8Array, into: Uint8Array): LoadFailureReason | undefined {
  const whole = new Uint8Array(headerBytes + into.length);
  whole.set(stored.subarray(0, whole.length));
  return codec.decode(key, whole, stored.length, into);
}

/** How often a call that hangs asks whether the fault is over. */
const recheckMs = 1000;

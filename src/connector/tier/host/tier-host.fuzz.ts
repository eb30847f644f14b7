import { expect, test } from 'vitest';
import { fuzzRuns } from '../../../../test/support/long-form.ts';
import { Prng } from '../../../base/prng.ts';
import { headerBytes } from '../block-header.ts';
import { suiteBytes, suiteIdentity, suiteKey } from '../tier.suite.ts';
import { evictionPolicyNames } from './eviction-policies.ts';
import { HostTier } from './tier-host.ts';

/**
 * Random calls against a plain map. The bounds are tiny, so that most stores evict, meet pinned blocks or find no room. The
 * map does not say which blocks are evicted (`eviction-policies.fuzz.ts` does), only how many and which not. More runs:
 * KVASIR_FUZZ_RUNS; another first seed: KVASIR_FUZZ_SEED.
 */
const runs = fuzzRuns(100);
const firstSeed = Number(process.env.KVASIR_FUZZ_SEED ?? 1);

const blockBytes = 50;
const storedBytes = headerBytes + blockBytes;
const identity = { ...suiteIdentity, blockBytes };
const keys = Array.from({ length: 16 }, (_, i) => suiteKey(i, i % 2));
const bytesOf = keys.map((key) => suiteBytes(key, blockBytes));
const open = new AbortController().signal;

interface Model {
  isStored: boolean;
  isCorrupt: boolean;
  /** The payload in its slot, once per pin. Pins of a deleted block stay. */
  readonly pins: Uint8Array[];
}

class Run {
  readonly #prng: Prng;
  readonly #slotCount: number;
  readonly #tier: HostTier;
  readonly #model: Model[] = keys.map(() => ({ isStored: false, isCorrupt: false, pins: [] }));
  readonly seen = new Set<string>();

  constructor(seed: number) {
    this.#prng = new Prng(seed);
    this.#slotCount = this.#prng.between(0, 6);
    this.#tier = new HostTier({
      identity,
      maxBytes: this.#slotCount * storedBytes + this.#prng.between(0, storedBytes - 1),
      evictionPolicy: this.#prng.pick(evictionPolicyNames),
      arenas: { arenaBytes: this.#prng.between(1, 4 * storedBytes) },
    });
  }

  async step(): Promise<void> {
    const block = this.#prng.between(0, keys.length - 1);
    const call = this.#prng.pick([
      this.#store,
      this.#store,
      this.#store,
      this.#load,
      this.#load,
      this.#pin,
      this.#unpin,
      this.#unpin,
      this.#delete,
      this.#tamper,
      this.#makeRoom,
      this.#touch,
      this.#abort,
    ]);
    await call.call(this, block);
    this.#check();
  }

  async #store(block: number): Promise<void> {
    const state = this.#model[block]!;
    const bytes = bytesOf[block]!.slice();
    const isRoom = this.#free > 0 || this.#evictable([]) > 0;
    const expected = state.isStored ? 'alreadyStored' : state.pins.length > 0 || !isRoom ? 'full' : 'stored';
    const evictions = expected === 'stored' && this.#free === 0 ? 1 : 0;
    const answer = this.#prng.chance(0.5)
      ? this.#tier.storeNow(keys[block]!, bytes)
      : await this.#tier.store(keys[block]!, bytes, open);
    bytes.fill(0);
    expect(answer).toBe(expected);
    this.seen.add(answer);
    this.#takeEvicted(evictions, [block]);
    if (answer === 'stored') Object.assign(state, { isStored: true, isCorrupt: false });
  }

  async #load(block: number): Promise<void> {
    const [state, key] = [this.#model[block]!, keys[block]!];
    const into = new Uint8Array(blockBytes);
    const reason = this.#prng.chance(0.5) ? this.#tier.loadNow(key, into) : await this.#tier.load(key, into, open);
    this.seen.add(reason ?? 'loaded');
    if (!state.isStored) {
      expect(reason).toBe('missing');
    } else if (state.isCorrupt) {
      expect(reason).toBeDefined();
      state.isStored = false;
    } else {
      expect(reason).toBeUndefined();
      expect(into).toEqual(bytesOf[block]);
    }
  }

  #pin(block: number): void {
    const state = this.#model[block]!;
    const payload = this.#tier.pin(keys[block]!);
    expect(payload !== undefined).toBe(state.isStored);
    if (payload !== undefined) state.pins.push(payload);
  }

  #unpin(block: number): void {
    const state = this.#model[block]!;
    if (state.pins.pop() === undefined) expect(() => this.#tier.unpin(keys[block]!)).toThrow('is not pinned');
    else this.#tier.unpin(keys[block]!);
  }

  async #delete(block: number): Promise<void> {
    await this.#tier.delete(keys[block]!);
    this.#model[block]!.isStored = false;
  }

  async #tamper(block: number): Promise<void> {
    const state = this.#model[block]!;
    const flipped = this.#prng.between(0, storedBytes - 1);
    const length = this.#prng.pick([0, flipped, storedBytes + 1, storedBytes]);
    const isThere = await this.#tier.tamper(keys[block]!, (stored) => {
      const bytes = new Uint8Array(length);
      bytes.set(stored.subarray(0, length));
      if (length === storedBytes) bytes[flipped]! ^= 1;
      return bytes;
    });
    expect(isThere).toBe(state.isStored);
    // Two flips of the same bit would mend the block, so a corrupt block is loaded at once.
    if (!isThere) return;
    state.isCorrupt = true;
    await this.#load(block);
  }

  #makeRoom(): void {
    const request = Array.from({ length: this.#prng.between(0, 5) }, () => this.#prng.between(0, keys.length - 1));
    const blocks = [...new Set(request)];
    const missing = blocks.filter((block) => !this.#model[block]!.isStored && this.#model[block]!.pins.length === 0);
    const wanted = Math.max(0, missing.length - this.#free);
    const isEnough = wanted <= this.#evictable(blocks);
    expect(this.#tier.makeRoomFor(blocks.map((block) => keys[block]!))).toBe(isEnough);
    this.seen.add(isEnough ? 'room' : 'noRoom');
    this.#takeEvicted(isEnough ? wanted : 0, blocks);
  }

  #touch(): void {
    this.#tier.touch(Array.from({ length: 3 }, () => this.#prng.pick(keys)));
  }

  async #abort(block: number): Promise<void> {
    const aborted = AbortSignal.abort(new Error('aborted'));
    await expect(this.#tier.store(keys[block]!, bytesOf[block]!, aborted)).rejects.toThrow('aborted');
    await expect(this.#tier.load(keys[block]!, new Uint8Array(blockBytes), aborted)).rejects.toThrow('aborted');
    expect(await this.#tier.has([keys[block]!], aborted)).toEqual([undefined]);
  }

  /** Slots that hold no block. */
  get #free(): number {
    return this.#slotCount - this.#model.filter(({ isStored, pins }) => isStored || pins.length > 0).length;
  }

  #evictable(kept: readonly number[]): number {
    return this.#model.filter(({ isStored, pins }, block) => isStored && pins.length === 0 && !kept.includes(block))
      .length;
  }

  #takeEvicted(count: number, kept: readonly number[]): void {
    const evicted = this.#tier.takeEvicted().map((key) => keys.indexOf(key));
    expect(evicted).toHaveLength(count);
    for (const block of evicted) {
      const state = this.#model[block]!;
      expect(state.isStored && state.pins.length === 0 && !kept.includes(block)).toBe(true);
      state.isStored = false;
      this.seen.add('evicted');
    }
  }

  #check(): void {
    this.#tier.checkInvariants();
    expect(keys.map((key) => this.#tier.holds(key))).toEqual(this.#model.map(({ isStored }) => isStored));
    for (const [block, state] of this.#model.entries()) {
      const isChanged = state.pins.some((payload) => Buffer.compare(payload, bytesOf[block]!) !== 0);
      if (isChanged && !state.isCorrupt) expect.fail(`the pinned payload of block ${block} changed`);
      // A block that was corrupt can be stored again after its last pin.
      if (!state.isStored && state.pins.length === 0) state.isCorrupt = false;
    }
    const blocks = this.#model.filter(({ isStored }) => isStored).length;
    const bytes = (this.#slotCount - this.#free) * storedBytes;
    expect(this.#tier.levels()).toMatchObject({ blocks, bytes });
  }
}

test(`HostTier equals a plain map in ${runs} random runs`, async () => {
  const seen = new Set<string>();
  for (let seed = firstSeed; seed < firstSeed + runs; seed++) {
    const run = new Run(seed);
    try {
      for (let i = 0; i < 80; i++) await run.step();
    } catch (error) {
      throw new Error(`seed ${seed}: ${(error as Error).message}`, { cause: error });
    }
    for (const name of run.seen) seen.add(name);
  }
  const outcomes = ['stored', 'alreadyStored', 'full', 'evicted', 'loaded', 'missing', 'room', 'noRoom'];
  const reasons = ['truncated', 'oversized', 'corrupt', 'headerCorrupt'];
  if (runs >= 100) expect([...seen]).toEqual(expect.arrayContaining([...outcomes, ...reasons]));
});

import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { fuzzRuns } from '../../../test/support/long-form.ts';
import { Prng } from '../../base/prng.ts';
import { FaultInjector } from '../fault/fault-injector.ts';
import { faultKinds, faultRule } from '../fault/fault-rules.ts';
import { systemTimers } from '../system-timers.ts';
import { DiskTier } from '../tier/disk/tier-disk.ts';
import { suiteBlockBytes, suiteBytes, suiteIdentity, suiteKey } from '../tier/tier.suite.ts';
import { newStack, type StackUnderTest } from './stack-under-test.suite.ts';

/**
 * Random calls to host memory over a real disk, against a plain map of what was stored. Half of the runs have faults on the
 * disk. A load gives the right bytes or a reason. Without faults it gives a reason only for blocks that were never stored, and for
 * blocks that host memory evicted before they were written, which are counted as dropped.
 * More runs: KVASIR_FUZZ_RUNS; another first seed: KVASIR_FUZZ_SEED.
 */
const runs = fuzzRuns(30);
const firstSeed = Number(process.env.KVASIR_FUZZ_SEED ?? 1);

const keys = Array.from({ length: 24 }, (_, i) => suiteKey(i, i % 2));
const bytesOf = keys.map((key) => suiteBytes(key));
const open = new AbortController().signal;
// The faults that change stored bytes, or answer for a block that was not stored, change what a disk has.
const kinds = faultKinds.filter((kind) => kind !== 'full');

class Run {
  readonly #prng: Prng;
  readonly #hasFaults: boolean;
  readonly #faults: FaultInjector;
  readonly #under: StackUnderTest;
  readonly #stored = new Set<number>();
  /** Blocks whose bytes changed in a tier. */
  readonly #damaged = new Set<number>();
  #missing = 0;
  loaded = 0;

  static async open(seed: number, folder: string): Promise<Run> {
    const disk = await DiskTier.open({ root: folder, identity: suiteIdentity, maxBytes: 1e9, threads: 2 });
    return new Run(new Prng(seed), disk);
  }

  private constructor(prng: Prng, disk: DiskTier) {
    this.#prng = prng;
    this.#hasFaults = prng.chance(0.5);
    const rules = kinds.flatMap((fault) => [
      faultRule({ fault, on: 'load', probability: 0.04, delayMs: prng.between(1, 12) }),
      faultRule({ fault, on: 'store', probability: 0.04, delayMs: 3 }),
    ]);
    const plan = { seed: prng.uint32(), rules: this.#hasFaults ? rules : [] };
    this.#faults = new FaultInjector(disk, { identity: suiteIdentity, timers: systemTimers, plan });
    this.#under = newStack(prng.between(1, 8), [this.#faults], {
      queuedMax: this.#hasFaults ? prng.between(0, 4) : 1000,
      ...(this.#hasFaults ? { loadTimeoutMs: 5, storeTimeoutMs: 5 } : {}),
      breaker: { failuresMax: prng.between(1, 5), coolDownMs: 1, coolDownMaxMs: 4 },
      leaseMs: prng.pick([1, 20, 30_000]),
    });
  }

  async step(): Promise<void> {
    const block = this.#prng.between(0, keys.length - 1);
    const call = this.#prng.pick([
      'store',
      'store',
      'load',
      'load',
      'load',
      'many',
      'delete',
      'tamper',
      'written',
      'lease',
    ]);
    if (call === 'store') await this.#store(block);
    else if (call === 'load') await this.#load(block);
    else if (call === 'written') await this.#written();
    else if (call === 'delete') await this.#delete(block);
    else if (call === 'tamper') await this.#tamper(block);
    else if (call === 'lease') this.#under.stack.lease(keys.slice(block, block + this.#prng.between(1, 6)));
    else await Promise.all(keys.slice(0, 12).map((_, i) => (i % 3 === 0 ? this.#store(i) : this.#load(i))));
    this.#under.stack.checkInvariants();
  }

  /** After the faults, every block that was not damaged is still there or was dropped, and the engine gets the right bytes. */
  async end(): Promise<void> {
    this.#faults.releaseHung();
    await this.#written();
    for (const block of keys.keys()) await this.#load(block);
    await this.#under.stack.close();
    this.#under.host.checkInvariants();
  }

  async #store(block: number): Promise<void> {
    const answer = await this.#under.stack.store(keys[block]!, bytesOf[block]!, open);
    expect(['stored', 'alreadyStored', 'full']).toContain(answer);
    if (answer !== 'full') this.#stored.add(block);
  }

  async #load(block: number): Promise<void> {
    const into = new Uint8Array(suiteBlockBytes).fill(0xee);
    const reason = await this.#under.stack.load(keys[block]!, into, open);
    if (reason === undefined) {
      this.loaded++;
      expect(this.#stored.has(block)).toBe(true);
      // The bytes were verified against the header, so a damaged block is never loaded.
      expect(Buffer.compare(into, bytesOf[block]!)).toBe(0);
    } else if (!this.#hasFaults && this.#stored.has(block) && !this.#damaged.has(block)) {
      this.#stored.delete(block);
      const { dropped = 0 } = this.#under.stack.stats().tiers!.disk!;
      if (reason === 'missing' && ++this.#missing <= dropped) return;
      throw new Error(`block ${block} was stored, but its load says ${reason}; ${dropped} blocks were dropped`);
    }
  }

  async #delete(block: number): Promise<void> {
    await this.#written();
    await this.#under.stack.delete(keys[block]!);
    this.#stored.delete(block);
    this.#damaged.delete(block);
  }

  async #tamper(block: number): Promise<void> {
    await this.#written();
    const at = this.#prng.unit();
    const isChanged = await this.#under.stack.tamper(keys[block]!, (stored) => {
      const changed = stored.slice();
      changed[Math.floor(at * changed.length)]! ^= 1;
      return changed;
    });
    if (isChanged) this.#damaged.add(block);
  }

  async #written(): Promise<void> {
    await this.#under.whenWritten();
  }
}

test('host memory over a disk gives the right bytes or a reason, with any faults', async () => {
  const root = mkdtempSync(join(tmpdir(), 'kvasir-stack-fuzz-'));
  let loaded = 0;
  try {
    for (let seed = firstSeed; seed < firstSeed + runs; seed++) {
      try {
        const run = await Run.open(seed, join(root, `${seed}`));
        for (let i = 0; i < 60; i++) await run.step();
        await run.end();
        loaded += run.loaded;
      } catch (error) {
        throw new Error(`seed ${seed}: ${(error as Error).message}`, { cause: error });
      }
    }
    expect(loaded).toBeGreaterThan(10 * runs);
  } finally {
    rmSync(root, { recursive: true, force: true });
  }
}, 600_000);

import type { BlockKey } from '../block-key.ts';
import type { PlaceChange } from '../connector.ts';
import type { TierLevels } from '../connector-stats.ts';
import { RankAnswers } from '../places/rank-answers.ts';
import { GuardedTier, type GuardedTierOptions } from '../tier/guarded-tier.ts';
import type { StagingBuffers } from '../tier/staging-buffers.ts';
import type { StoreAnswer, Tier } from '../tier/tier.ts';
import { levelsOf } from '../tier/tier-meter.ts';
import type { PinnedBlocks } from './leased-blocks.ts';
import { WriteBehind } from './write-behind.ts';
import type { WritePace } from './write-pace.ts';

export interface SecondaryTierOptions extends GuardedTierOptions {
  /** Time limit of one load. After that, the next tier is tried. */
  readonly loadTimeoutMs: number;
  readonly storeTimeoutMs: number;
  readonly storesAtOnce: number;
  /** How many blocks may wait to be written. */
  readonly queuedMax: number;
  /** As in `WriteBehindOptions`. */
  readonly pace?: WritePace;
  /** As in `WriteBehindOptions`; default 30 s. */
  readonly leaseMs?: number;
}

const defaultLeaseMs = 30_000;

/**
 * A guarded tier below host memory, whose blocks are written in the background. A load fills a buffer and not the pool, so
 * another tier can give the block if this one hangs.
 */
export class SecondaryTier extends GuardedTier {
  readonly #secondary: SecondaryTierOptions;
  readonly #writes: WriteBehind;
  #stored: BlockKey[] = [];

  constructor(tier: Tier, blocks: PinnedBlocks, buffers: StagingBuffers, options: SecondaryTierOptions) {
    super(tier, { ...options, buffers });
    this.#secondary = options;
    this.#writes = new WriteBehind(this, blocks, { ...options, leaseMs: options.leaseMs ?? defaultLeaseMs });
  }

  /** Writes the block in the background, or drops it if too many blocks wait. */
  offer(key: BlockKey): void {
    this.#writes.offer(key);
  }

  /**
   * Another server is about to load these blocks: they are written first. Blocks in host memory that the tier has lost
   * meanwhile are written again.
   */
  lease(keys: readonly BlockKey[], isInHost: (key: BlockKey) => boolean): void {
    const settled = keys.filter((key) => this.#writes.lease(key)).filter(isInHost);
    if (settled.length > 0) void this.#writeMissing(settled);
  }

  async #writeMissing(keys: readonly BlockKey[]): Promise<void> {
    const { timers, loadTimeoutMs: timeoutMs } = this.#secondary;
    // These are blocks with KV on this rank.
    const asked = new RankAnswers([{ tier: this.tier, hasKv: () => true }], keys);
    // What is not known, the breaker of the writes finds out.
    const answers = await asked.within({ timers, timeoutMs });
    for (const [i, key] of keys.entries()) this.#writes.lookedUp(key, answers[i] === true);
  }

  /** The blocks that were written and evicted since the last call; undefined if there are none. */
  takeChange(): PlaceChange | undefined {
    const [stored, evicted] = [this.#stored, this.tier.takeEvicted()];
    this.#stored = [];
    return stored.length === 0 && evicted.length === 0 ? undefined : { place: this.name, stored, evicted };
  }

  /** As `WriteBehind.withdraw`. */
  withdraw(isMeant: (key: BlockKey) => boolean): Promise<number> {
    return this.#writes.withdraw(isMeant);
  }

  /** Resolves when no block waits to be written and none is being written. */
  whenWritten(): Promise<void> {
    return this.#writes.whenIdle();
  }

  /** Blocks that wait to be written or are being written. */
  get openStores(): number {
    return this.#writes.openCount;
  }

  levels(): TierLevels {
    return { ...levelsOf(this.tier), openStores: this.openStores, ...this.breakers('store').levels };
  }

  /** Drops the blocks that wait to be written. */
  override close(): Promise<void> {
    this.#writes.close();
    return super.close();
  }

  checkInvariants(): void {
    this.#writes.checkInvariants();
  }

  protected override async storeInTier(...call: Parameters<Tier['store']>): Promise<StoreAnswer> {
    const answer = await super.storeInTier(...call);
    // Also if the store was given up meanwhile.
    if (answer === 'stored') this.#stored.push(call[0]);
    return answer;
  }
}

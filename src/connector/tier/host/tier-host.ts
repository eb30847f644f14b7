import { assert } from '../../../base/assert.ts';
import { byName } from '../../../base/by-name.ts';
import { type Clock, systemClock } from '../../../base/clock.ts';
import type { BlockKey } from '../../block-key.ts';
import type { Crc32, KvIdentity } from '../../connector.ts';
import { tierClosed } from '../../errors.ts';
import type { MissReason } from '../../reasons.ts';
import type { SaltTag } from '../../salt-tag.ts';
import type { ClearFilter, TierWork } from '../../tier-orders.ts';
import { BlockCodec, headerBytes, payloadCrcOf, saltTagIn } from '../block-header.ts';
import { hasSaltTag } from '../clear-filter.ts';
import type { LookupAnswers } from '../look-up.ts';
import { OpenCalls } from '../open-calls.ts';
import { SaltBytes, type SaltLevels } from '../salt-bytes.ts';
import type { StoreAnswer, TamperableTier, TierContext } from '../tier.ts';
import { TierPins } from '../tier-pins.ts';
import { type EvictionPolicyName, newEvictionPolicy } from './eviction-policies.ts';
import type { EvictionPolicy } from './eviction-policy.ts';
import { SlotArenas, type SlotArenasOptions } from './slot-arenas.ts';

export interface HostTierOptions {
  readonly identity: KvIdentity;
  /** Headers included. Pinned blocks count too. */
  readonly maxBytes: number;
  readonly name?: string;
  /** Default: `lru`. */
  readonly evictionPolicy?: EvictionPolicyName;
  /** Of the blocks of one cache salt, as `maxBytes`. Absent: no bound but `maxBytes`. */
  readonly quotaBytes?: number | undefined;
  /** Default false. True: `saltLevels` has the blocks of each cache salt. */
  readonly reportsSalts?: boolean | undefined;
  /** A block that is not pinned expires so long after it was stored or last used. Absent: never. */
  readonly ttlSeconds?: number | undefined;
  /** Default: the system's. */
  readonly clock?: Clock;
  /** Default: Node's. */
  readonly crc32?: Crc32 | undefined;
  /** For tests: as in `SlotArenasOptions`. */
  readonly arenas?: Pick<SlotArenasOptions, 'arenaBytes' | 'allocate'>;
}

/** A stored block, or one that was deleted while it was pinned. */
interface Entry {
  readonly slot: number;
  /** Milliseconds since 1970. */
  readonly storedMs: number;
  /** Header and payload. Other than the size of a slot only after `tamper`. */
  storedBytes: number;
  pinCount: number;
  isDeleted: boolean;
  /** Of the last store, load or `touch`. */
  usedMs: number;
}

/**
 * Blocks in the memory of this process. All have the same size, header and payload side by side in one slot. Stores and
 * loads are one copy on the calling thread, so they also have a synchronous form (`storeNow`, `loadNow`, `holds`).
 * Other tiers can read a block where it is (`pin`). Loads verify checksums, as in every tier.
 */
export class HostTier implements TamperableTier {
  readonly name: string;
  readonly pins: TierPins;
  readonly #codec: BlockCodec;
  readonly #slots: SlotArenas;
  readonly #slotBytes: number;
  readonly #policy: EvictionPolicy<BlockKey>;
  readonly #salts: SaltBytes<BlockKey> | undefined;
  readonly #reportsSalts: boolean;
  readonly #entries = new Map<BlockKey, Entry>();
  readonly #calls: OpenCalls;
  readonly #counters: Record<string, number> = byName();
  readonly #clock: Clock;
  readonly #ttlMs: number;
  #expiredUntilMs = Number.NEGATIVE_INFINITY;
  #isClosed: boolean = false;
  #evicted: BlockKey[] = [];
  /** Entries that are not deleted, and those of them that are pinned. */
  #storedCount = 0;
  #pinnedStoredCount = 0;

  constructor(options: HostTierOptions) {
    const { identity } = options;
    this.name = options.name ?? 'host';
    this.#codec = new BlockCodec(identity, options.crc32);
    this.#slotBytes = headerBytes + identity.blockBytes;
    const slotCountMax = Math.floor(options.maxBytes / this.#slotBytes);
    this.#slots = new SlotArenas({ ...options.arenas, slotBytes: this.#slotBytes, slotCountMax });
    this.#policy = newEvictionPolicy(options.evictionPolicy ?? 'lru', slotCountMax);
    const { quotaBytes, reportsSalts = false } = options;
    this.#salts = quotaBytes === undefined && !reportsSalts ? undefined : new SaltBytes(quotaBytes);
    this.#reportsSalts = reportsSalts;
    this.#clock = options.clock ?? systemClock;
    this.pins = new TierPins(slotCountMax, () => this.#clock.nowMs());
    this.#ttlMs = 1000 * (options.ttlSeconds ?? Number.POSITIVE_INFINITY);
    this.#calls = new OpenCalls(() => tierClosed({ tier: this.name }));
  }

  has(keys: readonly BlockKey[], signal: AbortSignal): Promise<LookupAnswers> {
    return this.#calls.run(async () => keys.map((key) => (signal.aborted ? undefined : this.holds(key))));
  }

  load(key: BlockKey, into: Uint8Array, signal: AbortSignal): Promise<MissReason | undefined> {
    return this.#calls.run(async () => {
      signal.throwIfAborted();
      return this.loadNow(key, into);
    });
  }

  store(key: BlockKey, bytes: Uint8Array, signal: AbortSignal, context?: TierContext): Promise<StoreAnswer> {
    return this.#calls.run(async () => {
      signal.throwIfAborted();
      return this.storeNow(key, bytes, context?.saltTag);
    });
  }

  delete(key: BlockKey): Promise<void> {
    return this.#calls.run(async () => this.#forget(key));
  }

  /** By the time of the store. */
  clear(filter: ClearFilter): Promise<TierWork> {
    return this.#calls.run(async () => {
      const keys = [...this.#entries.keys()].filter((key) => this.isMeant(key, filter));
      for (const key of keys) {
        this.#forget(key);
        this.#evicted.push(key);
      }
      return { blocks: keys.length, bytes: keys.length * this.#slotBytes, failed: 0 };
    });
  }

  /** Whether the filter names a stored block. */
  isMeant(key: BlockKey, { saltTag, beforeMs = Infinity }: ClearFilter): boolean {
    const entry = this.#storedEntry(key);
    return entry !== undefined && entry.storedMs < beforeMs && hasSaltTag(this.#slots.bytesOf(entry.slot), saltTag);
  }

  /** `has` for one block. */
  holds(key: BlockKey): boolean {
    return this.#storedEntry(key) !== undefined;
  }

  /** `load` without waiting. Throws `tierClosed`. */
  loadNow(key: BlockKey, into: Uint8Array): MissReason | undefined {
    this.#assertOpen();
    const entry = this.#storedEntry(key);
    this.touch([key]);
    if (entry === undefined) return 'missing';
    const reason = this.#codec.decode(key, this.#slots.bytesOf(entry.slot), entry.storedBytes, into);
    if (reason !== undefined) this.#forget(key);
    entry.usedMs = this.#clock.nowMs();
    this.pins.used(key);
    this.#count(reason ?? 'loaded');
    return reason;
  }

  /**
   * `store` without waiting. 'full': no block can be evicted, or none of a salt at its quota, or this block was deleted while it was
   * pinned and still is. Throws `tierClosed`.
   */
  storeNow(key: BlockKey, bytes: Uint8Array, saltTag?: SaltTag): StoreAnswer {
    this.#assertOpen();
    this.touch([key]);
    this.#storedEntry(key);
    this.pins.used(key);
    const entry = this.#entries.get(key);
    if (entry !== undefined) {
      entry.usedMs = this.#clock.nowMs();
      return entry.isDeleted ? 'full' : 'alreadyStored';
    }
    const slot = this.#takeSlot(key, saltTag);
    if (slot === undefined) return 'full';
    this.#codec.encodeInto(key, bytes, this.#slots.bytesOf(slot), { saltTag });
    this.#entries.set(key, {
      slot,
      storedBytes: this.#slotBytes,
      pinCount: 0,
      isDeleted: false,
      storedMs: Date.now(),
      usedMs: this.#clock.nowMs(),
    });
    this.#storedCount++;
    this.#policy.insert(key);
    this.#salts?.add(key, this.#slotBytes, saltTag);
    this.#count('stored');
    return 'stored';
  }

  /**
   * Evicts blocks until all of `keys` can be stored, and none of `keys`: those of the same cache salt until it is within its quota, then
   * any. False: there is not enough room, and nothing was evicted. For the blocks of a request that are stored together.
   */
  makeRoomFor(keys: readonly BlockKey[], saltTag?: SaltTag): boolean {
    const missing = keys.reduce((count, key) => (this.#entries.has(key) ? count : count + 1), 0);
    const kept = new Set(keys);
    const passed: BlockKey[] = [];
    this.pins.expire();
    const isEvictable = (key: BlockKey): boolean => {
      if (this.pins.keeps(key)) passed.push(key);
      else if (this.#entries.get(key)!.pinCount === 0 && !kept.has(key)) return true;
      return false;
    };
    const victims = this.#chooseVictims(missing, saltTag, isEvictable);
    // Pinned blocks count as used now, so that the next evictions do not pass them again.
    if (passed.length > 0) this.touch(passed.reverse());
    for (const key of victims ?? []) {
      this.#release(key, this.#entries.get(key)!);
      this.#evicted.push(key);
      this.#count('evicted');
    }
    return victims !== undefined;
  }

  /**
   * The blocks of one request were used, in the order of the request. Of blocks that were used at once, later positions
   * are evicted first. `loadNow` and `storeNow` touch their one block.
   */
  touch(keys: readonly BlockKey[]): void {
    this.#policy.touch(keys);
    if (this.#salts !== undefined) for (let i = keys.length - 1; i >= 0; i--) this.#salts.touch(keys[i]!);
  }

  /** The next piece of memory for blocks to come that is not mapped, as in `SlotArenas`. */
  nextUnmapped(): Uint8Array | undefined {
    return this.#isClosed ? undefined : this.#slots.nextUnmapped();
  }

  /**
   * The payload in its slot, without a copy and not verified; undefined if it is missing. Until `unpin` was called as
   * often as `pin`, the block is not evicted and its slot is not used for another block, also after `delete`.
   */
  pin(key: BlockKey): Uint8Array | undefined {
    const entry = this.#storedEntry(key);
    if (entry === undefined) return undefined;
    if (entry.pinCount++ === 0) this.#pinnedStoredCount++;
    return this.#slots.bytesOf(entry.slot).subarray(headerBytes);
  }

  unpin(key: BlockKey): void {
    const entry = this.#entries.get(key);
    assert(entry !== undefined && entry.pinCount > 0, `${key} is not pinned`);
    if (--entry.pinCount > 0) return;
    if (entry.isDeleted) this.#release(key, entry);
    else this.#pinnedStoredCount--;
  }

  /** Of a pinned block, for stores in other tiers. The CRC32 is that of the block when it left the pool. */
  storeContext(key: BlockKey): Required<Pick<TierContext, 'payloadCrc' | 'saltTag'>> {
    const entry = this.#entries.get(key);
    assert(entry !== undefined && entry.pinCount > 0, `${key} is not pinned`);
    const stored = this.#slots.bytesOf(entry.slot);
    return { payloadCrc: payloadCrcOf(stored), saltTag: saltTagIn(stored) };
  }

  tamper(key: BlockKey, corrupt: (stored: Uint8Array) => Uint8Array): Promise<boolean> {
    return this.#calls.run(async () => {
      const entry = this.#storedEntry(key);
      if (entry === undefined) return false;
      const slot = this.#slots.bytesOf(entry.slot);
      const corrupted = corrupt(slot.slice(0, entry.storedBytes));
      slot.set(corrupted.subarray(0, slot.length));
      entry.storedBytes = corrupted.length;
      return true;
    });
  }

  /** With the expired blocks. */
  takeEvicted(): readonly BlockKey[] {
    this.#expire();
    const evicted = this.#evicted;
    this.#evicted = [];
    return evicted;
  }

  counters(): Readonly<Record<string, number>> {
    return { ...this.#counters };
  }

  levels(): Readonly<Record<string, number>> {
    return {
      bytes: this.#slots.usedCount * this.#slotBytes,
      blocks: this.#storedCount,
      pinnedBlocks: this.#pinnedStoredCount,
      prefixBlocks: this.pins.blockCount,
    };
  }

  saltLevels(): Readonly<Record<string, SaltLevels>> | undefined {
    return this.#reportsSalts ? this.#salts?.report() : undefined;
  }

  close(): Promise<void> {
    this.#isClosed = true;
    return this.#calls.close();
  }

  checkInvariants(): void {
    const stored = [...this.#entries].filter(([, { isDeleted }]) => !isDeleted);
    const names = new Set(this.#policy.names());
    assert(names.size === stored.length, `the policy has ${names.size} blocks, ${stored.length} are stored`);
    for (const [key] of stored) assert(names.has(key), `the policy does not know ${key}`);
    assert(stored.length === this.#storedCount, `${stored.length} blocks, counted ${this.#storedCount}`);
    const pinned = stored.filter(([, { pinCount }]) => pinCount > 0).length;
    assert(pinned === this.#pinnedStoredCount, `${pinned} pinned blocks, counted ${this.#pinnedStoredCount}`);
    for (const [key, { isDeleted, pinCount }] of this.#entries) {
      assert(pinCount >= 0, `${key} has ${pinCount} pins`);
      assert(!isDeleted || pinCount > 0, `${key} is deleted and not pinned`);
    }
    const slots = new Set(Array.from(this.#entries.values(), ({ slot }) => slot));
    assert(slots.size === this.#entries.size, 'two blocks are in one slot');
    this.#slots.checkInvariants(slots);
    this.#policy.checkInvariants();
    this.#salts?.checkInvariants();
    this.pins.checkInvariants();
  }

  #storedEntry(key: BlockKey): Entry | undefined {
    const entry = this.#entries.get(key);
    if (entry === undefined || entry.isDeleted) return undefined;
    if (entry.pinCount > 0 || this.#clock.nowMs() - entry.usedMs < this.#ttlMs) return entry;
    this.#forget(key, entry);
    this.#evicted.push(key);
    this.#count('expired');
    return undefined;
  }

  /** Removes all expired blocks, a hundred times in their time to live. */
  #expire(): void {
    const nowMs = this.#clock.nowMs();
    if (this.#ttlMs === Number.POSITIVE_INFINITY || nowMs < this.#expiredUntilMs) return;
    this.#expiredUntilMs = nowMs + this.#ttlMs / 100;
    for (const key of [...this.#entries.keys()]) this.#storedEntry(key);
  }

  #forget(key: BlockKey, entry = this.#storedEntry(key)): void {
    if (entry === undefined) return;
    this.#policy.remove(key);
    this.#salts?.delete(key);
    if (entry.pinCount === 0) {
      this.#release(key, entry);
    } else {
      entry.isDeleted = true;
      this.#storedCount--;
      this.#pinnedStoredCount--;
    }
  }

  /** Takes so many blocks from the policy that `missing` blocks of this salt have room; undefined: there are not enough. */
  #chooseVictims(
    missing: number,
    saltTag: SaltTag | undefined,
    isEvictable: (key: BlockKey) => boolean,
  ): readonly BlockKey[] | undefined {
    let ofSalt: readonly BlockKey[] | undefined = [];
    if (this.#salts !== undefined && saltTag !== undefined) {
      const tooMany = this.#salts.bytesOf(saltTag) + missing * this.#slotBytes - this.#salts.quotaBytes;
      ofSalt = this.#salts.oldest(saltTag, tooMany, isEvictable);
    }
    if (ofSalt === undefined) return undefined;
    const wanted = missing - this.#slots.freeCount - ofSalt.length;
    if (wanted > this.#storedCount - this.#pinnedStoredCount - ofSalt.length) return undefined;
    const others = wanted > 0 ? this.#policy.evict(wanted, (key) => isEvictable(key) && !ofSalt.includes(key)) : [];
    if (others === undefined) return undefined;
    for (const key of ofSalt) this.#policy.remove(key);
    return [...ofSalt, ...others];
  }

  #takeSlot(key: BlockKey, saltTag: SaltTag | undefined): number | undefined {
    if (!this.makeRoomFor([key], saltTag)) return undefined;
    const slot = this.#slots.take();
    if (slot !== undefined) return slot;
    // The system has no memory for another arena: the tier goes on with the slots that it has.
    this.#count('allocationFailed');
    return this.makeRoomFor([key], saltTag) ? this.#slots.take() : undefined;
  }

  /** Frees the slot. */
  #release(key: BlockKey, entry: Entry): void {
    this.#entries.delete(key);
    this.#salts?.delete(key);
    this.#slots.giveBack(entry.slot);
    if (!entry.isDeleted) this.#storedCount--;
  }

  #assertOpen(): void {
    if (this.#isClosed) throw tierClosed({ tier: this.name });
  }

  #count(name: string): void {
    this.#counters[name] = (this.#counters[name] ?? 0) + 1;
  }
}

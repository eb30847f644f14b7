import { assert } from '../../base/assert.ts';
import { byName } from '../../base/by-name.ts';
import type { SaltTag } from '../salt-tag.ts';
import { LruBytes } from './lru-bytes.ts';

/** The blocks of one cache salt in a tier, for metrics. */
export interface SaltLevels {
  readonly blocks: number;
  readonly bytes: number;
}

/** How many cache salts a tier reports by their tags. */
const reportedMax = 64;
/** In place of a tag: all other cache salts. */
export const otherSalts = 'other';

/**
 * The blocks of each cache salt in a tier in the order of their last use, and the bound of their bytes: the quota. A salt above its
 * quota loses its own least recently used blocks, and no other block. Blocks without a salt are not counted. A key depends on its
 * salt, so a block never changes its salt.
 */
export class SaltBytes<Name> {
  readonly quotaBytes: number;
  readonly #salts = new Map<SaltTag, LruBytes<Name>>();
  readonly #tagOf = new Map<Name, SaltTag>();
  /** The last report; undefined: the blocks have changed. */
  #report: Readonly<Record<string, SaltLevels>> | undefined;

  /** `quotaBytes`: of each salt; absent: no bound. */
  constructor(quotaBytes = Number.POSITIVE_INFINITY) {
    this.quotaBytes = quotaBytes;
  }

  /** Undefined: the block is unknown, or has no salt. */
  tagOf(name: Name): SaltTag | undefined {
    return this.#tagOf.get(name);
  }

  bytesOf(tag: SaltTag): number {
    return this.#salts.get(tag)?.totalBytes ?? 0;
  }

  tags(): IterableIterator<SaltTag> {
    return this.#salts.keys();
  }

  /** Adds a block that is not known yet. It becomes the most recently used of its salt. */
  add(name: Name, bytes: number, tag: SaltTag | undefined): void {
    assert(!this.#tagOf.has(name), `${String(name)} is counted already`);
    if (tag === undefined) return;
    const blocks = this.#salts.get(tag) ?? new LruBytes<Name>();
    blocks.set(name, bytes);
    this.#salts.set(tag, blocks);
    this.#tagOf.set(name, tag);
    this.#report = undefined;
  }

  touch(name: Name): void {
    const tag = this.#tagOf.get(name);
    if (tag !== undefined) this.#salts.get(tag)!.touch(name);
  }

  delete(name: Name): void {
    const tag = this.#tagOf.get(name);
    if (tag === undefined) return;
    const blocks = this.#salts.get(tag)!;
    blocks.delete(name);
    if (blocks.count === 0) this.#salts.delete(tag);
    this.#tagOf.delete(name);
    this.#report = undefined;
  }

  /** The least recently used blocks of the salt with at least `bytes`; undefined: there are not enough that can be evicted. */
  oldest(tag: SaltTag, bytes: number, isEvictable: (name: Name) => boolean): Name[] | undefined {
    if (bytes <= 0) return [];
    return this.#salts.get(tag)?.oldest(bytes, isEvictable);
  }

  /** By tag, the salts with the most bytes; the sum of all others as `other`. */
  report(): Readonly<Record<string, SaltLevels>> {
    this.#report ??= this.#largest();
    return this.#report;
  }

  checkInvariants(): void {
    let count = 0;
    for (const [tag, blocks] of this.#salts) {
      blocks.checkInvariants();
      assert(blocks.count > 0, 'a salt without blocks is kept');
      for (const name of blocks.names()) assert(this.#tagOf.get(name) === tag, 'a block is counted for two salts');
      count += blocks.count;
    }
    assert(count === this.#tagOf.size, `${count} blocks of salts, ${this.#tagOf.size} have a tag`);
  }

  #largest(): Readonly<Record<string, SaltLevels>> {
    const all = [...this.#salts].map(([tag, { count: blocks, totalBytes: bytes }]) => ({ tag, blocks, bytes }));
    if (all.length > reportedMax) all.sort((a, b) => b.bytes - a.bytes || (a.tag < b.tag ? -1 : 1));
    const report: Record<string, SaltLevels> = byName();
    for (const { tag, ...levels } of all.slice(0, reportedMax)) report[tag] = levels;
    const others = all.slice(reportedMax);
    if (others.length > 0)
      report[otherSalts] = {
        blocks: others.reduce((sum, { blocks }) => sum + blocks, 0),
        bytes: others.reduce((sum, { bytes }) => sum + bytes, 0),
      };
    return report;
  }
}

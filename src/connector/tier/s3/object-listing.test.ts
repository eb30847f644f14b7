import { expect, it } from 'vitest';
import { ManualTime } from '../../../../test/support/manual-time.ts';
import type { BlockKey } from '../../block-key.ts';
import { suiteKey } from '../tier.suite.ts';
import { ObjectIndex } from './object-index.ts';
import { ObjectListing } from './object-listing.ts';
import { objectNameOf, shortKeyOf, timeText } from './object-name.ts';

const byText = (a: string, b: string): number => (a < b ? -1 : 1);

class Bucket {
  readonly time = new ManualTime();
  readonly index = new ObjectIndex();
  readonly names = new Set<string>();
  readonly asked: string[] = [];
  readonly failures: unknown[] = [];
  /** Between pages, in milliseconds. */
  readonly pauses: number[] = [];
  /** How long a page takes. */
  pageMs = 0;
  error: Error | undefined;
  /** Pages wait for it. */
  gate: Promise<void> = Promise.resolve();
  readonly listing: ObjectListing;

  constructor() {
    this.listing = new ObjectListing({
      index: this.index,
      clock: this.time,
      serverNowMs: () => 1_000_000 + this.time.nowMs(),
      overlapMs: 100,
      fullEveryMs: 10_000,
      failed: (error) => void this.failures.push(error),
      pause: async (pauseMs) => void this.pauses.push(pauseMs),
      page: async (after, continuation) => {
        this.asked.push(continuation ?? after);
        await this.gate;
        this.time.advance(this.pageMs);
        if (this.error !== undefined) throw this.error;
        const names = [...this.names].toSorted(byText).filter((name) => name > (continuation ?? after));
        const objects = names.slice(0, 2).map((name) => ({ name, bytes: 1 }));
        return { objects, continuation: names.length > 2 ? objects[1]!.name : undefined };
      },
    });
  }

  write(key: BlockKey, offsetMs = 0): string {
    const name = objectNameOf(1_000_000 + this.time.nowMs() + offsetMs, 'aaaaaaaa', [shortKeyOf(key)]);
    this.names.add(name);
    return name;
  }
}

it('the first listing has all pages, and later listings begin shortly before the last one', async () => {
  const bucket = new Bucket();
  for (let i = 0; i < 5; i++) bucket.write(suiteKey(i), -i * 1000);
  await bucket.listing.knowAt(0);
  expect(bucket.index.objectCount).toBe(5);
  expect(bucket.asked).toHaveLength(3);
  bucket.time.advance(50);
  bucket.write(suiteKey('new'));
  await bucket.listing.knowAt(50);
  expect(bucket.asked.slice(3)).toEqual([timeText(1_000_000 - 100)]);
  expect(bucket.index.has(suiteKey('new'))).toBe(true);
});

it('a listing that is new enough is used again, and calls at the same time share one', async () => {
  const bucket = new Bucket();
  await Promise.all([bucket.listing.knowAt(0), bucket.listing.knowAt(0), bucket.listing.knowAt(-5)]);
  expect(bucket.asked).toHaveLength(1);
  bucket.time.advance(10);
  await bucket.listing.knowAt(0);
  expect(bucket.asked).toHaveLength(1);
  await Promise.all([bucket.listing.knowAt(5), bucket.listing.knowAt(5)]);
  expect(bucket.asked).toHaveLength(2);
});

it('a listing that began before an object was written is not enough to know it', async () => {
  const bucket = new Bucket();
  await bucket.listing.knowAt(0);
  let open = (): void => undefined;
  bucket.gate = new Promise((resolve) => {
    open = resolve;
  });
  bucket.time.advance(10);
  const first = bucket.listing.knowAt(10);
  bucket.time.advance(10);
  const second = bucket.listing.knowAt(20);
  open();
  await first;
  bucket.write(suiteKey('a'));
  await second;
  expect(bucket.index.has(suiteKey('a'))).toBe(true);
});

it('an object that appears late, or whose writer has a wrong clock, is found by the next full listing', async () => {
  const bucket = new Bucket();
  await bucket.listing.knowAt(0);
  bucket.time.advance(5000);
  bucket.write(suiteKey('late'), -5200);
  await bucket.listing.knowAt(5000);
  expect(bucket.index.has(suiteKey('late'))).toBe(false);
  bucket.time.advance(5000);
  await bucket.listing.knowAt(10_000);
  await bucket.listing.whenIdle();
  expect(bucket.index.has(suiteKey('late'))).toBe(true);
});

it('a full listing removes objects that are gone, but none that this tier wrote meanwhile', async () => {
  const bucket = new Bucket();
  const gone = bucket.write(suiteKey('gone'));
  bucket.write(suiteKey('stays'));
  await bucket.listing.knowAt(0);
  bucket.names.delete(gone);
  bucket.time.advance(10_000);
  const known = bucket.listing.knowAt(0);
  bucket.index.add(objectNameOf(5, 'bbbbbbbb', [shortKeyOf(suiteKey('own'))]), 1, bucket.listing.serial);
  await known;
  await bucket.listing.whenIdle();
  expect(['gone', 'stays', 'own'].map((name) => bucket.index.has(suiteKey(name)))).toEqual([false, true, true]);
});

it('a failed listing is tried again by the next call, and begins where the last successful one did', async () => {
  const bucket = new Bucket();
  await bucket.listing.knowAt(0);
  bucket.error = new Error('down');
  bucket.time.advance(1000);
  await expect(bucket.listing.knowAt(1000)).rejects.toThrow('down');
  bucket.write(suiteKey('a'), -900);
  bucket.time.advance(1000);
  bucket.error = undefined;
  await bucket.listing.knowAt(2000);
  expect(bucket.index.has(suiteKey('a'))).toBe(true);
  expect(bucket.failures).toEqual([]);
});

it('a full listing in the background that fails is reported, and removes nothing', async () => {
  const bucket = new Bucket();
  bucket.write(suiteKey('a'));
  await bucket.listing.knowAt(0);
  bucket.time.advance(10_000);
  bucket.error = new Error('down');
  await bucket.listing.knowAt(0);
  await bucket.listing.whenIdle();
  expect(bucket.failures).toHaveLength(1);
  expect(bucket.index.has(suiteKey('a'))).toBe(true);
});

it('a listing of many pages pauses between them, in the background for longer', async () => {
  const bucket = new Bucket();
  for (let i = 0; i < 50; i++) bucket.write(suiteKey(i), -i * 1000);
  bucket.pageMs = 20;
  await bucket.listing.knowAt(0);
  expect(bucket.index.objectCount).toBe(50);
  expect(new Set(bucket.pauses)).toEqual(new Set([20]));
  expect(bucket.pauses.length).toBeLessThan(bucket.asked.length);
  bucket.pauses.length = 0;
  bucket.time.advance(10_000);
  await bucket.listing.knowAt(0);
  await bucket.listing.whenIdle();
  expect(new Set(bucket.pauses)).toEqual(new Set([180]));
});

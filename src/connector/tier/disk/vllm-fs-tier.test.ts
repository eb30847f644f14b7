/** vLLM's tests of its file system tier (`test_fs_tier`), with their names, and our outcomes where these differ. */
import {
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  unlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { crc32 } from 'node:zlib';
import { afterAll, describe, expect, it } from 'vitest';
import { AssertionError } from '../../../base/assert.ts';
import { loadNative } from '../../../ggml/ffi.ts';
import { openCrc32 } from '../../../native/crc32.ts';
import { headerBytes, payloadCrcOf } from '../block-header.ts';
import { Crc32OfParts } from '../crc32-of-parts.ts';
import { suiteBlockBytes, suiteBytes, suiteIdentity, suiteKey } from '../tier.suite.ts';
import { DiskTier, type DiskTierOptions } from './tier-disk.ts';

const root = mkdtempSync(join(tmpdir(), 'kvasir-fs-tier-'));
afterAll(() => rmSync(root, { recursive: true }));
let serial = 0;
const open = (options: Partial<DiskTierOptions> = {}) =>
  DiskTier.open({ root: join(root, `${serial++}`), identity: suiteIdentity, maxBytes: 1e9, ...options });
const never = new AbortController().signal;
const put = (tier: DiskTier, name: number) => tier.store(suiteKey(name), suiteBytes(suiteKey(name)), never);
const putAll = (tier: DiskTier, names: readonly number[]) => Promise.all(names.map((name) => put(tier, name)));
const getAll = (tier: DiskTier, names: readonly number[]) =>
  Promise.all(
    names.map(async (name) => {
      const into = new Uint8Array(suiteBlockBytes);
      const reason = await tier.load(suiteKey(name), into, never);
      if (reason === undefined) expect(into).toEqual(suiteBytes(suiteKey(name)));
      return reason ?? 'loaded';
    }),
  );
const isStored = (tier: DiskTier, names: readonly number[]) =>
  tier.has(
    names.map((name) => suiteKey(name)),
    never,
  );
const truncate = (tier: DiskTier, name: number): void => writeFileSync(tier.fileOf(suiteKey(name)), 'x'.repeat(10));

describe('test_fs_tier', () => {
  it('test_lookup_empty_tier', async () => {
    const tier = await open();
    expect(await isStored(tier, [1, 2])).toEqual([false, false]);
    await tier.close();
  });

  it('test_store_creates_file_and_lookup_succeeds', async () => {
    const tier = await open();
    expect(await put(tier, 1)).toBe('stored');
    expect(await isStored(tier, [1])).toEqual([true]);
    expect(statSync(tier.fileOf(suiteKey(1))).size).toBe(headerBytes + suiteBlockBytes);
    await tier.close();
  });

  it('test_store_then_load_roundtrip: a load leaves the files', async () => {
    const tier = await open();
    await putAll(tier, [1, 2]);
    expect(await isStored(tier, [1, 2])).toEqual([true, true]);
    expect(await getAll(tier, [1, 2])).toEqual(['loaded', 'loaded']);
    for (const name of [1, 2]) expect(existsSync(tier.fileOf(suiteKey(name)))).toBe(true);
    expect(await isStored(tier, [1, 2])).toEqual([true, true]);
    await tier.close();
  });

  it('test_invalid_path_raises_at_construction', async () => {
    await expect(open({ root: '/dev/null/invalid_path' })).rejects.toMatchObject({
      code: 'KVASIR_STORAGE_UNUSABLE',
      message: expect.stringContaining('/dev/null/invalid_path'),
    });
  });

  it('test_failed_load_missing_file', async () => {
    const tier = await open();
    expect(await getAll(tier, [99])).toEqual(['missing']);
    await tier.close();
  });

  it('test_multiple_jobs_tracked_independently', async () => {
    const tier = await open();
    expect(await putAll(tier, [1, 2])).toEqual(['stored', 'stored']);
    expect(await isStored(tier, [1, 2])).toEqual([true, true]);
    await tier.close();
  });

  it('test_multi_block_job_partial_failure: each block has its own answer, and the others are loaded', async () => {
    const tier = await open();
    await putAll(tier, [10, 11]);
    expect(await getAll(tier, [10, 11, 99])).toEqual(['loaded', 'loaded', 'missing']);
    await tier.close();
  });

  it('test_shutdown_discards_pending_tasks: `close` waits for the stores, and later calls are refused', async () => {
    const tier = await open();
    const storing = putAll(tier, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
    await tier.close();
    expect(new Set(await storing)).toEqual(new Set(['stored']));
    await expect(put(tier, 10)).rejects.toMatchObject({ code: 'KVASIR_TIER_CLOSED' });
  });

  it.each([0, 1, 2, 5])('test_store_load_data_integrity: %d blocks, with and without the kernel', async (count) => {
    const names = Array.from({ length: count }, (_, i) => i);
    for (const kernel of [await openCrc32(loadNative()), undefined]) {
      const tier = await open({ crc32: kernel });
      expect(await putAll(tier, names)).toEqual(names.map(() => 'stored'));
      expect(names.every((name) => existsSync(tier.fileOf(suiteKey(name))))).toBe(true);
      expect(await getAll(tier, names)).toEqual(names.map(() => 'loaded'));
      await tier.close();
    }
  });

  it('test_store_load_roundtrip_without_o_direct: the files are the same with and without O_DIRECT', async () => {
    const at = join(root, 'direct');
    const files: Buffer[] = [];
    for (const directIo of [true, false]) {
      const tier = await open({ root: at, directIo });
      expect(await putAll(tier, [0, 1])).toEqual(['stored', 'stored']);
      expect(await getAll(tier, [0, 1])).toEqual(['loaded', 'loaded']);
      await tier.close();
      const other = await open({ root: at, directIo: !directIo });
      expect(await getAll(other, [0, 1])).toEqual(['loaded', 'loaded']);
      files.push(readFileSync(other.fileOf(suiteKey(0))));
      for (const name of [0, 1]) await other.delete(suiteKey(name));
      await other.close();
    }
    expect(files[0]!.equals(files[1]!)).toBe(true);
  });

  it('test_out_of_bounds_block_id_smoke: memory that is not one block is a bug of the caller', async () => {
    const tier = await open();
    const tooLong = new Uint8Array(suiteBlockBytes + 1);
    await expect(tier.store(suiteKey(1), tooLong, never)).rejects.toThrow(AssertionError);
    expect(await isStored(tier, [1])).toEqual([false]);
    await put(tier, 1);
    await expect(tier.load(suiteKey(1), tooLong, never)).rejects.toThrow(AssertionError);
    expect(await getAll(tier, [1])).toEqual(['loaded']);
    await tier.close();
  });

  it('test_failed_load_corrects_verdict_and_removes_corrupt_file: the file is moved to quarantine', async () => {
    const tier = await open();
    await put(tier, 1);
    const path = tier.fileOf(suiteKey(1));
    expect(await getAll(tier, [1])).toEqual(['loaded']);
    expect(existsSync(path)).toBe(true);
    truncate(tier, 1);
    expect(await getAll(tier, [1])).toEqual(['truncated']);
    expect(existsSync(path)).toBe(false);
    expect(readdirSync(join(tier.path, 'quarantine'))).toHaveLength(1);
    expect(await isStored(tier, [1])).toEqual([false]);
    expect(await put(tier, 1)).toBe('stored');
    expect(await getAll(tier, [1])).toEqual(['loaded']);
    await tier.close();
  });

  it('test_batched_partial_load_failure_keeps_loaded_blocks', async () => {
    const tier = await open();
    await putAll(tier, [1, 2, 3]);
    truncate(tier, 3);
    expect(await getAll(tier, [1, 2, 3])).toEqual(['loaded', 'loaded', 'truncated']);
    expect(await isStored(tier, [1, 2, 3])).toEqual([true, true, false]);
    await tier.close();
  });

  it('test_batched_load_first_block_fails_marks_whole_batch: only the first block is a miss', async () => {
    const tier = await open();
    await putAll(tier, [1, 2, 3]);
    truncate(tier, 1);
    expect(await getAll(tier, [1, 2, 3])).toEqual(['truncated', 'loaded', 'loaded']);
    expect(await isStored(tier, [1, 2, 3])).toEqual([false, true, true]);
    await tier.close();
  });

  it('test_transient_load_failure_leaves_file', async () => {
    const tier = await open();
    await put(tier, 1);
    const path = tier.fileOf(suiteKey(1));
    const original = readFileSync(path);
    // ELOOP, also for root.
    renameSync(path, `${path}.saved`);
    symlinkSync(`${path}.loop`, path);
    symlinkSync(path, `${path}.loop`);
    await expect(tier.load(suiteKey(1), new Uint8Array(suiteBlockBytes), never)).rejects.toMatchObject({
      code: 'KVASIR_TIER_FAILED',
      message: expect.stringContaining('ELOOP'),
    });
    expect(await isStored(tier, [1])).toEqual([undefined]);
    expect(readdirSync(dirname(path))).toHaveLength(3);
    unlinkSync(path);
    renameSync(`${path}.saved`, path);
    expect(readFileSync(path).equals(original)).toBe(true);
    expect(await getAll(tier, [1])).toEqual(['loaded']);
    await tier.close();
  });

  it('test_crc32c_matches_standard_check_value: the checksum is zlib’s CRC32', async () => {
    const text = new TextEncoder().encode('123456789');
    expect(crc32(text)).toBe(0xcbf43926);
    const kernel = await openCrc32(loadNative());
    if (kernel !== undefined) expect(kernel(text)).toBe(0xcbf43926);
    const parts = new Crc32OfParts();
    for (const part of [text.subarray(0, 4), text.subarray(4)]) parts.add(crc32(part), part.length);
    expect(parts.value).toBe(0xcbf43926);
  });

  it('test_checksum_is_recorded_and_verified: in the header', async () => {
    const tier = await open();
    await put(tier, 1);
    const header = readFileSync(tier.fileOf(suiteKey(1))).subarray(0, headerBytes);
    expect(payloadCrcOf(header)).toBe(crc32(suiteBytes(suiteKey(1))));
    expect(await getAll(tier, [1])).toEqual(['loaded']);
    await tier.close();
  });

  it.each([
    ['corrupt', headerBytes + 5],
    ['headerCorrupt', 92],
  ])('test_checksum_mismatch_fails_load_and_removes_block: %s', async (reason, at) => {
    const tier = await open();
    await putAll(tier, [1, 2]);
    await tier.tamper(suiteKey(2), (stored) => stored.map((byte, i) => (i === at ? byte ^ 1 : byte)));
    expect(await getAll(tier, [1, 2])).toEqual(['loaded', reason]);
    expect(existsSync(tier.fileOf(suiteKey(2)))).toBe(false);
    expect(tier.counters()[reason]).toBe(1);
    await tier.close();
  });

  it('test_block_stored_without_checksum_still_loads: a file without header and checksum is a miss', async () => {
    const tier = await open();
    await put(tier, 1);
    writeFileSync(tier.fileOf(suiteKey(1)), suiteBytes(suiteKey(1)));
    expect(await getAll(tier, [1])).toEqual(['notABlock']);
    await tier.close();
  });
});

/** A disk tier whose process loses the permission for the folder while the tier is open. */
import { chmodSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { needs } from '../../../../test/support/needs.ts';
import { suiteBlockBytes, suiteBytes, suiteIdentity, suiteKey } from '../tier.suite.ts';
import { DiskTier } from './tier-disk.ts';

const root = mkdtempSync(join(tmpdir(), 'kvasir-permission-'));
afterAll(() => rmSync(root, { recursive: true }));
const never = new AbortController().signal;
const failed = { code: 'KVASIR_TIER_FAILED', message: expect.stringContaining('EACCES') };

/** Root may do everything, so it becomes another user; other users take the permission from themselves. */
async function withoutPermission(use: () => Promise<void>): Promise<void> {
  const isRoot = process.geteuid?.() === 0;
  if (isRoot) process.seteuid!(65_534);
  else chmodSync(root, 0);
  try {
    await use();
  } finally {
    if (isRoot) process.seteuid!(0);
    else chmodSync(root, 0o700);
  }
}

describe('a folder whose permission is lost', needs(process.platform === 'linux', 'no permissions as on Linux'), () => {
  it('fails calls while the permission is lost, no block is a miss, and the tier works again afterwards', async () => {
    const tier = await DiskTier.open({
      root,
      identity: suiteIdentity,
      maxBytes: 1e9,
      threads: 2,
      startThreads: 2,
    });
    const [stored, other] = [suiteKey('stored'), suiteKey('other')];
    const into = new Uint8Array(suiteBlockBytes);
    await tier.store(stored, suiteBytes(stored), never);
    await withoutPermission(async () => {
      await expect(tier.load(stored, into, never)).rejects.toMatchObject(failed);
      await expect(tier.store(other, suiteBytes(other), never)).rejects.toMatchObject(failed);
      expect(await tier.has([stored, other], never)).toEqual([undefined, undefined]);
    });
    expect(await tier.load(stored, into, never)).toBeUndefined();
    expect(into).toEqual(suiteBytes(stored));
    expect(await tier.store(other, suiteBytes(other), never)).toBe('stored');
    expect(await tier.has([stored, other], never)).toEqual([true, true]);
    await tier.close();
  });
});

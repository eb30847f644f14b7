import { afterEach, describe, expect, it, vi } from 'vitest';
import { needs } from '../../test/support/needs.ts';
import { loadNative } from '../ggml/ffi.ts';
import { openBarrier } from './barrier.ts';
import { openPoolWatcher } from './pool-watcher.ts';

const barrier = await openBarrier(loadNative());
const reason = 'no C compiler, or not Linux';
/** Systems have fewer cores. */
const missing = 100_000;

afterEach(() => void vi.unstubAllEnvs());

describe('the watcher of a pool of threads', () => {
  it('is absent for a single thread that is not pinned', async () => {
    expect(await openPoolWatcher({ threads: 1 }, {})).toBeUndefined();
    expect(await openPoolWatcher({ threads: 1, cpus: [] }, {})).toBeUndefined();
  });

  it('exists for several threads', needs(barrier !== undefined, reason), async () => {
    expect(await openPoolWatcher({ threads: 2 }, {})).toBeDefined();
  });

  it('refuses cores that the process may not use', needs(barrier !== undefined, reason), async () => {
    const refused = openPoolWatcher({ threads: 2, cpus: [missing, missing + 1] }, {});
    await expect(refused).rejects.toMatchObject({
      code: 'KVASIR_CPUS_UNAVAILABLE',
      message: `The compute threads cannot be pinned to the cores ${missing},${missing + 1}. The process may use 0 of these 2. Correct or remove --cpus.`,
    });
  });

  it('refuses to pin threads without the barrier', async () => {
    vi.stubEnv('KVASIR_BARRIER', 'ggml');
    const refused = openPoolWatcher({ threads: 1, cpus: [0] }, {});
    await expect(refused).rejects.toThrow('Pinning needs Linux, a C compiler and the barrier of Kvasir.');
    expect(await openPoolWatcher({ threads: 2 }, {})).toBeUndefined();
  });
});

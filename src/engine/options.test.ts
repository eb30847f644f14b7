import { describe, expect, it } from 'vitest';
import { defaultKvCacheMemory, engineDefaults, resolveEngineOptions } from './options.ts';

const GIB = 1024 ** 3;

describe('engine options', () => {
  it('fills in every default', () => {
    const resolved = resolveEngineOptions({ model: 'm.gguf' });
    expect(resolved).toMatchObject({ ...engineDefaults, model: 'm.gguf' });
    expect(resolved.threads).toBeGreaterThanOrEqual(1);
    expect(resolved.maxModelLen).toBeUndefined();
  });

  it('has a thread for each of the given cores, unless their number is given too', () => {
    expect(resolveEngineOptions({ model: 'm.gguf', cpus: [1, 3, 5] })).toMatchObject({ threads: 3, cpus: [1, 3, 5] });
    expect(resolveEngineOptions({ model: 'm.gguf', cpus: [1, 3], threads: 4 })).toMatchObject({ threads: 4 });
  });

  it('keeps given options and treats an undefined option as absent', () => {
    const options: object = { model: 'm.gguf', blockSize: 32, enablePrefixCaching: false, maxNumSeqs: undefined };
    const resolved = resolveEngineOptions(options as { model: string });
    expect(resolved).toMatchObject({ blockSize: 32, enablePrefixCaching: false, maxNumSeqs: 64 });
  });

  it.each([1, 0, -5, 2.5, Number.NaN])('refuses a maxModelLen of %d', (maxModelLen) => {
    expect(() => resolveEngineOptions({ model: 'm.gguf', maxModelLen })).toThrow(/maxModelLen is .* at least 2/);
  });

  it('gives the pool half of the memory that the weights leave, from 0 to 4 GiB', () => {
    expect(defaultKvCacheMemory(1 * GIB, 5 * GIB)).toBe(2 * GIB);
    expect(defaultKvCacheMemory(1 * GIB, 500 * GIB)).toBe(4 * GIB);
    expect(defaultKvCacheMemory(9 * GIB, 5 * GIB)).toBe(0);
  });
});

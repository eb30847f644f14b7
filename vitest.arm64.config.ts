import { defineConfig } from 'vitest/config';
import { compiledSources } from './test/support/compiled-sources.ts';

/**
 * The core on an ARM CPU, which QEMU emulates: `.ci/test-arm64`. Node's processes are those of the emulator, so files run in threads, and tests
 * that start Node are not here. The emulator is twenty times as slow.
 */
export default defineConfig({
  plugins: [compiledSources()],
  test: {
    include: ['src/kv', 'src/scheduler', 'sim/scheduler', 'src/connector', 'src/grammar', 'src/jinja'].flatMap(
      (folder) => [`${folder}/**/*.test.ts`, `${folder}/**/*.fuzz.ts`],
    ),
    exclude: ['**/node_modules/**', '**/redis-cluster.test.ts'],
    pool: 'threads',
    maxWorkers: 2,
    setupFiles: process.env.KVASIR_SEED === undefined ? [] : ['test/support/random-seed.ts'],
    env: { KVASIR_PREBUILT: 'off' },
    testTimeout: 3_600_000,
    hookTimeout: 3_600_000,
    teardownTimeout: 600_000,
    expect: { poll: { timeout: 1_200_000 } },
  },
});

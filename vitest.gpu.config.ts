import { defineConfig } from 'vitest/config';
import { compiledSources } from './test/support/compiled-sources.ts';

/** Tests on a GPU backend. A crash of a driver must not end other files, so each has a process. */
export default defineConfig({
  plugins: [compiledSources()],
  test: {
    globalSetup: 'test/support/build-first.ts',
    include: ['test/gpu/*.gpu.ts', 'test/recovery-schedules.test.ts'],
    pool: 'forks',
    experimental: { fsModuleCache: true },
    // Software Vulkan computes with all cores.
    maxWorkers: 1,
    env: { KVASIR_PREBUILT: 'off', KVASIR_TEST_DEVICE: 'gpu' },
    testTimeout: 600_000,
    hookTimeout: 600_000,
  },
});

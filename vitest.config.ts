import { availableParallelism } from 'node:os';
import { defineConfig } from 'vitest/config';
import { HeavyFilesFirst } from './test/support/heavy-files-first.ts';

/** Tests of pure code: no native libraries, threads, processes or changes of shared state. */
const pure = ['core', 'engine', 'kv', 'scheduler', 'server'].flatMap((folder) => [
  `src/${folder}/**/*.test.ts`,
  `src/${folder}/**/*.fuzz.ts`,
]);

/** Tests whose branch coverage is measured (`scripts/connector-coverage.ts`). */
const connector = ['src/connector/**/*.test.ts', 'src/connector/**/*.fuzz.ts'];

export default defineConfig({
  test: {
    // Processes instead of threads: native libraries have state of the process, and a crash in one must not end other files.
    pool: 'forks',
    // Many tests wait for deadlines, stores that hang or processes that start. Vitest's default leaves one core idle.
    maxWorkers: availableParallelism() + 1,
    sequence: { sequencer: HeavyFilesFirst },
    // Limits find tests that hang. A busy machine takes ten times as long as an idle one.
    testTimeout: 300_000,
    hookTimeout: 300_000,
    // A poll waits for an event. The default of one second is too short on a busy machine.
    expect: { poll: { timeout: 60_000 } },
    projects: [
      {
        extends: true,
        test: {
          name: 'real',
          include: ['{src,sim,bench,test,scripts}/**/*.test.ts', 'src/**/*.fuzz.ts'],
          exclude: [...pure, ...connector, '**/node_modules/**'],
        },
      },
      { extends: true, test: { name: 'connector', include: connector, setupFiles: 'test/support/branch-coverage.ts' } },
      // These files share a process and its modules: starting a process for each file took longer than its tests.
      { extends: true, test: { name: 'pure', include: pure, isolate: false } },
    ],
  },
});

import { availableParallelism } from 'node:os';
import { defineConfig } from 'vitest/config';
import { HeavyFilesFirst } from './test/support/heavy-files-first.ts';

/** Tests of pure code: no native libraries, threads or processes, no changes to what files share. */
const pure = ['core', 'engine', 'kv', 'scheduler', 'server'].flatMap((room) => [
  `src/${room}/**/*.test.ts`,
  `src/${room}/**/*.fuzz.ts`,
]);

export default defineConfig({
  test: {
    // Native libraries keep process-wide state, and a crash in one must not take down other files: processes, not threads.
    pool: 'forks',
    // Many tests wait: for deadlines, stores that hang, processes that start. Vitest's default leaves one core idle besides.
    maxWorkers: availableParallelism() + 1,
    sequence: { sequencer: HeavyFilesFirst },
    // Limits find tests that hang. A machine that is busy with other work takes ten times as long as a quiet one.
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
          exclude: [...pure, '**/node_modules/**'],
        },
      },
      // Files share a process and its modules: to start a process for each of them took longer than their tests.
      { extends: true, test: { name: 'pure', include: pure, isolate: false } },
    ],
  },
});

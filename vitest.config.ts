import { availableParallelism } from 'node:os';
import { defineConfig } from 'vitest/config';
import { HeavyFilesFirst } from './test/support/heavy-files-first.ts';

/**
 * Files that share processes, which keep the modules of the last file. A process for each file costs as much CPU time as
 * most of these files. They must not change the state of the process, such as `process.env`.
 */
const filesOf = (folder: string): string[] => [`${folder}/**/*.test.ts`, `${folder}/**/*.fuzz.ts`];
const connector = filesOf('src/connector');
const shared = ['src', 'bench', 'scripts', 'test/support'].flatMap(filesOf);

/** Tests of the whole engine, of processes, and of the state of the process. Each file has its own process. */
const alone = [...['test', 'sim'].flatMap(filesOf), ...filesOf('src/native')];

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
      { extends: true, test: { name: 'alone', include: alone, exclude: ['test/support/**', '**/node_modules/**'] } },
      {
        extends: true,
        test: {
          name: 'shared',
          include: shared,
          exclude: [...connector, ...alone.filter((path) => path.startsWith('src/')), '**/node_modules/**'],
          isolate: false,
        },
      },
      {
        extends: true,
        // `scripts/connector-coverage.ts` reads the branch coverage of these tests.
        test: { name: 'connector', include: connector, setupFiles: 'test/support/branch-coverage.ts', isolate: false },
      },
    ],
  },
});

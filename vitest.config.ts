import { availableParallelism } from 'node:os';
import { defineConfig } from 'vitest/config';
import { compiledSources } from './test/support/compiled-sources.ts';
import { HeavyFilesFirst } from './test/support/heavy-files-first.ts';

const filesOf = (...folders: string[]): string[] =>
  folders.flatMap((folder) => [`${folder}/**/*.test.ts`, `${folder}/**/*.fuzz.ts`]);

/** Tests of compiled kernels change `process.env`. */
const native = filesOf('src/native');
/** With the orders about tiers, which need an engine. */
const connector = [...filesOf('src/connector'), 'test/kv-administration.test.ts'];
/** Tests that count the threads that the process starts. */
const startedThreads = ['src/base/job-thread.test.ts', 'src/ggml/native-thread.test.ts'];
/** Tests of connectors that count the threads of the process. */
const threads = [
  'src/connector/fault/fault-hung.test.ts',
  ...['disk-limits', 'io-pool', 'tier-disk-dead'].map((name) => `src/connector/tier/disk/${name}.test.ts`),
];
/**
 * Tests that change the process (its environment, native libraries, code of the engine) or that measure it. Other tests leave the process
 * as they found it. The import of the engine costs more CPU time than many of them, so they share processes.
 */
const alone = [
  ...['gemma3-in-doubles', 'kernel-fallback', 'leak', 'nth-failure', 'prebuilt-bits', 'prebuilt-kernels', 'reference'],
].map((name) => `test/${name}.test.ts`);
/** Tests that change the process with `computeHere`, all in the same way. */
const computingHere = [
  'embeddings',
  'exactness',
  'kept-graphs',
  'long-context',
  'model-size',
  'pipeline',
  'prefix-hits',
  'prompt-results',
  'reference-this-cpu',
  'sliding-window',
  'speculation',
  'suffix-speculation',
].map((name) => `test/${name}.test.ts`);
/** As in `test/support/long-form.ts`, which imports Vitest's functions for tests. */
const isLongForm = process.env.KVASIR_TEST_LONG === '1';
/**
 * Files that only the long form runs. The default form has other tests of their subjects: the demo's faults for the benches and for planted
 * bugs, `reference.test.ts` for gemma3 and long contexts, stores of killed engines in `recovery-disk.test.ts`, faults of connectors in
 * `src/connector/fault`, e2e tests of offloading and of the server for guides and service managers, the simulator and
 * `src/connector/places` for hits and for what is stored,
 * `src/connector` for failing calls and for Redis, mutants of single engines for those of clusters, and the end of every block and request in most files for leaks.
 */
const onlyLong = isLongForm
  ? []
  : [
      ...[
        ...['connector-kill', 'cpu-builds', 'gemma3-in-doubles', 'leak', 'long-context', 'own-sides-faults'],
        ...['e2e/bench-recovery', 'e2e/removed-folder', 'e2e/demo-planted-bugs', 'e2e/disaggregated', 'e2e/fleet'],
        ...['e2e/offloading-guide', 'e2e/service-manager', 'hits-kept', 'nth-failure', 'prefix-retention'],
        ...['e2e/generated-clients', 'e2e/judges', 'e2e/ollama-go', 'e2e/soak'],
      ].map((name) => `test/${name}.test.ts`),
      'bench/command.test.ts',
      'src/connector/tier/redis/redis-cluster.test.ts',
      'sim/cluster/mutants.test.ts',
    ];
/** With KVASIR_SEED, tests with random input are the same in each run. */
const randomSeed = process.env.KVASIR_SEED === undefined ? [] : ['test/support/random-seed.ts'];
const bare = process.env.KVASIR_TEST_BARE === '1' ? ['test/support/bare.ts'] : [];
const support = filesOf('test/support');
/** Vitest's default excludes only modules. */
const excluded = ['**/node_modules/**', ...onlyLong];

export default defineConfig({
  plugins: [compiledSources()],
  test: {
    globalSetup: ['test/support/build-first.ts'],
    server: { deps: { external: [/\/dist\//] } },
    // Processes instead of threads: native libraries have state of the process, and a crash in one must not end other files.
    pool: 'forks',
    // Each project transforms the files that it imports. With this cache, a file is transformed once for all of them, and again when it changes.
    experimental: { fsModuleCache: true },
    // Many tests wait for deadlines, stores that hang or processes that start. Vitest's default leaves one core idle. With two cores and three
    // workers more than cores, both are busy while at most three of five tests wait.
    maxWorkers: availableParallelism() + 3,
    // Tests allocate much and keep little. With V8's default of a few MiB for new objects, a fifth of the CPU time is garbage collection.
    execArgv: ['--min-semi-space-size=32', '--max-semi-space-size=64'],
    setupFiles: ['test/support/cpu-seconds.ts', ...randomSeed, ...bare],
    reporters: ['default', './test/support/cpu-reporter.ts'],
    sequence: { sequencer: HeavyFilesFirst },
    // Tests must not depend on whether `npm run kernels` was called; those of prebuilt kernels have their own folder.
    env: { KVASIR_PREBUILT: 'off' },
    // Limits find tests that hang. A busy machine takes ten times as long as an idle one.
    testTimeout: 300_000,
    hookTimeout: 300_000,
    // A poll waits for an event. The default of one second is too short on a busy machine.
    expect: { poll: { timeout: 60_000 } },
    projects: [
      { extends: true, test: { name: 'alone', include: [...alone, ...native, ...startedThreads], exclude: excluded } },
      // Whole engines, servers and commands.
      {
        extends: true,
        test: {
          name: 'whole',
          globalSetup: ['test/support/prepare-once.ts'],
          include: filesOf('test'),
          exclude: [...support, ...alone, ...computingHere, ...connector, ...excluded],
          isolate: false,
        },
      },
      { extends: true, test: { name: 'computing-here', include: computingHere, isolate: false } },
      // A process for each file costs as much CPU time as most of these files. They must not change the state of the process.
      {
        extends: true,
        test: {
          name: 'shared',
          include: [...filesOf('src', 'bench', 'scripts', 'sim'), ...support],
          exclude: [...connector, ...native, ...startedThreads, ...excluded],
          isolate: false,
        },
      },
      // `scripts/connector-coverage.ts` reads the branch coverage of these files, which share processes too.
      {
        extends: true,
        test: {
          name: 'connector',
          include: connector,
          exclude: [...threads, ...excluded],
          setupFiles: ['test/support/branch-coverage.ts'],
          isolate: false,
        },
      },
      {
        extends: true,
        test: { name: 'connector-alone', include: threads, setupFiles: ['test/support/branch-coverage.ts'] },
      },
    ],
  },
});

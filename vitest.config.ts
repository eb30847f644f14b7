import { defineConfig } from 'vitest/config';

export default defineConfig({
  test: {
    include: [
      'src/**/*.test.ts',
      'src/**/*.fuzz.ts',
      'sim/**/*.test.ts',
      'bench/**/*.test.ts',
      'test/**/*.test.ts',
      'scripts/**/*.test.ts',
    ],
    // Native libraries keep process-wide state, and a crash in one must not take down other files: processes, not threads.
    pool: 'forks',
    // Limits find tests that hang. A machine that is busy with other work takes ten times as long as a quiet one.
    testTimeout: 300_000,
    hookTimeout: 300_000,
    // A poll waits for an event. The default of one second is too short on a busy machine.
    expect: { poll: { timeout: 60_000 } },
  },
});

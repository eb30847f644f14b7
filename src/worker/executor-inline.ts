import type { Runner } from '../runner/contract.ts';
import type { Executor } from './executor.ts';

/** One rank in this process: what the library and the tests use. */
export function inlineExecutor(runner: Runner): Executor {
  return {
    kvCacheSpec: runner.kvCacheSpec,
    execute: (plan) => runner.execute(plan),
    close: () => runner.close(),
  };
}

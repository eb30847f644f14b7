import { spawnSync } from 'node:child_process';
import { findNativeLibraries, GGML_VERSION, NATIVE_PACKAGE_VERSION } from '../../src/ggml/native-package.ts';
import { describeMachine } from './machine.ts';
import type { ResultsFile } from './results-file.ts';

/** A file without runs, dated today. */
export function emptyResults(commit: string, models: string): ResultsFile {
  return {
    date: new Date().toISOString().slice(0, 10),
    machine: describeMachine(),
    versions: {
      node: process.versions.node,
      ggml: GGML_VERSION,
      package: `${findNativeLibraries().packageName} ${NATIVE_PACKAGE_VERSION}`,
      cc: firstLineOf('cc', '--version'),
    },
    commit,
    models,
    runs: [],
  };
}

/** Results of uncommitted sources are marked, and `results.test.ts` refuses such files. */
export function currentCommit(): string {
  const commit = firstLineOf('git', 'rev-parse', '--short', 'HEAD');
  const changed = firstLineOf('git', 'status', '--porcelain', '--', 'src', 'bench', ':!bench/results');
  if (changed === '') return commit;
  console.error('warning: src or bench is not as it was committed, and the file will say so');
  return `${commit} and changes`;
}

function firstLineOf(command: string, ...args: string[]): string {
  const { stdout } = spawnSync(command, args, { encoding: 'utf8' });
  return typeof stdout === 'string' ? (stdout.split('\n')[0] ?? '') : 'none';
}

/**
 * A global setup of Vitest, before the first test of a whole engine: compiles the kernels of the bundled model. Later, each of several
 * processes would compile the same kernels.
 */
import { spawnSync } from 'node:child_process';
import { smallPool } from './cli-process.ts';

export default function compileKernels(): void {
  const args = ['dist/src/main.js', 'generate', '--prompt', 'Once', '--max-tokens', '1', ...smallPool];
  // If it fails, the tests say why.
  spawnSync(process.execPath, args, { env: { ...process.env, KVASIR_PREBUILT: 'off' } });
}

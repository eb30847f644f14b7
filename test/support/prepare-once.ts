/**
 * A global setup of Vitest, before the first test of a whole engine: builds the command, and compiles the kernels of the bundled model.
 * Later, each of several processes would compile the same kernels, and a test could start a command that another one is building.
 */
import { spawnSync } from 'node:child_process';
import { buildOnce } from './build-once.ts';
import { smallPool } from './cli-process.ts';

export default async function prepareOnce(): Promise<void> {
  await buildOnce(process.cwd());
  const args = ['dist/src/main.js', 'generate', '--prompt', 'Once', '--max-tokens', '1', ...smallPool];
  // If it fails, the tests say why.
  spawnSync(process.execPath, args, { env: { ...process.env, KVASIR_PREBUILT: 'off' } });
}

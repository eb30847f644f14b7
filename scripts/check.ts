/** `npm run check`: all checks that a commit must pass, fast ones first. Stops at the first failure. `--no-tests`: all but the tests. */
import { spawnSync } from 'node:child_process';
import { delimiter, resolve } from 'node:path';

const steps: readonly (readonly [name: string, command: string])[] = [
  ['format and lint', 'biome ci --error-on-warnings --reporter=summary .'],
  ['types', 'tsc -p tsconfig.json'],
  ['types without Node (kv, scheduler)', 'tsc -p tsconfig.pure.json'],
  ['types of the page', 'tsc -p tsconfig.page.json'],
  ['layers', 'node dist/scripts/layers.js'],
  ['tidy', 'node dist/scripts/tidy.js'],
  ['figures', 'node dist/scripts/figures.js'],
  ['coverage of the simulator', 'node dist/scripts/sim-coverage.js --floor'],
  ['tests', 'vitest run'],
];

const unknown = process.argv.slice(2).find((option) => option !== '--no-tests');
if (unknown !== undefined) {
  console.error(`unknown option ${unknown}: the only one is --no-tests`);
  process.exit(2);
}
const env = { ...process.env, PATH: `${resolve('node_modules/.bin')}${delimiter}${process.env.PATH}` };
const only = process.argv.includes('--no-tests') ? steps.slice(0, -1) : steps;
for (const [name, command] of only) {
  const started = performance.now();
  console.log(`\n== ${name}: ${command}`);
  const { status } = spawnSync(command, { stdio: 'inherit', shell: true, env });
  console.log(
    `== ${name}: ${status === 0 ? 'ok' : 'FAILED'} in ${((performance.now() - started) / 1000).toFixed(1)} s`,
  );
  if (status !== 0) process.exit(1);
}

/**
 * `npm run kernels [-- --target linux-x64,linux-arm64] [--for-package]` builds the kernels of `shipped-kernels.ts` for all
 * targets, into `prebuilt`. `--for-package` is for `prepack`: see `withoutZig`. npm would run a script of the name `prebuild`
 * before each build.
 */
import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { formatBytes } from '../src/base/bytes.ts';
import { shippedKernels } from '../src/runner/shipped-kernels.ts';
import { buildKernels } from './prebuild/build-kernels.ts';
import { targets } from './prebuild/targets.ts';
import { findZig, howToGetZig } from './prebuild/zig.ts';

const { values } = parseArgs({ options: { target: { type: 'string' }, 'for-package': { type: 'boolean' } } });
const folder = join(process.cwd(), 'prebuilt');
const wanted = values.target?.split(',') ?? targets.map(({ name }) => name);
const unknown = wanted.find((name) => !targets.some((target) => target.name === name));
const zig = findZig();

if (unknown !== undefined)
  fail(`There is no target ${unknown}. Targets: ${targets.map(({ name }) => name).join(', ')}.`, 2);
else if (zig === undefined) withoutZig();
else {
  let total = 0;
  for (const target of targets.filter(({ name }) => wanted.includes(name))) {
    const begin = performance.now();
    const cacheFolder = join(process.cwd(), '.cache', 'zig');
    const { libraries, bytes } = await buildKernels(target, shippedKernels(), { zig, folder, cacheFolder });
    const seconds = Math.round((performance.now() - begin) / 1000);
    console.log(`${target.name}: ${libraries} libraries, ${formatBytes(bytes)}, ${seconds} s`);
    total += bytes;
  }
  console.log(`prebuilt: ${formatBytes(total)}`);
}

/**
 * A package without kernels works at half the speed, so `npm pack` and `npm publish` fail unless the user wants such a package.
 * `npm install` of a repository runs `prepack` too: it succeeds, because its user cannot be expected to have Zig.
 */
function withoutZig(): void {
  const isWanted = process.env.KVASIR_PACK_WITHOUT_KERNELS === '1' || process.env.npm_command === 'install';
  if (values['for-package'] !== true) {
    fail(`There is no Zig. ${howToGetZig}`, 1);
    return;
  }
  if (!isWanted) {
    const otherwise = 'For a package without them, set KVASIR_PACK_WITHOUT_KERNELS=1.';
    fail(`The package would have no prebuilt kernels, because there is no Zig. ${howToGetZig} ${otherwise}`, 1);
    return;
  }
  // Libraries of another version would only fill the package.
  rmSync(folder, { recursive: true, force: true });
  console.error(`WARNING: the package has no prebuilt kernels, because there is no Zig. ${howToGetZig}`);
}

function fail(message: string, code: number): void {
  console.error(message);
  process.exitCode = code;
}

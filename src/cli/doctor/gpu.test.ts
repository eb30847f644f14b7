import { execFileSync } from 'node:child_process';
import { cpSync, mkdirSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { buildCommand } from '../../../test/support/cli-process.ts';
import { needs } from '../../../test/support/needs.ts';
import { temporaryFolder } from '../../../test/support/tiny-model.ts';
import type { GpuPackage, NativeLibraries } from '../../ggml/native-package.ts';
import { describeGpus, type GpuDeviceReport, type GpuReport } from './gpu.ts';

const folder = temporaryFolder();
afterAll(() => folder.remove());

const missing: GpuPackage = { name: '@x/cuda', installCommand: 'npm install @x/cuda@3.22.1', needs: 'CUDA 13' };
const installed: GpuPackage = { ...missing, version: '3.22.1', folder: '/x' };
const vulkan: GpuPackage = { ...installed, name: '@x/linux-x64-vulkan', needs: 'a driver' };
const device: GpuDeviceReport = {
  description: 'Vulkan0 (Card)',
  backend: 'Vulkan',
  driver: 'driver 7',
  freeBytes: 2 ** 30,
  totalBytes: 2 ** 31,
  isSoftware: false,
};
const none: GpuReport = { packages: [missing], devices: [], softwareDevices: [] };

describe('the report on GPUs', () => {
  it.each<[string, GpuReport, string[]]>([
    [
      'no package',
      none,
      [
        'none: no GPU package is installed. For a GPU, run one of: npm install @x/cuda@3.22.1 (with CUDA 13). Engines compute on the CPU',
      ],
    ],
    ['a platform without packages', { ...none, packages: [] }, ['none. Engines compute on the CPU']],
    [
      'a package of another version',
      { ...none, packages: [{ ...missing, version: '1.0.0' }] },
      [
        'none: @x/cuda 1.0.0 is not used, because another version is needed: npm install @x/cuda@3.22.1. Engines compute on the CPU',
      ],
    ],
    [
      'packages without a device, of which one lacks a library',
      { ...none, packages: [{ ...installed, loadError: 'libcudart.so.13: no such file' }, vulkan] },
      [
        'none: @x/cuda cannot be loaded (libcudart.so.13: no such file): it needs CUDA 13; @x/linux-x64-vulkan sees no device: it needs a driver. Engines compute on the CPU',
      ],
    ],
    [
      'only software, which ggml leaves out',
      { ...none, packages: [installed, vulkan], softwareDevices: ['llvmpipe'] },
      [
        'none: @x/cuda sees no device: it needs CUDA 13; @x/linux-x64-vulkan sees only software (llvmpipe), which is slower than the CPU backend: it needs a driver. Engines compute on the CPU',
      ],
    ],
    [
      'two devices, of which one is software',
      { ...none, devices: [{ ...device, isSoftware: true }, device] },
      [
        'Vulkan0 (Card), 1 GiB free of 2 GiB, driver 7. It is software: --device cpu is faster',
        'Vulkan0 (Card), 1 GiB free of 2 GiB, driver 7. Not used: engines use the first',
      ],
    ],
  ])('with %s', (_, report, lines) => expect(describeGpus(report)).toEqual(lines));
});

it(
  'a GPU package of another version is known and not loaded, and a backend for an older CUDA is found',
  needs(`${process.platform}-${process.arch}` === 'linux-x64', 'not Linux on x64'),
  async () => {
    await buildCommand();
    const name = '@node-llama-cpp/linux-x64-cuda-ext';
    const cpuPackage = join(dirname(createRequire(import.meta.url).resolve('@node-llama-cpp/linux-x64')), '..');
    const found = (version: string): { libraries: NativeLibraries; packages: readonly GpuPackage[] } => {
      const path = folder.file(`${version}/${name}`);
      mkdirSync(join(path, 'bins', 'linux-x64-cuda', 'fallback'), { recursive: true });
      cpSync(join(cpuPackage, 'dist'), join(path, 'dist'), { recursive: true });
      writeFileSync(
        join(path, 'package.json'),
        JSON.stringify({ name, version, type: 'module', main: 'dist/index.js' }),
      );
      const script = `import { findNativeLibraries, gpuPackages } from './dist/src/ggml/native-package.js';
        console.log(JSON.stringify({ libraries: findNativeLibraries(), packages: gpuPackages() }));`;
      const env = { ...process.env, NODE_PATH: folder.file(version) };
      return JSON.parse(
        execFileSync(process.execPath, ['--input-type=module', '-e', script], { env, encoding: 'utf8' }),
      );
    };
    const { libraries, packages } = found('1.0.0');
    expect(packages.find((one) => one.name === name)?.version).toBe('1.0.0');
    expect(libraries.backendFolders.filter((one) => one.includes('cuda'))).toEqual([]);
    expect(found('3.22.1').libraries.backendFolders.filter((one) => one.includes('cuda'))).toEqual([
      expect.stringMatching(/linux-x64-cuda-ext.bins.linux-x64-cuda.fallback$/),
    ]);
  },
);

import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { formatBytes } from '../../base/bytes.ts';
import { type FoundGpu, findGpus } from '../../ggml/device.ts';
import { loadNative, type NativeApi } from '../../ggml/ffi.ts';
import { driverOf, vulkanDevices } from '../../ggml/gpu-driver.ts';
import { type GpuPackage, gpuPackages, NATIVE_PACKAGE_VERSION } from '../../ggml/native-package.ts';

/** The GPUs of this machine, and what is missing to use one. */
export interface GpuReport {
  /** Of this platform, best first. Empty on a Mac, where Metal is in the package of the platform. */
  readonly packages: readonly GpuPackage[];
  /** Engines use the first. */
  readonly devices: readonly GpuDeviceReport[];
  /** Why backends of installed packages cannot be loaded, if ggml sees no GPU: `libggml-cuda.so: libcudart.so.13: cannot open ...`. */
  readonly loadErrors: readonly string[];
  /** Names of Vulkan's devices that are software, if ggml sees no GPU. */
  readonly softwareDevices: readonly string[];
}

export interface GpuDeviceReport {
  readonly description: string;
  readonly backend: string;
  /** With its version. */
  readonly driver: string;
  /** Absent if the driver does not say. */
  readonly freeBytes?: number;
  readonly totalBytes: number;
  /** Whether the driver computes on the CPU, as Mesa's llvmpipe does. */
  readonly isSoftware: boolean;
}

export async function reportGpus(): Promise<GpuReport> {
  const native = loadNative();
  const software = softwareNames();
  const devices = await Promise.all(findGpus(native).map((gpu) => deviceReport(gpu, software)));
  const found = devices.length > 0;
  return {
    packages: gpuPackages(),
    devices,
    loadErrors: found ? [] : loadErrors(native),
    softwareDevices: found ? [] : software,
  };
}

/** ggml does not say why it left a backend out. */
function loadErrors(native: NativeApi): string[] {
  return native.libraries.backendFolders.slice(1).flatMap((folder) => {
    const backends = readdirSync(folder).filter((name) => /ggml-(cuda|vulkan)\.(so|dll)$/.test(name));
    return backends.flatMap((name) => {
      try {
        native.functionIn(join(folder, name), 'ggml_backend_init', 'raw');
        return [];
      } catch (error) {
        return [`${name}: ${(error as Error).message.replace(/^Failed to load shared library: /, '').trim()}`];
      }
    });
  });
}

async function deviceReport(gpu: FoundGpu, software: readonly string[]): Promise<GpuDeviceReport> {
  const { description, freeBytes, totalBytes } = gpu.memory;
  return {
    description,
    backend: gpu.backendName,
    driver: await driverOf(gpu),
    ...(freeBytes === undefined ? {} : { freeBytes }),
    totalBytes,
    isSoftware: gpu.backendName === 'Vulkan' && software.includes(gpu.modelName),
  };
}

function softwareNames(): string[] {
  try {
    return vulkanDevices(loadNative()).flatMap(({ name, isSoftware }) => (isSoftware ? [name] : []));
  } catch {
    // There is no Vulkan.
    return [];
  }
}

/** For people: a line for each device, or one that says why there is none. */
export function describeGpus({ packages, devices, loadErrors: errors, softwareDevices }: GpuReport): string[] {
  if (devices.length > 0) return devices.map(describeDevice);
  const others = packages.filter(({ version }) => version !== undefined && version !== NATIVE_PACKAGE_VERSION);
  if (others.length > 0)
    return others.map(
      ({ name, version, installCommand }) =>
        `none: ${name} ${version} is of another version than Kvasir needs, so it is not used. Run: ${installCommand}`,
    );
  const installed = packages.filter(({ version }) => version !== undefined).map(({ name }) => name);
  if (errors.length > 0) return [`none: ${errors.join('; ')}. ${needsOfAll(packages)}. Engines compute on the CPU`];
  if (installed.length > 0) {
    const found =
      softwareDevices.length === 0
        ? 'sees no device'
        : `sees only software (${softwareDevices.join(', ')}), which is slower than the CPU backend`;
    return [`none: ${installed.join(' and ')} ${found}. A GPU needs its driver. Engines compute on the CPU`];
  }
  if (packages.length === 0) return ['none. Engines compute on the CPU'];
  return [`none: no GPU package is installed. ${needsOfAll(packages)}. Engines compute on the CPU`];
}

const needsOfAll = (packages: readonly GpuPackage[]): string =>
  `For a GPU, run one of: ${packages.map(({ installCommand, needs }) => `${installCommand} (with ${needs})`).join(', ')}`;

function describeDevice(device: GpuDeviceReport, index: number): string {
  const { description, freeBytes, totalBytes, driver, isSoftware } = device;
  const free = freeBytes === undefined ? '' : `${formatBytes(freeBytes)} free of `;
  const software = isSoftware ? '. It is software: --device cpu is faster' : '';
  const other = index === 0 ? '' : '. Not used: engines use the first';
  return `${description}, ${free}${formatBytes(totalBytes)}, ${driver}${software}${other}`;
}

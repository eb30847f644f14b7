import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { formatBytes } from '../../base/bytes.ts';
import { type FoundGpu, findGpus } from '../../ggml/device.ts';
import { loadNative, type NativeApi } from '../../ggml/ffi.ts';
import { driverOf, vulkanDevices } from '../../ggml/gpu-driver.ts';
import { type GpuPackage, gpuPackages } from '../../ggml/native-package.ts';

/** The GPUs of this machine, and what is missing to use one. */
export interface GpuReport {
  /** Of this platform, best first. Empty on a Mac, where Metal is in the package of the platform. */
  readonly packages: readonly GpuPackageReport[];
  /** Engines use the first. */
  readonly devices: readonly GpuDeviceReport[];
  /** Names of Vulkan's devices that are software, if ggml sees no GPU. */
  readonly softwareDevices: readonly string[];
}

export interface GpuPackageReport extends GpuPackage {
  /** If ggml sees no GPU: why the backend cannot be loaded, such as `libcudart.so.13: cannot open shared object file`. */
  readonly loadError?: string;
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
  const packages = gpuPackages().map((one): GpuPackageReport => {
    const loadError = found || one.folder === undefined ? undefined : loadErrorOf(native, one.folder);
    return loadError === undefined ? one : { ...one, loadError };
  });
  return { packages, devices, softwareDevices: found ? [] : software };
}

/** ggml does not say why it left a backend out. */
function loadErrorOf(native: NativeApi, folder: string): string | undefined {
  for (const name of readdirSync(folder).filter((file) => /ggml-(cuda|vulkan)\.(so|dll)$/.test(file))) {
    try {
      native.functionIn(join(folder, name), 'ggml_backend_init', 'raw');
    } catch (error) {
      return (error as Error).message.replace(/^Failed to load shared library: /, '').trim();
    }
  }
  return undefined;
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

/** Describes each device in a line. Without a device, one line says what is missing. */
export function describeGpus({ packages, devices, softwareDevices }: GpuReport): string[] {
  if (devices.length > 0) return devices.map(describeDevice);
  const problems = packages
    .filter(({ version }) => version !== undefined)
    .map((one) => problemOf(one, softwareDevices));
  if (problems.length > 0) return [`none: ${problems.join('; ')}. Engines compute on the CPU`];
  if (packages.length === 0) return ['none. Engines compute on the CPU'];
  const commands = packages.map(({ installCommand, needs }) => `${installCommand} (with ${needs})`);
  return [
    `none: no GPU package is installed. For a GPU, run one of: ${commands.join(', ')}. Engines compute on the CPU`,
  ];
}

function problemOf(
  { name, version, folder, loadError, installCommand, needs }: GpuPackageReport,
  software: readonly string[],
): string {
  if (folder === undefined)
    return `${name} ${version} is not used, because another version is needed: ${installCommand}`;
  if (loadError !== undefined) return `${name} cannot be loaded (${loadError}): it needs ${needs}`;
  return name.endsWith('-vulkan') && software.length > 0
    ? `${name} sees only software (${software.join(', ')}), which is slower than the CPU backend: it needs ${needs}`
    : `${name} sees no device: it needs ${needs}`;
}

function describeDevice(device: GpuDeviceReport, index: number): string {
  const { description, freeBytes, totalBytes, driver, isSoftware } = device;
  const free = freeBytes === undefined ? '' : `${formatBytes(freeBytes)} free of `;
  const software = isSoftware ? '. It is software: --device cpu is faster' : '';
  const other = index === 0 ? '' : '. Not used: engines use the first';
  return `${description}, ${free}${formatBytes(totalBytes)}, ${driver}${software}${other}`;
}

import { readFile } from 'node:fs/promises';
import { release } from 'node:os';
import { byName } from '../base/by-name.ts';
import type { ComputeDevice } from './device.ts';
import { type NativeApi, nullPtr, type RawPtr } from './ffi.ts';

/**
 * The driver of a GPU and its version. The driver compiles kernels, so it may decide bits. Metal and unknown drivers are parts of the
 * system, whose version they have.
 */
export async function driverOf({
  native,
  backendName,
  modelName,
}: Pick<ComputeDevice, 'native' | 'backendName' | 'modelName'>): Promise<string> {
  try {
    if (backendName === 'CUDA') return `NVIDIA ${await nvidiaVersion(native)}`;
    const device = backendName === 'Vulkan' && vulkanDevices(native).find(({ name }) => name === modelName);
    if (device) return device.driver;
  } catch {
    // A library or a file that this system does not have.
  }
  return `${process.platform} ${release()}`;
}

async function nvidiaVersion(native: NativeApi): Promise<string> {
  if (process.platform === 'linux') return (await readFile('/sys/module/nvidia/version', 'utf8')).trim();
  const version = new Int32Array(1);
  native.functionIn('nvcuda.dll', 'cuDriverGetVersion', 'i32', 'data')(version);
  return `${version[0]}`;
}

const vulkanLibraries: Readonly<Record<string, string>> = byName({
  linux: 'libvulkan.so.1',
  win32: 'vulkan-1.dll',
  darwin: 'libvulkan.1.dylib',
});

/** Offsets in `VkPhysicalDeviceProperties`, which is smaller than `bytes`. */
const properties = {
  driverVersion: 4,
  deviceType: 16,
  deviceName: 20,
  deviceNameBytes: 256,
  cacheUuid: 276,
  cacheUuidBytes: 16,
  bytes: 1024,
};

/** `VK_PHYSICAL_DEVICE_TYPE_CPU`. */
const typeOfSoftware = 4;

interface VulkanDevice {
  readonly name: string;
  /** Whether the driver computes on the CPU. ggml uses such a device only if `GGML_VK_VISIBLE_DEVICES` names it. */
  readonly isSoftware: boolean;
  /** The version, and the UUID that changes when the driver compiles other code. */
  readonly driver: string;
}

/** Those of all drivers of this machine. Throws if there is no Vulkan. */
export function vulkanDevices(native: NativeApi): VulkanDevice[] {
  const library = vulkanLibraries[process.platform] ?? '';
  // `VkInstanceCreateInfo` without extensions; its type has the number 1.
  const create = new Uint32Array(16);
  create[0] = 1;
  const instances = new BigUint64Array(1);
  const status = native.functionIn(
    library,
    'vkCreateInstance',
    'i32',
    'data',
    'raw',
    'data',
  )(create, nullPtr(), instances);
  if (status !== 0) throw new Error(`vkCreateInstance returned ${status}`);
  const instance = Number(instances[0]) as RawPtr;
  try {
    const enumerate = native.functionIn(library, 'vkEnumeratePhysicalDevices', 'i32', 'raw', 'data', 'data');
    const count = new Uint32Array(1);
    enumerate(instance, count, null);
    const devices = new BigUint64Array(count[0] ?? 0);
    enumerate(instance, count, devices);
    const read = native.functionIn(library, 'vkGetPhysicalDeviceProperties', 'void', 'raw', 'data');
    return Array.from(devices, (device) => {
      const found = Buffer.alloc(properties.bytes);
      read(Number(device) as RawPtr, found);
      const name = found.subarray(properties.deviceName, properties.deviceName + properties.deviceNameBytes);
      const uuid = found.subarray(properties.cacheUuid, properties.cacheUuid + properties.cacheUuidBytes);
      return {
        name: name.toString('utf8', 0, name.indexOf(0)).trim(),
        isSoftware: found.readUInt32LE(properties.deviceType) === typeOfSoftware,
        driver: `driver ${found.readUInt32LE(properties.driverVersion)} ${uuid.toString('hex')}`,
      };
    });
  } finally {
    native.functionIn(library, 'vkDestroyInstance', 'void', 'raw', 'raw')(instance, nullPtr());
  }
}

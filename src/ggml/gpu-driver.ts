import { readFile } from 'node:fs/promises';
import { release } from 'node:os';
import type { ComputeDevice } from './device.ts';
import { type NativeApi, nullPtr, type RawPtr } from './ffi.ts';

/**
 * The driver of a GPU and its version. The driver compiles kernels, so it may decide bits. Metal and unknown drivers are parts of the
 * system, whose version they have.
 */
export async function driverOf({ native, backendName, modelName }: ComputeDevice): Promise<string> {
  try {
    if (backendName === 'CUDA') return `NVIDIA ${await nvidiaVersion(native)}`;
    if (backendName === 'Vulkan') return vulkanDriver(native, modelName);
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

const vulkanLibraries: Readonly<Record<string, string>> = {
  linux: 'libvulkan.so.1',
  win32: 'vulkan-1.dll',
  darwin: 'libvulkan.1.dylib',
};

/** Offsets in `VkPhysicalDeviceProperties`, which is smaller than `bytes`. */
const properties = {
  driverVersion: 4,
  deviceName: 20,
  deviceNameBytes: 256,
  cacheUuid: 276,
  cacheUuidBytes: 16,
  bytes: 1024,
};

/** The version, and the UUID that changes when the driver compiles other code. */
function vulkanDriver(native: NativeApi, modelName: string): string {
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
    for (const device of devices) {
      const found = Buffer.alloc(properties.bytes);
      read(Number(device) as RawPtr, found);
      const name = found.subarray(properties.deviceName, properties.deviceName + properties.deviceNameBytes);
      if (name.toString('utf8', 0, name.indexOf(0)).trim() !== modelName) continue;
      const uuid = found.subarray(properties.cacheUuid, properties.cacheUuid + properties.cacheUuidBytes);
      return `driver ${found.readUInt32LE(properties.driverVersion)} ${uuid.toString('hex')}`;
    }
    throw new Error(`Vulkan has no device ${modelName}`);
  } finally {
    native.functionIn(library, 'vkDestroyInstance', 'void', 'raw', 'raw')(instance, nullPtr());
  }
}

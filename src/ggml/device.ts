import { availableParallelism } from 'node:os';
import { basename } from 'node:path';
import { assert, assertDefined } from '../base/assert.ts';
import { deviceUnavailable, outOfNativeMemory, tooManyThreads } from './errors.ts';
import {
  type BackendPtr,
  type BufferPtr,
  type BufferTypePtr,
  type ContextPtr,
  type DevicePtr,
  loadNative,
  type NativeApi,
  nullPtr,
  type RawPtr,
} from './ffi.ts';
import { fallbackFolder, gpuPackages } from './native-package.ts';
import { NativeThread } from './native-thread.ts';
import { I32 } from './types.ts';

/** ggml's `enum ggml_backend_dev_type`. */
const deviceTypes = ['cpu', 'gpu', 'igpu', 'accel', 'meta'] as const;

export type DeviceChoice = 'auto' | 'cpu' | 'gpu';

export interface DeviceOptions {
  /** `auto` uses a GPU if a GPU package is installed and finds one. */
  readonly device: DeviceChoice;
  /** CPU threads of a step. */
  readonly threads: number;
  /**
   * Whether attention must use ggml's one-row kernel for any number of rows. The default kernels (split KV for one row,
   * tiles from 64 rows) are faster. With them, the bits of a token's output depend on the other rows of the batch. A GPU then
   * computes each operation by itself: which operations it fuses depends on the number of rows too.
   */
  readonly exact: boolean;
  /** Is told of the pool of threads; default: nothing. */
  readonly barrier?: PoolWatcher | undefined;
}

/** Kvasir's barrier, which pools of threads use while they are watched. */
export interface PoolWatcher {
  /** Before the pool's first graph. */
  watch(pool: RawPtr): void;
  /** After the pool was freed. */
  unwatch(pool: RawPtr): void;
}

/** A type of buffer for weights, and whether Node can read it as memory. */
export interface BufferType {
  readonly pointer: BufferTypePtr;
  readonly name: string;
  readonly isHost: boolean;
}

/** The compute devices of the machine: always a CPU backend, and a GPU backend if one is used. */
export interface ComputeDevice {
  readonly native: NativeApi;
  readonly kind: 'cpu' | 'gpu';
  /** For people: `CPU (Intel Xeon ...)`. */
  readonly description: string;
  /** `CPU`, `CUDA`, `Vulkan`, ... */
  readonly backendName: string;
  /** Of the CPU or the GPU, as its maker calls it. */
  readonly modelName: string;
  readonly threads: number;
  /** The backend that computes. With a GPU, the CPU backend computes operations that the GPU does not support. */
  readonly main: BackendPtr;
  readonly cpu: BackendPtr;
  readonly mainDevice: DevicePtr;
  readonly cpuDevice: DevicePtr;
  readonly mainBuffers: BufferType;
  readonly cpuBuffers: BufferType;
  /** Buffers of ggml's repacked weights (`CPU_REPACK`); undefined if ggml has no kernels for them on this CPU. */
  readonly repackedBuffers: BufferType | undefined;
  /** The thread on which graphs compute; starts with the first call. */
  computeThread(): NativeThread;
  /** `DeviceOptions.exact` at the moment. */
  readonly isExact: boolean;
  /** Changes `DeviceOptions.exact`. On a CPU, only ggml's attention needs reference kernels, which disable ggml's fusions. */
  useExactKernels(isExact: boolean): void;
  close(): void;
}

/** The memory of a GPU, in bytes. */
export interface GpuMemory {
  /** For people: `Vulkan0 (NVIDIA ...)`. */
  readonly description: string;
  /** Undefined if the driver does not say. */
  readonly freeBytes: number | undefined;
  readonly totalBytes: number;
  /** Of one tensor in a buffer of its own, such as the KV pool. */
  readonly tensorBytesMax: number;
}

let backendsLoaded = false;

/**
 * The memory of the GPU that `openDevice` uses; undefined without a GPU. Without a GPU package, no backend is loaded. CUDA
 * makes a context in this process for it.
 */
export function findGpu(): GpuMemory | undefined {
  const native = loadNative();
  if (native.libraries.backendFolders.length === 1 && process.platform !== 'darwin') return undefined;
  return findGpus(native)[0]?.memory;
}

/** A GPU that ggml sees. */
export interface FoundGpu extends Pick<ComputeDevice, 'native' | 'backendName' | 'modelName'> {
  readonly memory: GpuMemory;
}

/** All GPUs. Engines use the first. */
export function findGpus(native: NativeApi): FoundGpu[] {
  loadBackends(native);
  return listDevices(native)
    .filter(isGpu)
    .map((gpu) => ({ native, ...namesOf(gpu), memory: gpuMemory(native, gpu.pointer) }));
}

/** The memory of a device that is open; undefined if it is a CPU. */
export const gpuMemoryOf = ({ kind, native, mainDevice }: ComputeDevice): GpuMemory | undefined =>
  kind === 'gpu' ? gpuMemory(native, mainDevice) : undefined;

/** What the driver says at the moment. */
function gpuMemory(native: NativeApi, device: DevicePtr): GpuMemory {
  const free = new BigUint64Array(1);
  const total = new BigUint64Array(1);
  native.ggml_backend_dev_memory(device, free, total);
  const buffers = native.ggml_backend_dev_buffer_type(device);
  const name = native.ggml_backend_dev_name(device);
  return {
    description: `${name} (${native.ggml_backend_dev_description(device).trim()})`,
    freeBytes: total[0] === 0n ? undefined : Number(free[0]),
    totalBytes: Number(total[0]),
    tensorBytesMax: tensorBytesMax(native, device, Number(native.ggml_backend_buft_get_max_size(buffers))),
  };
}

/**
 * A buffer may be larger than the largest tensor with which the device computes. ggml ends the process if a graph has a larger one. On
 * Mesa's software Vulkan, the limits are 1 GiB and 128 MiB.
 */
function tensorBytesMax(native: NativeApi, device: DevicePtr, bufferBytesMax: number): number {
  const computesWith = (bytes: number): boolean => {
    const context = native.ggml_init({ mem_size: 2 * native.ggml_tensor_overhead(), mem_buffer: 0, no_alloc: true });
    const tensor = native.ggml_new_tensor_1d(context, I32.id, Math.floor(bytes / I32.typeSize));
    const isSupported = native.ggml_backend_dev_supports_op(device, tensor);
    native.ggml_free(context);
    return isSupported;
  };
  let [most, tooLarge] = [0, Math.min(bufferBytesMax, 2 ** 48)];
  if (computesWith(tooLarge)) return tooLarge;
  while (tooLarge - most > I32.typeSize) {
    const middle = Math.floor((most + tooLarge) / 2);
    if (computesWith(middle)) most = middle;
    else tooLarge = middle;
  }
  return most;
}

/** Finds the devices and opens backends. Throws `deviceUnavailable` if `device` is `gpu` and there is none. */
export function openDevice(options: DeviceOptions): ComputeDevice {
  const native = loadNative();
  loadBackends(native);
  const devices = listDevices(native);
  const cpuDevice = assertDefined(
    devices.find((device) => device.type === 'cpu'),
    'ggml has no CPU backend',
  );
  const gpuDevice = options.device === 'cpu' ? undefined : devices.find(isGpu);
  if (options.device === 'gpu' && gpuDevice === undefined) {
    throw deviceUnavailable({
      device: 'gpu',
      found: [...new Set(devices.map(({ name }) => name))].join(', '),
      hint: `${howToGetGpu()} Or use --device cpu without --gpu-layers.`,
    });
  }
  const chosen = gpuDevice ?? cpuDevice;
  const threads = resolveThreads(options.threads);
  const cpu = openBackend(native, cpuDevice);
  const main = gpuDevice === undefined ? cpu : openBackend(native, gpuDevice, () => native.ggml_backend_free(cpu));
  const registry = native.ggml_backend_dev_backend_reg(cpuDevice.pointer);
  const cpuFunction = (name: string): RawPtr => native.ggml_backend_reg_get_proc_address(registry, name);
  native.functionAt(cpuFunction('ggml_backend_set_n_threads'), 'void', 'backend', 'i32')(cpu, threads);
  const setUseReference = native.functionAt(cpuFunction('ggml_backend_cpu_set_use_ref'), 'void', 'backend', 'bool');
  setUseReference(cpu, options.exact);
  const closeThreads = keepThreads(native, cpu, { ...options, threads }, cpuFunction);
  let computeThread: NativeThread | undefined;
  let isExact = options.exact;
  return {
    native,
    kind: gpuDevice === undefined ? 'cpu' : 'gpu',
    description: `${chosen.name} (${chosen.description.trim()})`,
    ...namesOf(chosen),
    threads,
    main,
    cpu,
    mainDevice: chosen.pointer,
    cpuDevice: cpuDevice.pointer,
    mainBuffers: bufferType(native, native.ggml_backend_dev_buffer_type(chosen.pointer)),
    cpuBuffers: bufferType(native, native.ggml_backend_dev_buffer_type(cpuDevice.pointer)),
    repackedBuffers: findRepackedBuffers(native, cpuDevice.pointer, cpuFunction('ggml_backend_dev_get_extra_bufts')),
    computeThread: () => (computeThread ??= new NativeThread(native, 'compute')),
    get isExact() {
      return isExact;
    },
    useExactKernels(wanted) {
      isExact = wanted;
      setUseReference(cpu, wanted);
    },
    close() {
      void computeThread?.close();
      if (main !== cpu) native.ggml_backend_free(main);
      native.ggml_backend_free(cpu);
      closeThreads();
    },
  };
}

function howToGetGpu(): string {
  const packages = gpuPackages();
  if (packages.some(({ folder }) => folder !== undefined))
    return "The GPU package is there: run kvasir doctor, which says what is missing, such as the GPU's driver or CUDA.";
  const commands = packages.map(({ installCommand, needs }) => `${installCommand} (with ${needs})`);
  return commands.length === 0
    ? 'No GPU package exists for this platform.'
    : `Install a GPU package: ${commands.join(', or ')}.`;
}

/** Opening a backend fails if its device has no free memory. `onFailure` closes backends that were opened before. */
function openBackend(native: NativeApi, { pointer, name }: ListedDevice, onFailure?: () => void): BackendPtr {
  const backend = native.ggml_backend_dev_init(pointer, nullPtr());
  if (backend !== 0) return backend;
  onFailure?.();
  const line = native.recentLog().at(-1);
  const said = line === undefined ? '' : `ggml says: ${line.replace(/\.$/, '')}. `;
  const hint = `${said}Free some memory, or use --device cpu.`;
  throw outOfNativeMemory({ amount: 'memory', purpose: 'a backend', device: name, hint });
}

/**
 * Gives the backend permanent threads. By default, ggml starts threads for every graph. The system often put two of
 * them on one core, where they wait for each other by spinning. This cost a sixth of a decode step. Between steps the
 * threads sleep, because polling takes time from other threads.
 */
function keepThreads(
  native: NativeApi,
  backend: BackendPtr,
  { threads, barrier }: DeviceOptions,
  cpuFunction: (name: string) => RawPtr,
): () => void {
  if (threads === 1 && barrier === undefined) return () => undefined;
  const params = new Int32Array(threadpoolParams.byteLength / 4);
  params[threadpoolParams.threads / 4] = threads;
  const pool = native.functionAt(cpuFunction('ggml_threadpool_new'), 'raw', 'data')(params);
  assert(pool !== 0, 'ggml could not start its threads');
  native.functionAt(cpuFunction('ggml_backend_cpu_set_threadpool'), 'void', 'backend', 'raw')(backend, pool);
  barrier?.watch(pool);
  return () => {
    native.functionAt(cpuFunction('ggml_threadpool_free'), 'void', 'raw')(pool);
    barrier?.unwatch(pool);
  };
}

/** `struct ggml_threadpool_params`: the mask of 512 cores (all zero: any), then five fields. */
const threadpoolParams = { threads: 512, byteLength: 528 } as const;

/** `GGML_MAX_N_THREADS`. */
const threadsMax = 512;

/** 0 = as many as the cores that the process may use. */
function resolveThreads(threads: number): number {
  if (threads > threadsMax) throw tooManyThreads({ threads, limit: threadsMax });
  return threads > 0 ? threads : Math.min(availableParallelism(), threadsMax);
}

/** Loads the backends in these folders for ggml and libllama; later calls in the process have no effect. */
export function loadBackends(native: NativeApi, folders = native.libraries.backendFolders): void {
  if (backendsLoaded) return;
  for (const folder of folders) {
    // The same backend for an older CUDA: a process must not have both.
    const isOlder = basename(folder) === fallbackFolder;
    if (!isOlder || !listDevices(native).some(isGpu)) native.ggml_backend_load_all_from_path(folder);
  }
  backendsLoaded = true;
}

type ListedDevice = ReturnType<typeof listDevices>[number];

const isGpu = ({ type }: ListedDevice): boolean => type === 'gpu' || type === 'igpu';

function listDevices(native: NativeApi) {
  return Array.from({ length: native.ggml_backend_dev_count() }, (_, index) => {
    const pointer = native.ggml_backend_dev_get(index);
    return {
      pointer,
      type: deviceTypes[native.ggml_backend_dev_type(pointer)],
      name: native.ggml_backend_dev_name(pointer),
      description: native.ggml_backend_dev_description(pointer),
    };
  });
}

/** ggml numbers the devices of a backend. */
const namesOf = ({ name, description }: ListedDevice): Pick<ComputeDevice, 'backendName' | 'modelName'> => ({
  backendName: name.replace(/\d+$/, ''),
  modelName: description.trim(),
});

function bufferType(native: NativeApi, pointer: BufferTypePtr): BufferType {
  return { pointer, name: native.ggml_backend_buft_name(pointer), isHost: native.ggml_backend_buft_is_host(pointer) };
}

/** `ggml_backend_dev_get_extra_bufts` returns a NULL-terminated array. */
function findRepackedBuffers(native: NativeApi, device: DevicePtr, getExtraBufts: RawPtr): BufferType | undefined {
  const list = native.functionAt(getExtraBufts, 'raw', 'device')(device);
  if (list === 0) return undefined;
  for (let index = 0; ; index++) {
    const pointer = Number(new DataView(native.memoryAt(list + index * 8, 8)).getBigUint64(0, true));
    if (pointer === 0) return undefined;
    const found = bufferType(native, pointer as BufferTypePtr);
    if (found.name === 'CPU_REPACK') return found;
  }
}

/** Allocates every tensor of a context in one buffer. Throws `outOfNativeMemory`. */
export function allocateTensors(
  device: ComputeDevice,
  context: ContextPtr,
  type: BufferType,
  { purpose, bytes }: { readonly purpose: string; readonly bytes: number },
): BufferPtr {
  const buffer = device.native.ggml_backend_alloc_ctx_tensors_from_buft(context, type.pointer);
  if (buffer === 0) {
    const isOnGpu = device.kind === 'gpu' && type === device.mainBuffers;
    throw outOfNativeMemory({
      amount: `${bytes} bytes`,
      purpose,
      device: type.name,
      hint: `Use a smaller model, ${isOnGpu ? 'fewer --gpu-layers, ' : ''}a smaller --kv-cache-memory or a smaller --max-model-len.`,
    });
  }
  return buffer;
}

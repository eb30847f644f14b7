import type { ComputeDevice } from './device.ts';
import type { NativeApi } from './ffi.ts';

/**
 * The instructions for which ggml's chosen CPU backend was built: `SSE3=1 AVX2=1 REPACK=1 ...`. ggml returns an array
 * of pairs of strings, which ends with NULL.
 */
export function backendFeatures({ native, cpuDevice }: ComputeDevice): string {
  const registry = native.ggml_backend_dev_backend_reg(cpuDevice);
  const pointer = native.ggml_backend_reg_get_proc_address(registry, 'ggml_backend_get_features');
  if (pointer === 0) return 'unknown features';
  const list = native.functionAt(pointer, 'raw', 'registry')(registry);
  const features: string[] = [];
  for (let at: number = list; ; at += 16) {
    const pair = new BigUint64Array(native.memoryAt(at, 16));
    const [name, value] = [Number(pair[0]), Number(pair[1])];
    if (name === 0) return features.join(' ');
    features.push(`${textAt(native, name)}=${textAt(native, value)}`);
  }
}

/** Reads byte after byte, because memory after the terminating zero may not be readable. */
function textAt(native: NativeApi, pointer: number): string {
  const bytes: number[] = [];
  for (let at = pointer; ; at++) {
    const byte = new Uint8Array(native.memoryAt(at, 1))[0] ?? 0;
    if (byte === 0) return String.fromCharCode(...bytes);
    bytes.push(byte);
  }
}

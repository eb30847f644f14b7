import type { ComputeDevice } from './device.ts';
import type { NativeApi } from './ffi.ts';

/**
 * For which instructions the CPU backend that ggml has chosen was built, in words: `SSE3=1 AVX2=1 REPACK=1 ...`. ggml answers
 * an array of pairs of strings that a NULL ends.
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

/** Byte after byte: nothing behind its end is looked at. */
function textAt(native: NativeApi, pointer: number): string {
  const bytes: number[] = [];
  for (let at = pointer; ; at++) {
    const byte = new Uint8Array(native.memoryAt(at, 1))[0] ?? 0;
    if (byte === 0) return String.fromCharCode(...bytes);
    bytes.push(byte);
  }
}

import { F16 } from '../../src/ggml/types.ts';
import type { CpuLevelName } from '../../src/native/cpu-level.ts';
import { attentionSource } from '../../src/runner/attention/attention-kernel.ts';
import { type ShippedKernel, shippedKernels } from '../../src/runner/shipped-kernels.ts';

const others = [
  ...['matmul Q8_0', 'sampling', 'barrier of compute threads'],
  ...['activations and softmax', 'RoPE', 'checksums'],
];

/** The kernels of the bundled model, each at the first of its levels that a machine takes. */
export function bundledKernels(taken: ReadonlySet<CpuLevelName>): ShippedKernel[] {
  const { file, definitions } = attentionSource({ headDim: 64, group: 2, kvType: F16 });
  return shippedKernels()
    .filter(({ name, source }) =>
      source.file === file
        ? Object.entries(definitions).every(([key, value]) => source.definitions[key] === value)
        : others.includes(name),
    )
    .map((kernel) => ({ ...kernel, levels: kernel.levels.filter((level) => taken.has(level)).slice(0, 1) }));
}

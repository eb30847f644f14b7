import { barrierSource } from '../native/barrier.ts';
import type { NativeSource } from '../native/compiler.ts';
import type { CpuLevelName } from '../native/cpu-level.ts';
import { crc32Source } from '../native/crc32.ts';
import { cpuIdSource } from '../native/prebuilt.ts';
import { attentionSource } from './attention/attention-kernel.ts';
import { publishedShapes } from './attention/published-shapes.ts';
import { rowMatmulSource } from './matmul/row-matmul.ts';
import { tileSources } from './matmul/tile-kernels.ts';
import { weightedSumSource } from './matmul/weighted-sum.ts';
import { convolutionOf, deltaNetOf, scanOf } from './mixer/mixer-kernels.ts';
import { rotateHeadsSource } from './operations/head-rotation.ts';
import { rowOperationsSource } from './operations/row-operations.ts';
import { logitsSource } from './sampling/logits-passes.ts';

/** A kernel that is built before it is shipped (`npm run kernels`). */
export interface ShippedKernel {
  /** For people. */
  readonly name: string;
  readonly source: NativeSource;
  /** The levels at which the source has another form than below. */
  readonly levels: readonly CpuLevelName[];
  /** Calls the system's C library: for Linux with glibc. The functions of other kernels are in every process. */
  readonly needsLibc?: boolean;
}

/** Forms by the width of vectors (`vector.h`). */
const byWidth = ['avx512', 'avx2', 'neon'] as const;
/** Forms of `dot.h`. */
const byDot = ['avx512-vnni', 'avx-vnni', 'avx2', 'neon-dotprod'] as const;
/** Forms of quantized weights: `row-pairs.h` too. */
const byDotAndPairs = [...byDot, 'neon-i8mm'] as const;

/** All kernels that are shipped. */
export const shippedKernels = (): ShippedKernel[] =>
  [
    ...publishedShapes.map((shape) => ({
      name: `attention, heads of ${shape.headDim}, ${shape.group} per KV head, KV in ${shape.kvType.name.toLowerCase()}`,
      source: attentionSource(shape),
      levels: byWidth,
    })),
    ...tileSources().map(([type, source]) => ({
      name: `matmul ${type}`,
      source,
      levels: type.endsWith('F16') ? byDot : byDotAndPairs,
    })),
    { name: 'matmul Q4_K, single rows', source: rowMatmulSource, levels: ['avx2'] as const },
    { name: 'sums of experts', source: weightedSumSource, levels: byWidth },
    ...[3, 4].map((taps) => ({
      name: `convolutions of ${taps} taps`,
      source: convolutionOf(taps),
      levels: byWidth,
    })),
    { name: 'scans, heads of 64, states of 128', source: scanOf(64, 128), levels: byWidth },
    { name: 'delta nets, heads of 128', source: deltaNetOf(128), levels: byWidth },
    { name: 'activations and softmax', source: rowOperationsSource, levels: byWidth },
    { name: 'RoPE', source: rotateHeadsSource, levels: byWidth },
    { name: 'sampling', source: logitsSource, levels: byWidth },
    { name: 'checksums', source: crc32Source, levels: ['avx512-vpclmulqdq', 'avx2'] as const },
    { name: 'barrier of compute threads', source: barrierSource, levels: ['avx2', 'neon'] as const, needsLibc: true },
    { name: 'CPU features', source: cpuIdSource, levels: ['x86-64', 'neon'] as const },
  ].map((kernel) => ({ ...kernel, levels: [...kernel.levels] }));

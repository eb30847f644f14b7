/**
 * Facts about the GPU of this machine, for `tools/gpu/run.sh`:
 *
 *   node dist/scripts/gpu/gpu-facts.js probe [TYPE ...]   for each type of weights, the padding with which ggml's matmuls keep the bits of a row
 *   node dist/scripts/gpu/gpu-facts.js copies             GB/s between the memory of the host and of the GPU, by the size of a copy
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { writeTinyModel } from '../../bench/make-model/model-maker.ts';
import { allocateTensors, type ComputeDevice, openDevice } from '../../src/ggml/device.ts';
import { readGguf } from '../../src/ggml/gguf.ts';
import { readModelConfig } from '../../src/ggml/model-config.ts';
import { I32, type WeightTypeName, weightTypeNames } from '../../src/ggml/types.ts';
import { wholeModel } from '../../src/runner/contract.ts';
import { type ExactKernels, findExactRowRule } from '../../src/runner/matmul/exact-row-rule.ts';
import { loadWeights } from '../../src/runner/weights.ts';

const rowsMax = 512;
/** As wide as small real models, so that kernels have tiles as large as with these. */
const shape = { layers: 1, embedding: 1024, heads: 8, headsKv: 8, feedForward: 3072 } as const;

const [what, ...names] = process.argv.slice(2);
const types = weightTypeNames.filter((type) => names.length === 0 || names.includes(type));
if (what === 'probe') await withGpu(probe);
else if (what === 'copies') await withGpu(copies);
else {
  console.error('usage: gpu-facts probe [TYPE ...] | copies');
  process.exitCode = 2;
}

async function withGpu(run: (device: ComputeDevice) => void | Promise<void>): Promise<void> {
  const device = openDevice({ device: 'gpu', threads: 1, exact: true });
  try {
    console.log(device.description);
    await run(device);
  } finally {
    device.close();
  }
}

async function probe(device: ComputeDevice): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), 'kvasir-gpu-'));
  try {
    for (const type of types) console.log(`${type}: ${await ruleOf(device, type, join(folder, type))}`);
  } finally {
    rmSync(folder, { recursive: true });
  }
}

async function ruleOf(device: ComputeDevice, type: WeightTypeName, path: string): Promise<string> {
  // MXFP4 is a type of experts, whose tokens have a probe of their own.
  if (type === 'MXFP4') return 'only experts have it';
  await writeTinyModel(path, { architecture: 'llama', type, ...shape });
  const file = await readGguf(path);
  const weights = await loadWeights(device, file, readModelConfig(file), {
    stage: wholeModel(shape.layers),
    repack: false,
  });
  try {
    return describe(await findExactRowRule({ device, file, rowsMax }, weights.matrices));
  } catch (error) {
    return (error as Error).message;
  } finally {
    weights.close();
  }
}

/** The smallest padding, as the rows that batches of 1 to 17 rows have then. */
function describe({ rule, byRow }: ExactKernels): string {
  if (byRow !== undefined) return `row by row (${byRow.size} matrices)`;
  const padded = [1, 2, 3, 5, 9, 17].filter((rows) => rule(rows) !== rows).map((rows) => `${rows} -> ${rule(rows)}`);
  return padded.length === 0 ? 'the same bits in any batch' : `the same bits with padding: rows ${padded.join(', ')}`;
}

function copies(device: ComputeDevice): void {
  const { native, mainBuffers } = device;
  const bytes = 256 << 20;
  const context = native.ggml_init({ mem_size: 4096, mem_buffer: 0, no_alloc: true });
  const tensor = native.ggml_new_tensor_1d(context, I32.id, bytes / I32.typeSize);
  const buffer = allocateTensors(device, context, mainBuffers, { purpose: 'copies', bytes });
  const host = new Uint8Array(bytes).fill(7);
  for (const size of [64 << 10, 1 << 20, 16 << 20, bytes]) {
    const part = host.subarray(0, size);
    const rates = (['to', 'from'] as const).map((direction) => {
      const copy = (offset: number): void => {
        if (direction === 'to') native.ggml_backend_tensor_set(tensor, part, offset, size);
        else native.ggml_backend_tensor_get(tensor, part, offset, size);
      };
      copy(0);
      const times = Array.from({ length: 5 }, () => {
        const startedMs = performance.now();
        for (let offset = 0; offset < bytes; offset += size) copy(offset);
        return performance.now() - startedMs;
      }).sort((a, b) => a - b);
      return `${direction} the GPU ${(bytes / times[2]! / 1e6).toFixed(1)} GB/s`;
    });
    console.log(`copies of ${size / 1024} KiB: ${rates.join(', ')}`);
  }
  native.ggml_backend_buffer_free(buffer);
  native.ggml_free(context);
}

import { assert } from '../../base/assert.ts';
import type { ComputeDevice } from '../../ggml/device.ts';
import { KvMemory } from '../kv-memory.ts';
import { fillRandomKv, randomFloats } from '../random-values.ts';
import { GatherAttention } from './attention-gather.ts';
import type { AttentionKernel } from './attention-kernel.ts';
import { NativeAttention } from './attention-native.ts';
import { attendOnce, firstOfHeads, probeBatch } from './probe.ts';

/**
 * Tests a kernel on random KV of the model's shape. The kernel must equal ggml over gathered blocks, and rows of a
 * prompt must have the same bits as each row alone. Returns the mistake, or undefined.
 */
export function selfTest(
  device: ComputeDevice,
  kernel: AttentionKernel,
  headCountKv: number,
): 'differs from ggml' | 'is not exact' | undefined {
  const { headDim, group, blockSize, kvType, valueInKey } = kernel.shape;
  const heads = headCountKv * group;
  const length = 700;
  const blockCount = Math.ceil(length / blockSize) + 2;
  const layout = { type: kvType, layerCount: 1, blockSize, headCountKv, headDim, valueInKey };
  const memory = new KvMemory(device, layout, blockCount);
  try {
    fillRandomKv(new Uint8Array(device.native.memoryAt(memory.baseAddress, blockCount * memory.blockBytes)), kvType, 1);
    const blocks = Int32Array.from({ length: blockCount - 1 }, (_, i) => blockCount - 1 - i);
    const native = new NativeAttention(device, memory, kernel);
    const gather = new GatherAttention(memory, heads, { kvMultiple: 1 });
    const values = randomFloats(40 * heads * headDim, 2);
    const prompt = probeBatch([{ spans: [[length - 40, length]], blocks }], memory);
    const together = attendOnce(device, native, prompt, { values, headDim, heads });
    const expected = attendOnce(device, gather, prompt, { values, headDim, heads });
    // ggml sums in F16. Each result is a weighted average of 700 numbers in [-1, 1].
    const ours = firstOfHeads(together, headDim, valueInKey);
    assert(ours.length === expected.length, 'both compute as many values');
    if (!expected.every((value, i) => Math.abs(value - ours[i]!) < 0.01)) return 'differs from ggml';
    for (const row of [0, 17, 39]) {
      const position = length - 40 + row;
      const alone = probeBatch([{ spans: [[position, position + 1]], blocks }], memory);
      const start = row * heads * headDim;
      const part = values.subarray(start, start + heads * headDim);
      const result = attendOnce(device, native, alone, { values: part, headDim, heads });
      if (!result.every((value, i) => Object.is(value, together[start + i]))) return 'is not exact';
    }
    return undefined;
  } finally {
    memory.close();
  }
}

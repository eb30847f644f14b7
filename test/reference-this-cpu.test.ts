/**
 * Compares our default kernels with libllama as it runs on this CPU. There, ggml chooses the build, repacks weights, and uses AMX if
 * the CPU has it. `reference.test.ts` is the strict comparison. This one shows that the runner works with every build of ggml.
 */
import { afterAll, describe, it } from 'vitest';
import { compareWithLibllama } from './support/compare-with-libllama.ts';
import { computeHere } from './support/compute-here.ts';
import { temporaryFolder, writeTinyModel } from './support/tiny-model.ts';

computeHere();
const folder = temporaryFolder();
afterAll(() => folder.remove());

/**
 * Two sources of difference add up. Our kernels and libllama's on the same build differ by up to 0.17 standard deviations of
 * a row. libllama with AMX and FP16 sums differs by up to 0.1 from libllama without. A graph that is wrong (a rotation, a
 * scale, a mask, a swapped matrix) differs by more than 1.
 */
const onThisCpu = { microBatch: 256, tolerance: 0.35, nearTie: 0.3, options: {} };

describe('libllama with the kernels for this CPU', () => {
  // With AMX, libllama multiplies Q8_0, Q4_K and Q6_K in other buffers, and it sums F16 products in F16.
  it.each(['F32', 'F16', 'Q8_0', 'Q4_0', 'Q4_K_M'] as const)(
    'has nearly the same logits and the same greedy tokens with %s weights',
    async (type) => {
      const path = folder.file(`llama-${type}.gguf`);
      await writeTinyModel(path, { architecture: 'llama', type });
      await compareWithLibllama(path, onThisCpu);
    },
  );

  it('has nearly the same logits and the same greedy tokens with the bundled model', async () => {
    await compareWithLibllama('models/kvasir-demo.gguf', onThisCpu);
  });
});

import { openDevice } from '../../src/ggml/device.ts';
import { isLongForm } from './long-form.ts';
import { needs } from './needs.ts';

interface TestGpu {
  readonly description: string;
  /** The reason, if tests have no GPU. */
  readonly missing: string | undefined;
}

let found: TestGpu | undefined;

/** The GPU that tests use. It is opened in processes that ask for it. */
export function testGpu(): TestGpu {
  found ??= find();
  return found;
}

function find(): TestGpu {
  try {
    const device = openDevice({ device: 'gpu', threads: 1, exact: true });
    device.close();
    return { description: device.description, missing: undefined };
  } catch (error) {
    return { description: '', missing: `no GPU: ${(error as Error).message}` };
  }
}

/** Options of a suite whose tests need a GPU. */
export function needsGpu() {
  const { missing } = testGpu();
  return needs(missing === undefined, missing ?? '');
}

/** Whether tests run all combinations of their tables: in the long form, and on a real GPU. Software Vulkan is slow. */
export const isLongOnGpu = (): boolean => isLongForm || !/llvmpipe|swiftshader/i.test(testGpu().description);

/** Options of an engine with the demo model on the GPU. */
export const demoOnGpu = () =>
  ({
    model: 'models/kvasir-demo.gguf',
    device: 'gpu',
    numerics: 'exact',
    threads: 1,
    maxModelLen: 128,
    maxNumBatchedTokens: rowsOnGpu(),
  }) as const;

/** The largest step. Software Vulkan compiles a kernel for each number of rows, and slow ones for more than eight. */
export const rowsOnGpu = (): number => (isLongOnGpu() ? 256 : 3);

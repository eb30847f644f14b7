// For `node --import`: ggml computes with the build of its CPU kernels that KVASIR_TEST_GGML_BUILD names, also if ggml would choose another
// build for this CPU. ggml itself refuses a build that has instructions which the CPU lacks, although no operation of Kvasir needs them.
import { dirname, join } from 'node:path';
import { isMainThread } from 'node:worker_threads';

// ggml's registry is of the process.
if (isMainThread) {
  const from = (path) => import(`file://${process.env.KVASIR_DIST}/ggml/${path}`);
  const [{ loadNative }, { loadBackends }] = await Promise.all([from('ffi.js'), from('device.js')]);
  const native = loadNative();
  loadBackends(native, []);
  const path = join(dirname(native.libraries.base), `libggml-cpu-${process.env.KVASIR_TEST_GGML_BUILD}.so`);
  const registry = native.functionIn(path, 'ggml_backend_init', 'raw')();
  native.functionIn(native.libraries.ggml, 'ggml_backend_register', 'void', 'raw')(registry);
}

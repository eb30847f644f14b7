// Runs in a process of its own (engine-of-build.ts): computes with the build of ggml's CPU kernels that `ggml-build.js` has loaded.
import { basename } from 'node:path';

const [store, ...models] = process.argv.slice(1);
const from = (path) => import(`file://${process.env.KVASIR_DIST}/${path}`);
const { openDevice } = await from('ggml/device.js');
const { operationBits } = await from('runner/operation-bits.js');
const { createEngine } = await from('compose.js');

const device = openDevice({ device: 'cpu', threads: 1, exact: true });
const operations = operationBits(device);
device.close();

const answers = {};
const loaded = {};
for (const model of models) {
  const engine = await createEngine({
    model,
    // Threads wait for each other in loops, which takes many times as long on a busy machine and in QEMU.
    threads: 1,
    device: 'cpu',
    kvCacheMemory: 8 << 20,
    maxModelLen: 512,
    stateCheckpointTokens: 64,
    maxNumBatchedTokens: 48,
    kvTransferConfig: {
      kv_connector: 'SharedStorageConnector',
      kv_role: 'kv_both',
      kv_connector_extra_config: { shared_storage_path: store, lookup_timeout_seconds: 60 },
    },
  });
  const completions = [0, 1].map(async (i) => {
    const prompt = Array.from({ length: 200 + i }, (_, at) => 3 + ((at * 37 + i * 11) % 200));
    const params = { maxTokens: 12, temperature: i * 0.8, seed: i, ignoreEos: true, logprobs: 3 };
    const deltas = [];
    for await (const { tokenIds, logprobs } of engine.generate({ prompt, params })) deltas.push([tokenIds, logprobs]);
    return deltas;
  });
  answers[basename(model)] = JSON.stringify(await Promise.all(completions));
  loaded[basename(model)] = engine.stats().cachedTokens;
  await engine.close();
}
// Sockets and threads of the engine must not keep the process.
process.stdout.write(JSON.stringify({ operations, answers, loaded }), () => process.exit(0));

import { takeFaults } from '../../connector/fault/faulty-connector.ts';
import { readOffloadingSettings } from '../../connector/offloading/offloading-settings.ts';
import { readGguf, weightBytesOf } from '../../ggml/gguf.ts';
import { modelFile } from '../../hub/model-file.ts';
import type { ServeFlags } from '../serve.ts';
import { ModelSize } from '../size/memory-needs.ts';

const GIB = 1024 ** 3;
/** Without --kv-cache-memory, a pool has at most this part of the limit, unless one request needs more. */
const POOL_PARTS = 8;

/**
 * The memory that counts for a model: weights, KV pool, host tier, draft model, and an estimate of the rest. Also the size of its pool, which
 * would depend on the free memory in a server with one model.
 */
export async function needsOfModel(
  path: string,
  flags: ServeFlags,
  limitBytes: number,
): Promise<{ readonly bytes: number; readonly kvCacheMemory: number }> {
  const size = new ModelSize(await readGguf(path), flags);
  const { weightBytes, processBytes, maxModelLen, maxNumSeqs } = size.needs;
  const largest = Math.min(4 * GIB, limitBytes / POOL_PARTS, size.pool(maxNumSeqs, maxModelLen).bytes);
  const kvCacheMemory = flags.kvCacheMemory ?? Math.floor(Math.max(size.pool(1, maxModelLen).bytes, largest));
  const bytes = weightBytes + processBytes + kvCacheMemory + hostBytesOf(flags) + (await draftBytesOf(flags));
  return { bytes, kvCacheMemory };
}

function hostBytesOf({ kvTransferConfig }: ServeFlags): number {
  if (kvTransferConfig?.kvConnector !== 'OffloadingConnector') return 0;
  return readOffloadingSettings(takeFaults(kvTransferConfig).config).host.maxBytes;
}

async function draftBytesOf({ speculativeConfig }: ServeFlags): Promise<number> {
  if (speculativeConfig === undefined || !('model' in speculativeConfig)) return 0;
  return weightBytesOf(await readGguf(await modelFile(speculativeConfig.model)));
}

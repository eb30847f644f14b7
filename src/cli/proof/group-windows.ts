import { readGguf } from '../../ggml/gguf.ts';
import { readModelConfig } from '../../ggml/model-config.ts';
import { F16 } from '../../ggml/types.ts';
import { layerGroups } from '../../runner/kv-groups.ts';
import { statesUnsupported } from './errors.ts';
import type { GroupWindows } from './needed-tokens.ts';

/** The KV groups of a model, for the reference. @throws KvasirError `statesUnsupported`. */
export async function readGroupWindows(model: string, blockSize: number): Promise<GroupWindows> {
  const config = readModelConfig(await readGguf(model));
  if (config.states !== undefined) throw statesUnsupported({ model });
  const groups = layerGroups(config, { blockSize, kvType: F16 });
  return groups.map(({ window }) => window ?? Number.POSITIVE_INFINITY);
}

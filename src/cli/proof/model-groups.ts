import { readGguf } from '../../ggml/gguf.ts';
import { readModelConfig } from '../../ggml/model-config.ts';
import { F16 } from '../../ggml/types.ts';
import { layerGroups } from '../../runner/kv-groups.ts';
import type { ReferenceGroup } from './needed-tokens.ts';

/** The KV groups of a model, for the reference. */
export async function readModelGroups(model: string, blockSize: number): Promise<readonly ReferenceGroup[]> {
  const config = readModelConfig(await readGguf(model));
  return layerGroups(config, { blockSize, kvType: F16 }).map(({ kind, window, ...group }) => ({
    kind,
    window,
    blockSize: group.blockSize,
  }));
}

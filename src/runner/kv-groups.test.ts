import { describe, expect, it } from 'vitest';
import { tokenCount } from '../core/ids.ts';
import type { SlidingWindow } from '../ggml/sliding-window.ts';
import { F16 } from '../ggml/types.ts';
import { pipelineStage, wholeModel } from './contract.ts';
import { groupSpecs, kvLayout, layerGroups, layersKv } from './kv-groups.ts';

/** A model whose every `pattern`-th layer has full attention. */
function model(layerCount: number, pattern: number) {
  const layers = Array.from({ length: layerCount }, (_, layer) => layer).filter((l) => l % pattern < pattern - 1);
  const slidingWindow = { window: 512, layers } as unknown as SlidingWindow;
  return { layerCount, headCountKv: 1, headDim: 256, ...(layers.length === 0 ? {} : { slidingWindow }) };
}
const layerCountsOf = (layerCount: number, pattern: number): number[] =>
  layerGroups(model(layerCount, pattern)).map(({ layers }) => layers.length);

describe('the KV groups of a model', () => {
  it('are one group if all layers read the same tokens', () => {
    expect(layerGroups(model(3, 1))).toEqual([{ window: undefined, layers: [0, 1, 2] }]);
    expect(layerGroups(model(3, 9))).toEqual([{ window: 512, layers: [0, 1, 2] }]);
  });

  it('have as many layers as the rarer kind: the shapes of Gemma 3', () => {
    expect(layerCountsOf(18, 6)).toEqual([3, 3, 3, 3, 3, 3]);
    expect(layerCountsOf(26, 6)).toEqual([4, 4, 4, 4, 4, 3, 3]);
    expect(layerCountsOf(34, 6)).toEqual([5, 5, 5, 5, 5, 5, 4]);
    expect(layerCountsOf(62, 6)).toEqual([10, 9, 9, 9, 9, 8, 8]);
  });

  it('are two if both kinds of layers are nearly equally frequent', () => {
    expect(layerCountsOf(24, 2)).toEqual([12, 12]);
    expect(layerCountsOf(9, 2)).toEqual([4, 3, 2]);
    expect(layerCountsOf(11, 2)).toEqual([5, 6]);
  });

  it('have neighbouring layers in different groups, so that stages have layers of each group', () => {
    expect(layerGroups(model(8, 4))).toEqual([
      { window: undefined, layers: [3, 7] },
      { window: 512, layers: [0, 4] },
      { window: 512, layers: [1, 5] },
      { window: 512, layers: [2, 6] },
    ]);
    const halves = [0, 1].map((rank) => groupSpecs(model(8, 4), pipelineStage(rank, 2, 8), tokenCount(16)));
    expect(halves.map((groups) => groups.map(({ layers }) => layers))).toEqual([
      [[3], [0], [1], [2]],
      [[7], [4], [5], [6]],
    ]);
  });

  it('have a place for each layer of a stage in a block', () => {
    const [first, second] = [0, 1].map((rank) => pipelineStage(rank, 2, 5));
    const config = model(5, 2);
    expect(layersKv(config, wholeModel(5)).map(({ group, place }) => [group, place])).toEqual([
      [1, 0],
      [0, 0],
      [2, 0],
      [0, 1],
      [1, 1],
    ]);
    expect(layersKv(config, second!)).toEqual([
      { group: 0, place: 0, window: undefined },
      { group: 1, place: 0, window: 512 },
    ]);
    const shape = { blockSize: 16, kvType: F16 };
    expect(kvLayout(config, wholeModel(5), shape).layerCount).toBe(2);
    expect(kvLayout(config, first!, shape).layerCount).toBe(1);
    expect(groupSpecs(config, second!, tokenCount(16)).map(({ kind, layers }) => [kind, ...layers])).toEqual([
      ['full', 3],
      ['window', 4],
      ['window'],
    ]);
  });
});

import { describe, expect, it } from 'vitest';
import type { HeadShape } from '../ggml/layer-shapes.ts';
import type { ModelConfig } from '../ggml/model-config.ts';
import type { SlidingWindow } from '../ggml/sliding-window.ts';
import { F16, Q8_0 } from '../ggml/types.ts';
import { pipelineStage, stageOfModel, wholeModel } from './contract.ts';
import { groupSpecs, kvLayout, kvLayouts, type LayerGroup, layerGroups, layersKv, usedBytes } from './kv-groups.ts';
import { blockBytes } from './kv-memory.ts';

/** A model whose every `pattern`-th layer has full attention. */
const options = { blockSize: 16, kvType: F16 };
const shapeOf = ({ window, layers }: LayerGroup) => ({ window, layers });
function model(layerCount: number, pattern: number) {
  const layers = Array.from({ length: layerCount }, (_, layer) => layer).filter((l) => l % pattern < pattern - 1);
  const slidingWindow = { window: 512, layers } as unknown as SlidingWindow;
  return { layerCount, headCountKv: 1, headDim: 256, ...(layers.length === 0 ? {} : { slidingWindow }) };
}
const layerCountsOf = (layerCount: number, pattern: number): number[] =>
  layerGroups(model(layerCount, pattern), options).map(({ layers }) => layers.length);

describe('the KV groups of a model', () => {
  it('are one group if all layers read the same tokens', () => {
    expect(layerGroups(model(3, 1), options).map(shapeOf)).toEqual([{ window: undefined, layers: [0, 1, 2] }]);
    expect(layerGroups(model(3, 9), options).map(shapeOf)).toEqual([{ window: 512, layers: [0, 1, 2] }]);
  });

  it('are one group if the model is an encoder, whose layers share one place', () => {
    const encoder = { ...model(6, 3), isEncoder: true };
    expect(layerGroups(encoder, options).map(shapeOf)).toEqual([{ window: undefined, layers: [0, 1, 2, 3, 4, 5] }]);
    const kv = layersKv(encoder, wholeModel(6), options);
    expect(kv.map((layer) => layer.kind === 'attention' && [layer.place, layer.window])).toEqual(
      [512, 512, undefined, 512, 512, undefined].map((window) => [0, window]),
    );
    const layout = kvLayout(encoder, wholeModel(6), options);
    expect(layout.layerCount).toBe(1);
    const [group] = groupSpecs(encoder, wholeModel(6), options);
    expect(usedBytes(group!, layout, encoder)).toBe(blockBytes(layout));
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

  describe('with other heads in layers with a window', () => {
    const sized = (layerCount: number, pattern: number, full: HeadShape, heads: HeadShape, sharedKvFrom?: number) => {
      const { slidingWindow, ...base } = model(layerCount, pattern) as Partial<ModelConfig>;
      const shared = sharedKvFrom === undefined ? {} : { sharedKvFrom };
      return { ...base, ...full, ...shared, layerCount, slidingWindow: { ...slidingWindow!, heads } };
    };
    const summaryOf = (config: ReturnType<typeof sized>) =>
      layerGroups(config, options).map(({ kind, blockSize, layers }) => [kind, blockSize, layers.length]);

    it('have more tokens in blocks of the kind with smaller rows: the shapes of Gemma 4', () => {
      const small = sized(35, 5, { headDim: 512, headCountKv: 1 }, { headDim: 256, headCountKv: 1 }, 15);
      expect(summaryOf(small)).toEqual([['full', 16, 3], ...Array(4).fill(['window', 32, 3])]);
      const large = sized(30, 6, { headDim: 512, headCountKv: 2 }, { headDim: 256, headCountKv: 8 });
      expect(summaryOf(large)).toEqual([['full', 32, 5], ...Array(5).fill(['window', 16, 5])]);
      const uneven = sized(4, 2, { headDim: 64, headCountKv: 3 }, { headDim: 64, headCountKv: 2 });
      expect(summaryOf(uneven)).toEqual([
        ['full', 32, 2],
        ['window', 48, 2],
      ]);
    });

    it('have blocks with as many bytes in each layout', () => {
      for (const [full, window] of [
        [
          { headDim: 512, headCountKv: 1 },
          { headDim: 256, headCountKv: 1 },
        ],
        [
          { headDim: 512, headCountKv: 2 },
          { headDim: 256, headCountKv: 8 },
        ],
        [
          { headDim: 128, headCountKv: 3 },
          { headDim: 64, headCountKv: 4 },
        ],
        // Rows of equal length with other heads.
        [
          { headDim: 128, headCountKv: 2 },
          { headDim: 64, headCountKv: 4 },
        ],
      ] as const) {
        const config = sized(12, 6, full, window);
        const layouts = kvLayouts(config, wholeModel(12), { ...options, kvType: Q8_0 });
        expect(new Set(layouts).size).toBe(2);
        expect(new Set(layouts.map(blockBytes)).size).toBe(1);
        expect(layouts.map(({ headDim, headCountKv }) => ({ headDim, headCountKv }))).toEqual([
          full,
          ...Array(5).fill(window),
        ]);
        const specs = groupSpecs(config, wholeModel(12), options);
        expect(specs.map(({ blockSize }) => blockSize)).toEqual(layouts.map(({ blockSize }) => blockSize));
      }
    });

    it('have no layers that read the KV of others, which are in a stage with them', () => {
      const config = sized(8, 2, { headDim: 128, headCountKv: 1 }, { headDim: 64, headCountKv: 1 }, 4);
      const places = layersKv(config, wholeModel(8), options);
      expect(layerGroups(config, options).map(({ layers }) => layers)).toEqual([
        [1, 3],
        [0, 2],
      ]);
      expect(places.slice(4).map((kv) => kv.kind === 'attention' && [kv.group, kv.place])).toEqual([
        [1, 1],
        [0, 1],
        [1, 1],
        [0, 1],
      ]);
      expect(places.map((kv) => kv.kind === 'attention' && kv.isShared === true)).toEqual([
        ...Array(4).fill(false),
        ...Array(4).fill(true),
      ]);
      expect([0, 1].map((rank) => stageOfModel(config, rank, 2))).toEqual([
        { firstLayer: 0, endLayer: 2, layerCount: 8 },
        { firstLayer: 2, endLayer: 8, layerCount: 8 },
      ]);
      expect(() => stageOfModel(config, 0, 4)).toThrow('--pipeline-parallel-size 3 or less');
      const later = { ...config, sharedKvFrom: 7 };
      expect(stageOfModel(later, 1, 2)).toEqual(pipelineStage(1, 2, 8));
    });
  });

  it('have neighbouring layers in different groups, so that stages have layers of each group', () => {
    expect(layerGroups(model(8, 4), options).map(shapeOf)).toEqual([
      { window: undefined, layers: [3, 7] },
      { window: 512, layers: [0, 4] },
      { window: 512, layers: [1, 5] },
      { window: 512, layers: [2, 6] },
    ]);
    const halves = [0, 1].map((rank) => groupSpecs(model(8, 4), pipelineStage(rank, 2, 8), options));
    expect(halves.map((groups) => groups.map(({ layers }) => layers))).toEqual([
      [[3], [0], [1], [2]],
      [[7], [4], [5], [6]],
    ]);
  });

  it('have a place for each layer of a stage in a block', () => {
    const [first, second] = [0, 1].map((rank) => pipelineStage(rank, 2, 5));
    const config = model(5, 2);
    expect(
      layersKv(config, wholeModel(5), options).map((kv) => [
        kv.kind !== 'none' && kv.group,
        kv.kind === 'attention' && kv.place,
      ]),
    ).toEqual([
      [1, 0],
      [0, 0],
      [2, 0],
      [0, 1],
      [1, 1],
    ]);
    expect(layersKv(config, second!, options)).toEqual([
      { kind: 'attention', index: 0, group: 0, place: 0, window: undefined },
      { kind: 'attention', index: 1, group: 1, place: 0, window: 512 },
    ]);
    expect(kvLayout(config, wholeModel(5), options).layerCount).toBe(2);
    expect(kvLayout(config, first!, options).layerCount).toBe(1);
    expect(groupSpecs(config, second!, options).map(({ kind, layers }) => [kind, ...layers])).toEqual([
      ['full', 3],
      ['window', 4],
      ['window'],
    ]);
  });
});

/** The first `layerCount` layers have a state, except every `pattern`-th; `stateBytes` of one layer. */
function hybrid(layerCount: number, pattern: number, stateBytes: number, kv = { headCountKv: 4, headDim: 128 }) {
  const layers = Array.from({ length: layerCount }, (_, layer) => layer).filter((l) => l % pattern < pattern - 1);
  return { layerCount, ...kv, states: { layers, elements: stateBytes / 4 } };
}

describe('the KV groups of a model with states', () => {
  const mib = 1 << 20;
  const summary = (config: ReturnType<typeof hybrid>, more = {}) => {
    const all = { ...options, ...more };
    const groups = layerGroups(config, all);
    const bytes = blockBytes(kvLayout(config, wholeModel(config.layerCount), all));
    return { groups: groups.map(({ kind, blockSize, layers }) => [kind, blockSize, layers.length]), bytes };
  };

  it('are one group of states if all states fit into a block: the shape of LFM 2 350M', () => {
    const config = { ...hybrid(16, 16, 8192, { headCountKv: 8, headDim: 64 }) };
    const states = { layers: [0, 1, 3, 4, 6, 7, 9, 11, 13, 15], elements: 2048 };
    expect(summary({ ...config, states })).toEqual({
      groups: [
        ['full', 16, 6],
        ['state', 64, 10],
      ],
      bytes: 6 * 16 * 2048,
    });
  });

  it('have larger blocks if states are large: the shapes of Granite 4.0 H 1B and Qwen 3.5 0.8B', () => {
    const granite = summary(hybrid(40, 10, 1.5 * mib));
    expect(granite.groups).toEqual([['full', 576, 4], ...Array.from({ length: 12 }, () => ['state', 576, 3])]);
    expect(granite.bytes).toBe(4.5 * mib);
    const qwen = summary(hybrid(24, 4, mib + 72 * 1024, { headCountKv: 2, headDim: 256 }));
    expect(qwen.groups).toEqual([['full', 192, 6], ...Array.from({ length: 9 }, () => ['state', 384, 2])]);
  });

  it('have the wanted tokens between checkpoints, rounded up to whole blocks', () => {
    const config = hybrid(6, 3, 8192);
    const blockSizeOf = (checkpointTokens: number) =>
      layerGroups(config, { ...options, checkpointTokens }).find(({ kind }) => kind === 'state')?.blockSize;
    expect([1, 16, 17, 100, 4096].map(blockSizeOf)).toEqual([16, 16, 32, 112, 4096]);
  });

  it('have room for every state of a stage, also in a stage with few or no layers with attention', () => {
    const config = hybrid(12, 4, 100_000);
    for (const ranks of [1, 2, 3, 5, 12]) {
      for (let rank = 0; rank < ranks; rank++) {
        const stage = pipelineStage(rank, ranks, 12);
        const layout = kvLayout(config, stage, options);
        const specs = groupSpecs(config, stage, options);
        for (const group of specs) expect(usedBytes(group, layout, config)).toBeLessThanOrEqual(blockBytes(layout));
        const places = layersKv(config, stage, options).filter(({ kind }) => kind === 'state');
        expect(
          new Set(places.map((kv) => `${kv.kind !== 'none' && kv.group} ${kv.kind === 'state' && kv.offset}`)).size,
        ).toBe(places.length);
        expect(places).toHaveLength(
          specs.filter(({ kind }) => kind === 'state').flatMap(({ layers }) => layers).length,
        );
      }
    }
  });
});

describe('the blocks of a model with latent attention', () => {
  it('have one row per token and layer: DeepSeek V2 Lite needs a ninth of the KV of separate heads', () => {
    const latent = { rank: 512, ropeLength: 64, queryLength: 128, valueLength: 128 };
    const config = { layerCount: 27, headCountKv: 1, headDim: 576, latent };
    const layout = kvLayout(config, wholeModel(27), options);
    expect(layout.valueInKey).toBe(512);
    const bytesOfToken = blockBytes(layout) / 27 / layout.blockSize;
    expect(bytesOfToken).toBe(1152);
    const separate = 16 * (128 + 64 + 128) * F16.typeSize;
    expect(separate / bytesOfToken).toBeGreaterThan(8.8);
    const [group] = groupSpecs(config, wholeModel(27), options);
    expect(usedBytes(group!, layout, {})).toBe(blockBytes(layout));
  });
});

/** Which layers of a model are computed on which device, and how many blocks of KV there are. */
import { assertDefined } from './base/assert.ts';
import { formatBytes } from './base/bytes.ts';
import type { RankOptions } from './compose-rank.ts';
import { gpuLayersImpossible } from './engine/errors.ts';
import {
  defaultGpuCacheMemory,
  defaultKvCacheMemory,
  type GpuLayers,
  leftOnGpu,
  type ResolvedEngineOptions,
} from './engine/options.ts';
import type { GpuMemory } from './ggml/device.ts';
import type { GgufFile } from './ggml/gguf.ts';
import type { ModelConfig } from './ggml/model-config.ts';
import { createGroup } from './kv/create-group.ts';
import {
  isLastStage,
  lastStageStart,
  type PipelineStage,
  stageOfModel,
  stagesFrom,
  wholeModel,
} from './runner/contract.ts';
import type { Division } from './runner/division.ts';
import { type BlockOptions, groupSpecs, kvLayout, predictionLayout } from './runner/kv-groups.ts';
import { blockBytes, kvTypes } from './runner/kv-memory.ts';
import { stageWeightBytes } from './runner/stage-weights.ts';
import { readSpeculativeConfig } from './scheduler/speculation/options.ts';
import { tooManyRanks } from './worker/errors.ts';

/** The stages of a model in order, each with its device. */
export interface Placement {
  readonly stages: readonly PlacedStage[];
  /** The GPU that some stages use, if there is one. */
  readonly gpu: GpuMemory | undefined;
}

export interface PlacedStage {
  readonly stage: PipelineStage;
  readonly device: 'cpu' | 'gpu';
}

interface PlacedModel {
  readonly file: GgufFile;
  readonly model: ModelConfig;
}

/**
 * Stages of about equal size on one device, or two stages of which the last is on the GPU, as llama.cpp divides a model. `findGpu`
 * is called if the options allow a GPU.
 */
export function placeLayers(
  options: ResolvedEngineOptions,
  { file, model }: PlacedModel,
  findGpu: () => GpuMemory | undefined,
): Placement {
  const { device, gpuLayers: layers, pipelineParallelSize: ranks } = options;
  const { layerCount } = model;
  if (!Number.isInteger(ranks) || ranks < 1 || ranks > layerCount) throw tooManyRanks({ ranks, layers: layerCount });
  const on = (where: 'cpu' | 'gpu'): PlacedStage[] =>
    Array.from({ length: ranks }, (_, rank) => ({ stage: stageOfModel(model, rank, ranks), device: where }));
  const gpu = device === 'cpu' || layers === 0 ? undefined : findGpu();
  if (gpu === undefined) {
    // If the user wants a GPU, opening it says what is missing.
    const isWanted = device === 'gpu' || (layers !== 'auto' && layers !== 0);
    return { stages: on(isWanted ? 'gpu' : 'cpu'), gpu };
  }
  const count = layersOnGpu(options, { file, model }, gpu);
  if (count >= layerCount) return { stages: on('gpu'), gpu };
  if (count === 0) return { stages: on('cpu'), gpu: undefined };
  const [first, last] = stagesFrom(layerCount - count, layerCount);
  return {
    stages: [
      { stage: first, device: 'cpu' },
      { stage: last, device: 'gpu' },
    ],
    gpu,
  };
}

const isDivided = ({ stages }: Placement): boolean => stages[0]?.device !== stages.at(-1)?.device;

/** For people; undefined if the model is on one device. */
export function describePlacement(placement: Placement): string | undefined {
  if (!isDivided(placement)) return undefined;
  const { firstLayer, layerCount } = placement.stages.at(-1)!.stage;
  return `the last ${layerCount - firstLayer} of ${layerCount} on the GPU, the others on the CPU`;
}

/** Part of the identity of stored KV, because the KV of a layer depends on the devices of the layers before it; undefined as above. */
export function placementIdentity(placement: Placement): string | undefined {
  if (!isDivided(placement)) return undefined;
  return placement.stages.map(({ device, stage }) => `${device} ${stage.firstLayer}-${stage.endLayer}`).join(', ');
}

function layersOnGpu(options: ResolvedEngineOptions, placed: PlacedModel, gpu: GpuMemory): number {
  const { gpuLayers: layers, pipelineParallelSize: ranks, device } = options;
  const { model } = placed;
  const { layerCount } = model;
  if (layers === 'all' || (layers !== 'auto' && layers >= layerCount)) return layerCount;
  if (ranks > 1) {
    if (layers === 'auto') return layerCount;
    throw impossible(layers, `--pipeline-parallel-size ${ranks} divides the layers too. Remove one of the two`);
  }
  const least = layerCount - lastStageStart(model);
  if (layers !== 'auto') {
    if (layers >= least) return layers;
    throw impossible(
      layers,
      `the last ${least} layers share KV, so they are on one device. Use 0, or at least ${least}`,
    );
  }
  const count = layersThatFit(options, placed, gpu);
  if (count > 0 || device !== 'gpu') return count;
  const free = formatBytes(gpu.freeBytes ?? 0);
  throw impossible(layers, `no layer fits into the ${free} that are free on ${gpu.description}. Use --device cpu`);
}

const impossible = (layers: GpuLayers, problem: string): Error => gpuLayersImpossible({ layers, problem });

/** The KV of so many tokens should fit beside the weights: else, fewer layers are on the GPU. */
export const tokensWanted = 8192;

/** The largest number of last layers whose weights, KV and buffers have room in the free memory; 0: none. */
function layersThatFit(options: ResolvedEngineOptions, placed: PlacedModel, gpu: GpuMemory): number {
  const { freeBytes, totalBytes, tensorBytesMax } = gpu;
  if (freeBytes === undefined) return placed.model.layerCount;
  const fitting = divisionsOf(options, placed).find(
    ({ onGpu, poolBytes: wanted }) =>
      Math.min(wanted, tensorBytesMax) <= leftOnGpu(onGpu.weightBytes, freeBytes, totalBytes),
  );
  return fitting?.layers ?? 0;
}

/** All numbers of last layers that can be on a GPU, from all layers down. */
export function divisionsOf(options: RankOptions, { file, model }: PlacedModel): Division[] {
  const { layerCount } = model;
  return Array.from({ length: lastStageStart(model) + 1 }, (_, firstLayer) => {
    const stages = firstLayer === 0 ? [wholeModel(layerCount)] : stagesFrom(firstLayer, layerCount);
    const needs = stages.map((stage) => ({
      weightBytes: stageWeightBytes(file, model, stage, predicts(options, model)),
      blockBytes: partBytes(options, model, stage),
    }));
    const onGpu = assertDefined(needs.at(-1), 'a model has a stage');
    const parts = needs.map(({ blockBytes: bytes }) => bytes);
    const blocks =
      encoderBlocks(options, model) ?? givenBlocks(options, parts) ?? blocksOfRequests(options, model, 1, tokensWanted);
    const onCpu = needs.length > 1 ? needs[0]! : { weightBytes: 0, blockBytes: 0 };
    return { layers: layerCount - firstLayer, onGpu, onCpu, poolBytes: blocks * onGpu.blockBytes };
  });
}

/**
 * The number of blocks on each rank, if there are several ranks or a replaced worker must get the same number. A block
 * has a part on every rank: given memory is divided by the bytes of all parts, and by default the device with the least room decides. It
 * is known before any rank is opened.
 */
export function blockCountOf(options: RankOptions, { file, model }: PlacedModel, { stages, gpu }: Placement): number {
  const on = (where: 'cpu' | 'gpu'): PipelineStage[] =>
    stages.filter(({ device }) => device === where).map(({ stage }) => stage);
  const bytesOf = (parts: readonly PipelineStage[]): number =>
    sum(parts.map((part) => partBytes(options, model, part)));
  const weightsOf = (parts: readonly PipelineStage[]): number =>
    sum(parts.map((part) => stageWeightBytes(file, model, part, predicts(options, model))));
  const counts = [on('cpu'), on('gpu')].map((parts, index) => {
    if (parts.length === 0) return Number.POSITIVE_INFINITY;
    const room = roomFor(weightsOf(parts), index === 0 ? undefined : gpu);
    const bytes = bytesOf(parts);
    return Math.floor(poolBytes(options, model, bytes, room) / bytes);
  });
  const parts = stages.map(({ stage }) => partBytes(options, model, stage));
  const blocks = encoderBlocks(options, model) ?? givenBlocks(options, parts) ?? Math.min(...counts);
  const largest = on('gpu').map((part) => Math.floor(tensorMax(gpu) / partBytes(options, model, part)));
  return Math.max(2, Math.min(blocks, ...largest));
}

const tensorMax = (gpu: GpuMemory | undefined): number => gpu?.tensorBytesMax ?? Number.POSITIVE_INFINITY;

/** What the stages on the CPU have in host memory: weights, and the pool if its size is given, or what it needs at least. */
export function bytesOnCpu(
  options: RankOptions,
  { file, model }: PlacedModel,
  { stages }: Placement,
): { readonly weightBytes: number; readonly poolBytes: number } {
  const onCpu = stages.filter(({ device }) => device === 'cpu').map(({ stage }) => stage);
  const parts = onCpu.map((stage) => partBytes(options, model, stage));
  const all = stages.map(({ stage }) => partBytes(options, model, stage));
  const leastBlocks = options.maxModelLen === undefined ? 2 : blocksOfRequests(options, model, 1);
  const blocks = encoderBlocks(options, model) ?? givenBlocks(options, all) ?? leastBlocks;
  return {
    weightBytes: sum(onCpu.map((stage) => stageWeightBytes(file, model, stage, predicts(options, model)))),
    poolBytes: blocks * sum(parts),
  };
}

/** Memory for the pool by default. `unreadBytes` of weights are not in memory yet. `gpu`: of a pool on it. */
export function roomFor(unreadBytes: number, gpu: GpuMemory | undefined): number {
  if (gpu?.freeBytes === undefined) return defaultKvCacheMemory(unreadBytes);
  return defaultGpuCacheMemory(leftOnGpu(unreadBytes, gpu.freeBytes, gpu.totalBytes));
}

/** The default: the memory that there is room for, but not more than all running requests can fill. */
export function poolBytes(options: RankOptions, model: ModelConfig, bytesPerBlock: number, roomBytes: number): number {
  const ofEncoder = encoderBlocks(options, model);
  if (ofEncoder !== undefined) return ofEncoder * bytesPerBlock;
  return (
    options.kvCacheMemory ?? Math.min(roomBytes, blocksOfRequests(options, model, options.maxNumSeqs) * bytesPerBlock)
  );
}

/** Of an encoder: for the texts of one step, each of which may leave a part of a block unused. */
const encoderBlocks = (options: RankOptions, { isEncoder }: ModelConfig): number | undefined =>
  isEncoder === true ? 1 + Math.ceil(options.maxNumBatchedTokens / options.blockSize) + options.maxNumSeqs : undefined;

const givenBlocks = ({ kvCacheMemory }: RankOptions, parts: readonly number[]): number | undefined =>
  kvCacheMemory === undefined ? undefined : Math.floor(kvCacheMemory / sum(parts));

/** Blocks that so many requests of so many tokens can fill, at most of the longest. */
function blocksOfRequests(options: RankOptions, model: ModelConfig, requests: number, tokens = Infinity): number {
  const longest = Math.min(options.maxModelLen ?? model.contextLength, tokens);
  const groups = groupSpecs(model, wholeModel(model.layerCount), blockOptionsOf(options));
  // A window or state group also has the blocks of the tokens that one step computes.
  const blocksPerRequest = groups.map((group) => {
    const most = Math.ceil(longest / group.blockSize);
    const atOnce = createGroup(group).blocksMax(longest) + Math.ceil(options.maxNumBatchedTokens / group.blockSize);
    return Math.min(most, atOnce);
  });
  return 1 + requests * sum(blocksPerRequest);
}

/** Bytes of a block on the rank with this stage. */
function partBytes(options: RankOptions, model: ModelConfig, stage: PipelineStage): number {
  const layout = kvLayout(model, stage, blockOptionsOf(options));
  const drafts = isLastStage(stage) && predicts(options, model);
  return blockBytes(layout) + (drafts ? blockBytes(predictionLayout(layout)) : 0);
}

const blockOptionsOf = ({ blockSize, kvCacheDtype, stateCheckpointTokens }: RankOptions): BlockOptions => ({
  blockSize,
  kvType: kvTypes[kvCacheDtype],
  checkpointTokens: stateCheckpointTokens,
});

/** Whether the last rank has a prediction layer. Drafts of models with states cannot be verified, so none are made. */
export const predicts = ({ speculativeConfig }: RankOptions, { states }: ModelConfig): boolean =>
  speculativeConfig !== undefined && states === undefined && readSpeculativeConfig(speculativeConfig).method === 'mtp';

const sum = (values: readonly number[]): number => values.reduce((all, value) => all + value, 0);

/** How much memory a model needs, from the header of its file alone. */
import { basename } from 'node:path';
import { tokenCount } from '../../core/ids.ts';
import type { KvGroupSpec } from '../../core/kv-spec.ts';
import { type GgufFile, weightBytesOf } from '../../ggml/gguf.ts';
import { readModelConfig } from '../../ggml/model-config.ts';
import { checkPrediction } from '../../ggml/prediction-layer.ts';
import { createGroup } from '../../kv/create-group.ts';
import { wholeModel } from '../../runner/contract.ts';
import { type BlockOptions, groupSpecs, kvLayout, predictionLayout, usedBytes } from '../../runner/kv-groups.ts';
import { blockBytes, type KvTypeName, kvTypes } from '../../runner/kv-memory.ts';
import { stepBytes } from '../../runner/step-bytes.ts';
import type { SpeculationOptions } from '../../scheduler/speculation/options.ts';

export interface SizeOptions {
  /** Longest prompt plus output; default: the model's context length. */
  readonly maxModelLen?: number;
  readonly maxNumSeqs: number;
  readonly maxNumBatchedTokens: number;
  readonly blockSize: number;
  readonly stateCheckpointTokens?: number;
  readonly kvCacheDtype: KvTypeName;
  readonly speculativeConfig?: SpeculationOptions;
}

export interface GroupNeeds {
  readonly kind: KvGroupSpec['kind'];
  readonly layers: number;
  /** Tokens of a block; in a state group, the tokens between two checkpoints. */
  readonly blockTokens: number;
  /** Tokens that a token sees, in a group with a sliding window. */
  readonly window?: number;
  /** Bytes of the pool for one token, or for one token of the tokens between two checkpoints. */
  readonly bytesPerToken: number;
  /** Bytes of a block that hold KV or states; the others stay zero. */
  readonly usedBytesPerBlock: number;
  /** The largest number of blocks that a sequence of `maxModelLen` tokens has at one time. */
  readonly blocksPerSequence: number;
}

/** Memory for sequences of equal length that run at the same time. */
export interface PoolNeeds {
  readonly sequences: number;
  readonly tokens: number;
  /** With the null block. */
  readonly blocks: number;
  readonly bytes: number;
}

export interface MemoryNeeds {
  readonly model: string;
  readonly architecture: string;
  readonly contextLength: number;
  readonly maxModelLen: number;
  readonly maxNumSeqs: number;
  readonly kvCacheDtype: KvTypeName;
  readonly fileBytes: number;
  /** Of all tensors that are read. */
  readonly weightBytes: number;
  /** An estimate of the rest: Node, libraries, the vocabulary, and the buffers of a step. */
  readonly processBytes: number;
  /** The same in all groups. */
  readonly blockBytes: number;
  /** Memory of the pool for each block. It is more than `blockBytes` if the model's prediction layer drafts. */
  readonly poolBytesPerBlock: number;
  readonly groups: readonly GroupNeeds[];
  /** Bytes that a tier stores for one token of a prefix, with all groups. */
  readonly storedBytesPerToken: number;
  /** Bytes of the recurrent states of one sequence; 0 for models without. */
  readonly stateBytesPerSequence: number;
  readonly pools: readonly PoolNeeds[];
}

export class ModelSize {
  readonly needs: MemoryNeeds;
  readonly #groups: readonly KvGroupSpec[];
  readonly #maxNumBatchedTokens: number;
  /** An encoder keeps no KV: its pool has room for the texts of any one step. */
  readonly #encoderBlocks: number | undefined;

  /** @throws errors of ggml for files that Kvasir does not support */
  constructor(file: GgufFile, options: SizeOptions) {
    const config = readModelConfig(file);
    const blocks: BlockOptions = {
      blockSize: options.blockSize,
      kvType: kvTypes[options.kvCacheDtype],
      checkpointTokens: options.stateCheckpointTokens,
    };
    const stage = wholeModel(config.layerCount);
    const layout = kvLayout(config, stage, blocks);
    const bytes = blockBytes(layout);
    const maxModelLen = options.maxModelLen ?? config.contextLength;
    this.#groups = groupSpecs(config, stage, blocks);
    this.#maxNumBatchedTokens = options.maxNumBatchedTokens;
    const stepTokens = Math.max(options.maxNumBatchedTokens, maxModelLen);
    this.#encoderBlocks =
      config.isEncoder === true ? 1 + Math.ceil(stepTokens / options.blockSize) + options.maxNumSeqs : undefined;
    const groups = this.#groups.map(
      (group): GroupNeeds => ({
        kind: group.kind,
        layers: group.layers.length,
        blockTokens: group.blockSize,
        ...(group.kind === 'window' ? { window: group.window } : {}),
        bytesPerToken: bytes / group.blockSize,
        usedBytesPerBlock: usedBytes(group, layout, config),
        blocksPerSequence: createGroup(group).blocksMax(maxModelLen),
      }),
    );
    const states = groups.filter(({ kind }) => kind === 'state');
    // Drafts of models with states cannot be verified, so the layer is not loaded.
    const predicts = options.speculativeConfig?.method === 'mtp' && config.states === undefined;
    if (predicts) checkPrediction(file, config);
    const weightBytes = weightBytesOf(file, predicts);
    const base = {
      model: basename(file.path),
      architecture: config.architecture,
      contextLength: config.contextLength,
      maxModelLen,
      maxNumSeqs: options.maxNumSeqs,
      kvCacheDtype: options.kvCacheDtype,
      fileBytes: file.fileBytes,
      weightBytes,
      processBytes: PROCESS_BYTES + stepBytes(config, options),
      blockBytes: bytes,
      poolBytesPerBlock: bytes + (predicts ? blockBytes(predictionLayout(layout)) : 0),
      groups,
      storedBytesPerToken:
        config.isEncoder === true ? 0 : groups.reduce((sum, { bytesPerToken }) => sum + bytesPerToken, 0),
      stateBytesPerSequence: states.reduce((sum, { usedBytesPerBlock }) => sum + usedBytesPerBlock, 0),
    };
    this.needs = { ...base, pools: [] };
    const lengths = [...new Set([1024, 4096, 16_384, maxModelLen])].filter((tokens) => tokens <= maxModelLen);
    const counts = [...new Set([1, 8, options.maxNumSeqs])].filter((count) => count <= options.maxNumSeqs);
    const pools = lengths.flatMap((tokens) => counts.map((sequences) => this.pool(sequences, tokens)));
    this.needs = { ...base, pools };
  }

  /** A pool in which so many sequences of so many tokens run at the same time, and none is preempted. */
  pool(sequences: number, tokens: number): PoolNeeds {
    if (this.#encoderBlocks !== undefined) {
      const blocks = this.#encoderBlocks;
      return { sequences, tokens, blocks, bytes: blocks * this.needs.poolBytesPerBlock };
    }
    const blocks = this.#groups.reduce((sum, group) => sum + this.#blocksOf(group, sequences, tokens), 1);
    return { sequences, tokens, blocks, bytes: blocks * this.needs.poolBytesPerBlock };
  }

  /** The largest number of sequences of so many tokens that run in so many bytes at the same time. */
  sequencesIn(bytes: number, tokens: number): number {
    return largest((sequences) => this.pool(sequences, tokens).bytes <= bytes);
  }

  /** The longest sequence that runs alone in so many bytes, at most `maxModelLen` tokens. */
  longestIn(bytes: number): number {
    const { maxModelLen } = this.needs;
    return largest((tokens) => tokens <= maxModelLen && this.pool(1, tokens).bytes <= bytes);
  }

  /**
   * Windows and states also have the blocks of the tokens that one step computes, before the blocks that these tokens
   * leave behind are released. A step computes at most `maxNumBatchedTokens` tokens of all sequences together.
   */
  #blocksOf(group: KvGroupSpec, sequences: number, tokens: number): number {
    const all = sequences * Math.ceil(tokens / group.blockSize);
    const held = sequences * createGroup(group).blocksMax(tokens);
    if (group.kind === 'full') return held;
    const ofStep = Math.ceil(this.#maxNumBatchedTokens / tokenCount(group.blockSize)) + sequences - 1;
    // A state group has one more block: the checkpoint that a sequence started from.
    return Math.min(all + (group.kind === 'state' ? sequences : 0), held + ofStep);
  }
}

/** The largest number for which `fits` is true, if it is true for all smaller numbers above 0 too; else 0. */
function largest(fits: (number: number) => boolean): number {
  if (!fits(1)) return 0;
  let [low, high] = [1, 2];
  while (high < 2 ** 40 && fits(high)) [low, high] = [high, 2 * high];
  while (high - low > 1) {
    const middle = Math.floor((low + high) / 2);
    if (fits(middle)) low = middle;
    else high = middle;
  }
  return low;
}

/** Node with its libraries and kernels, measured with the bundled model. */
const PROCESS_BYTES = 160 * 1024 ** 2;

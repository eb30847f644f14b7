/**
 * Compares our logits and greedy tokens with libllama's `llama_decode` on the same file. Both sides compute with one named
 * build of ggml's CPU kernels, so the result does not depend on the machine. `reference-this-cpu.test.ts` compares with
 * libllama as it runs on this CPU.
 */
import { existsSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { ModelOptions } from '../bench/make-model/model-maker.ts';
import { openReference } from '../bench/subject/llama-reference.ts';
import type { DeltaNetConfig } from '../src/ggml/delta-net-config.ts';
import type { ExpertConfig } from '../src/ggml/expert-config.ts';
import { compareWithLibllama, distance, logitsAfterPrompt, referencePrompt } from './support/compare-with-libllama.ts';
import { computeHere } from './support/compute-here.ts';
import { hasCompiler } from './support/has-compiler.ts';
import { isLongForm } from './support/long-form.ts';
import { needs } from './support/needs.ts';
import { pinKernels } from './support/pinned-kernels.ts';
import { gemma4WithExperts, temporaryFolder, writeTinyModel } from './support/tiny-model.ts';

computeHere();
const folder = temporaryFolder();
beforeAll(pinKernels);
afterAll(() => folder.remove());

/**
 * ggml's own kernels: gathered blocks and the one-row attention, which libllama uses for up to 63 rows. Nearly all bits are equal: over
 * 33 models and the builds x64, sse42, haswell, skylakex and icelake, the largest distance was 0.0001.
 */
const gathered = { microBatch: 32, tolerance: 0.001, nearTie: 0.05 };
/**
 * ggml's GELU rounds its input to F16, so another last bit may become a larger difference. The largest was 0.002.
 * `gemma3-in-doubles.test.ts` compares both sides with double precision.
 */
const gelu = 0.005;
/**
 * Our own kernels. Attention sums in F32, as libllama does from 64 rows on, but in another order. With F32 weights the distance is
 * 0.00002. For other weights, activations are rounded to 8 or 16 bits. The last bit of attention or of a matmul decides some roundings,
 * and the random weights of these models amplify the difference. Over the same models and builds our distance was at most 0.17.
 */
const native = (isF32: boolean) => ({ microBatch: 256, tolerance: isF32 ? 0.001 : 0.2, nearTie: 0.1 });

interface CompareOptions {
  readonly repack?: boolean;
  readonly isF32?: boolean;
  /** With ggml's kernels. */
  readonly tolerance?: number | undefined;
  /** With our kernels. */
  readonly ourTolerance?: number;
}
const deepseek3Experts: ExpertConfig = {
  ...{ count: 12, used: 4, feedForwardLength: 64, denseLayers: 1, sharedLength: 128 },
  ...{ gating: 'sigmoid', dividesBySum: true, weightScale: 2.5, hasChoiceBias: true },
};
const qwen3next = (heads: number, keyHeads: number, deltaNet: Partial<DeltaNetConfig> = {}): Partial<ModelOptions> => ({
  architecture: 'qwen3next',
  layers: 3,
  deltaNet: { taps: 4, heads, keyHeads, headDim: 64, ...deltaNet },
});
const fusedExperts = { count: 8, used: 3, feedForwardLength: 256, hasFusedGate: true } as const;
const nemotronMamba = { taps: 4, heads: 8, headDim: 80, stateSize: 128, groups: 8 } as const;
const nemotronExperts = (experts: Partial<ExpertConfig>): Partial<ModelOptions> => ({
  architecture: 'nemotron_h_moe',
  mamba: nemotronMamba,
  experts: {
    ...{ count: 12, used: 4, feedForwardLength: 64, sharedLength: 128 },
    ...{ gating: 'sigmoid', dividesBySum: true, hasChoiceBias: true, ...experts },
  },
});
const softmaxExperts: ExpertConfig = { count: 6, used: 2, feedForwardLength: 64, denseLayers: 0, gating: 'softmax' };
const liteShape = {
  ...{
    layers: 26,
    embedding: 64,
    feedForward: 128,
    latent: { rank: 64, ropeLength: 16, queryLength: 32, valueLength: 32 },
  },
  experts: { count: 4, used: 2, feedForwardLength: 32, denseLayers: 1, sharedLength: 64, dividesBySum: false },
} as const;
/**
 * libllama's phi3 multiplies queries by the scale of attention, and ggml's attention rounds them to F16 after that. Without a difference
 * there, the distance is below 0.001.
 */
const scaledQueries = (isF32: boolean): number => (isF32 ? 0.01 : 0.2);
/** As in the models of 12B and more: without shared layers and per-layer embeddings. */
const alone = { sharedLayers: 0, perLayerLength: 0, keyIsValue: true } as const;
const wideHeads = { headDim: 256, headCountKv: 2 } as const;
type Compare = (path: string, options?: CompareOptions) => Promise<void>;

/**
 * With F16 and BF16 weights, a router that multiplies each token alone is 1e-7 apart from libllama's. Rounding amplifies it to 0.008.
 * With a router like libllama's, the distance was below 0.001.
 */
const singleRouter = 0.02;
/** A layer with a window and a layer without. With four layers, the biases amplify the router's 1e-7 to 0.07 where activations are rounded. */
const gptOssLayers = { layers: 2 };
/** With fewer layers, rounding chooses other experts less often. Rounding is amplified differently with another seed. */
const shapeOf: Readonly<Record<string, Partial<ModelOptions>>> = {
  'gpt-oss': gptOssLayers,
  qwen35moe: { layers: 3 },
  qwen3next: { layers: 3 },
  smollm3: { seed: 7 },
  glm4moe: { seed: 2 },
  nemotron_h_moe: { seed: 2 },
};
/**
 * libllama multiplies the matrices of heads with another function than ours, 1e-7 apart. ggml's attention rounds queries and sums to
 * F16, and rounding of activations amplifies it. libllama's own logits with 32 and with 96 rows at a time are 0.01 apart with F32
 * weights, and 0.26 with Q8_0.
 */
const latent = (isF32: boolean): number => (isF32 ? 0.01 : 0.2);
const onGgml: Compare = (path, { repack = true, tolerance = gathered.tolerance } = {}) =>
  compareWithLibllama(path, {
    ...gathered,
    tolerance,
    nearTie: Math.max(gathered.nearTie, tolerance / 2),
    options: { repack, attention: 'gather', matmulKernels: false },
  });
const onOurs: Compare = (path, { repack = true, isF32 = false, ourTolerance = native(isF32).tolerance } = {}) => {
  const comparison = { ...native(isF32), tolerance: ourTolerance };
  return compareWithLibllama(path, { ...comparison, options: { repack, attention: 'native' } });
};

/** Each file is written once and compared twice. */
async function modelFor(name: string, options: ModelOptions): Promise<string> {
  const path = folder.file(`${name}.gguf`);
  if (!existsSync(path)) await writeTinyModel(path, options);
  return path;
}

const kernels = [
  ['ggml’s kernels', onGgml, true],
  ['our kernels', onOurs, hasCompiler],
] as const;
for (const [_, compare, areThere] of kernels)
  describe(`the runner with ${_}`, needs(areThere, 'no C compiler'), () => {
    // Architectures differ in their graphs, types in their matmuls: each type once, and each architecture with two types. The long form
    // adds the third list. The short form has one type that is not F32, because F32 has the same graph: one that ggml quantizes fast. With our kernels, llama has all types.
    const isWhole = isLongForm || compare === onOurs;
    describe.each([
      ['llama', ['F32', 'F16', 'BF16', 'Q8_0', 'Q4_0', 'Q4_K', 'Q6_K', 'Q4_K_M'], []],
      ['qwen2', ['F32', 'Q8_0'], ['Q4_K_M']],
      ['qwen3', ['F32', 'Q8_0'], ['Q4_K_M']],
      ['qwen3moe', ['F32', 'F16', 'Q8_0', 'Q4_K', 'MXFP4'], ['BF16', 'Q4_0', 'Q6_K', 'Q4_K_M']],
      ['gemma3', ['F32', 'Q8_0'], ['Q4_K_M']],
      ['gemma4', ['F32', 'Q8_0'], ['Q4_K_M']],
      ['gpt-oss', ['F32', 'MXFP4'], ['F16', 'Q8_0', 'Q4_K_M']],
      ['lfm2', ['F32', 'Q8_0'], ['Q4_K_M']],
      ['deepseek2', ['F32', 'Q8_0'], ['F16', 'Q4_K_M']],
      ['granite', ['F32', 'Q8_0'], []],
      ['granitemoe', ['F32', 'Q8_0'], []],
      ['granitehybrid', ['F32', 'Q8_0'], ['Q4_K_M']],
      ['nemotron_h', ['F32', 'Q8_0'], ['Q4_K_M']],
      ['nemotron_h_moe', ['F32', 'Q8_0'], ['Q4_K_M']],
      ['qwen35', ['F32', 'Q8_0'], ['Q4_K_M']],
      ['qwen35moe', ['F32', 'Q8_0'], ['Q4_K_M']],
      ['qwen3next', ['F32', 'Q8_0'], ['Q4_K_M']],
      ['smollm3', ['F32', 'Q8_0'], ['Q4_K_M']],
      ['olmo2', ['F32', 'Q8_0'], ['Q4_K_M']],
      ['glm4', ['F32', 'Q8_0'], ['Q4_K_M']],
      ['glm4moe', ['F32', 'Q8_0'], ['Q4_K_M']],
      ['lfm2moe', ['F32', 'Q8_0'], ['Q4_K_M']],
      ['phi3', ['F32', 'Q8_0'], ['Q4_K_M']],
      ['mistral3', ['F32', 'Q8_0'], ['Q4_K_M']],
    ] as const)('equals libllama with architecture %s', (architecture, types, furtherTypes) => {
      const hasAllTypes = isLongForm || (isWhole && architecture === 'llama');
      const ofBoth = types.filter((type) => hasAllTypes || type === types.findLast((other) => other !== 'F32'));
      it.each([...ofBoth, ...(isLongForm ? furtherTypes : [])])('and %s weights', async (type) => {
        const path = await modelFor(`${architecture}-${type}`, {
          architecture,
          type,
          ...shapeOf[architecture as string],
        });
        const hasExperts = architecture === 'qwen3moe' || architecture === 'gpt-oss';
        const isRounded = hasExperts && (type === 'F16' || type === 'BF16');
        const isF32 = type === 'F32';
        const ofArchitecture = { gemma3: gelu, gemma4: gelu, deepseek2: latent(isF32), phi3: scaledQueries(isF32) }[
          architecture as string
        ];
        const tolerance = ofArchitecture ?? (isRounded ? singleRouter : undefined);
        await compare(path, { isF32, tolerance });
      });
    });

    describe('equals libllama', () => {
      it.each(['kvasir-demo', 'kvasir-hybrid'])('with the bundled model %s', async (name) => {
        await compare(`models/${name}.gguf`);
      });

      const otherTypes = ['Q4_1', 'Q5_0', 'Q5_1', 'Q2_K', 'Q3_K', 'Q5_K', 'MXFP4', 'IQ4_NL', 'IQ4_XS'] as const;
      it.each(isWhole ? otherTypes : [])('with %s weights', async (type) => {
        // ggml takes long to quantize some of these types.
        const layers = isLongForm ? {} : { layers: 1 };
        await compare(await modelFor(`llama-${type}`, { architecture: 'llama', type, ...layers }));
      });

      it('with weights that are not repacked', async () => {
        for (const type of ['Q4_K', 'Q4_0'] as const) {
          await compare(await modelFor(`llama-${type}`, { architecture: 'llama', type }), { repack: false });
        }
      });
    });

    // The long form compares these shapes with both families of kernels.
    const hasShapes = isLongForm || compare === (hasCompiler ? onOurs : onGgml);
    if (!hasShapes) return;

    /** The long form has all shapes. */
    const some = <T>(all: readonly T[]): readonly T[] => (isLongForm ? all : all.filter((_, index) => index % 4 === 1));

    describe('equals libllama', () => {
      const variants: [name: string, options: Partial<ModelOptions>][] = [
        ['tied embeddings', { tied: true }],
        ['tied embeddings that are repacked', { tied: true, type: 'Q4_0' }],
        ['as many KV heads as query heads', { headsKv: 4 }],
        ['one KV head', { headsKv: 1 }],
        ['a head size other than embedding / heads', { headDim: 128 }],
        ['one layer', { layers: 1 }],
        ['biases', { qkvBias: true }],
        ['linear RoPE scaling', { ropeScaling: 'linear' }],
        ['YaRN', { ropeScaling: 'yarn' }],
        ['frequency factors of Llama 3', { ropeScaling: 'llama3' }],
      ];
      it.each(some(variants))('with %s', async (name, options) => {
        await compare(await modelFor(name.replaceAll(/\W/g, '-'), { architecture: 'llama', type: 'Q8_0', ...options }));
      });

      const lfm2Variants: [name: string, options: Partial<ModelOptions>][] = [
        ['attention in the last layer', { stateLayers: [0, 1, 2] }],
        ['a convolution in the last layer only', { stateLayers: [3] }],
        ['two taps', { taps: 2 }],
        ['four taps', { taps: 4 }],
        ['an output matrix', { tied: false }],
        ['windows in all layers with attention', { layers: 6, window: 40 }],
        ['a window that the prompt does not fill', { layers: 6, window: 200 }],
        ['a window and full attention', { layers: 6, window: 40, windowLayers: [2] }],
        [
          'windows before and after full attention',
          { stateLayers: [0, 3], layers: 6, window: 16, windowLayers: [1, 4] },
        ],
      ];
      it.each(some(lfm2Variants))('with architecture lfm2 and %s', async (name, options) => {
        await compare(
          await modelFor(`lfm2-${name.replaceAll(/\W/g, '-')}`, { architecture: 'lfm2', type: 'F32', ...options }),
          { isF32: true },
        );
      });

      const graniteVariants: [name: string, options: Partial<ModelOptions>][] = [
        ['experts', { experts: { count: 8, used: 3, feedForwardLength: 512 } }],
        ['experts and a shared network', { experts: { count: 8, used: 3, feedForwardLength: 512, sharedLength: 384 } }],
        ['two groups of heads', { mamba: { taps: 4, heads: 8, headDim: 64, stateSize: 128, groups: 2 } }],
        ['shapes without a kernel', { mamba: { taps: 3, heads: 32, headDim: 16, stateSize: 40, groups: 1 } }],
        ['RoPE', { rope: true }],
        ['Mamba-2 in the last layer', { stateLayers: [1, 3] }],
      ];
      it.each(some(graniteVariants))('with architecture granitehybrid and %s', async (name, options) => {
        const all = { architecture: 'granitehybrid', type: 'F32', ...options } as const;
        await compare(await modelFor(`granite-${name.replaceAll(/\W/g, '-')}`, all), { isF32: true });
      });

      const nemotronVariants: [name: string, options: Partial<ModelOptions>][] = [
        ['attention in the last layer', { layers: 3 }],
        ['Mamba-2 in the last layer, and networks beside each other', { layers: 5, networkLayers: [1, 2] }],
        ['an untied head and one group of heads', { tied: false, mamba: { ...nemotronMamba, groups: 1 } }],
        ['experts with shorter rows', { ...nemotronExperts({ latentLength: 128, weightScale: 2.5 }) }],
        ['experts whose weights are not shares', { ...nemotronExperts({ dividesBySum: false, sharedLength: 96 }) }],
        ['layers for multi-token prediction', { ...nemotronExperts({}), predictionLayers: 1 }],
      ];
      it.each(some(nemotronVariants))('with architecture nemotron_h and %s', async (name, options) => {
        const path = await modelFor(`nemotron-${name.replaceAll(/\W/g, '-')}`, {
          architecture: 'nemotron_h',
          type: 'F32',
          ...options,
        });
        await compare(path, { isF32: true });
      });

      const qwen35Variants: [name: string, options: Partial<ModelOptions>][] = [
        ['all heads of keys', { deltaNet: { taps: 4, heads: 4, keyHeads: 4, headDim: 64 } }],
        ['heads of 128', { deltaNet: { taps: 3, heads: 4, keyHeads: 1, headDim: 128 } }],
        ['shapes without a kernel', { deltaNet: { taps: 4, heads: 8, keyHeads: 4, headDim: 32 } }],
        ['listed layers, the last with a delta net', { stateLayers: [1, 3] }],
        ['RoPE of whole heads', { rotated: 64 }],
        ['Qwen3-Next’s order of heads', { ...qwen3next(8, 2) }],
        ['Qwen3-Next’s order of heads, by ggml', { ...qwen3next(8, 4, { headDim: 32 }) }],
        ['one matrix for all, as in older files of Qwen3-Next', { ...qwen3next(4, 2, { hasJointProjection: true }) }],
        ['as many heads of keys in Qwen3-Next', { ...qwen3next(4, 4), predictionLayers: 1 }],
      ];
      it.each(some(qwen35Variants))('with architecture qwen35 and %s', async (name, options) => {
        const all = { architecture: 'qwen35', type: 'F32', ...options } as const;
        await compare(await modelFor(`qwen35-${name.replaceAll(/\W/g, '-')}`, all), { isF32: true });
      });

      const gemmaVariants: [name: string, options: Partial<ModelOptions>][] = [
        ['a window that the prompt does not fill', { window: 200 }],
        ['a window of one block', { window: 16 }],
        ['no window', { window: 0 }],
        ['a window in every layer', { windowPattern: 0 }],
        ['full attention in every third layer', { windowPattern: 3, layers: 5 }],
        ['an output matrix', { tied: false }],
        ['a soft cap of logits', { finalSoftCap: 4 }],
        ['linear RoPE scaling of full attention', { ropeScaling: 'linear' }],
      ];
      it.each(some(gemmaVariants))('with architecture gemma3 and %s', async (name, options) => {
        await compare(
          await modelFor(`gemma3-${name.replaceAll(/\W/g, '-')}`, { architecture: 'gemma3', type: 'F32', ...options }),
          { isF32: true, tolerance: gelu },
        );
      });

      const gemma4Variants: [name: string, options: Partial<ModelOptions>][] = [
        ['a window that the prompt does not fill', { window: 200 }],
        ['experts beside networks, and K as V', gemma4WithExperts],
        ['one width of networks, and no scalars', { gemma4: { doubleWide: false, scales: false } }],
        ['heads of 512 and 256', { layers: 3, headDim: 512, gemma4: { ...alone, windowHeads: wideHeads } }],
        [
          'separate gates of experts',
          { ...gemma4WithExperts, experts: { ...fusedExperts, hasFusedGate: false }, gemma4: { scales: false } },
        ],
        ['matrices of K and V that nothing reads', { gemma4: { spareKv: true, fusedQkv: true } }],
        ['no shared layers', { layers: 3, gemma4: { sharedLayers: 0 } }],
        [
          'five shared layers and no per-layer embeddings',
          { layers: 8, gemma4: { sharedLayers: 5, perLayerLength: 0 } },
        ],
        ['an output matrix and a soft cap of logits', { tied: false, finalSoftCap: 4 }],
        ['another base of RoPE in layers with a window', { windowFreqBase: 500 }],
      ];
      it.each(some(gemma4Variants))('with architecture gemma4 and %s', async (name, options) => {
        await compare(
          await modelFor(`gemma4-${name.replaceAll(/\W/g, '-')}`, { architecture: 'gemma4', type: 'F32', ...options }),
          { isF32: true, tolerance: gelu, ourTolerance: gelu },
        );
      });

      const gptOssVariants: [name: string, options: Partial<ModelOptions>][] = [
        ['a window that the prompt does not fill', { window: 200 }],
        ['a window of one block', { window: 16 }],
        ['a window in every layer', { windowPattern: 0 }],
        ['full attention in every third layer', { windowPattern: 3, layers: 5 }],
        // Not YaRN, whose frequencies libllama rounds: `rope-constants.test.ts` compares them with those of transformers.
        ['another base of RoPE in layers with a window', { windowFreqBase: 500 }],
        ['eight query heads for each KV head', { heads: 16, headsKv: 2 }],
        ['no biases of queries, keys and values', { qkvBias: false }],
      ];
      it.each(some(gptOssVariants))('with architecture gpt-oss and %s', async (name, options) => {
        const path = await modelFor(`gpt-oss-${name.replaceAll(/\W/g, '-')}`, {
          ...gptOssLayers,
          architecture: 'gpt-oss',
          type: 'F32',
          ...options,
        });
        await compare(path, { isF32: true });
      });

      type Variant = [name: string, options: Pick<ModelOptions, 'architecture'> & Partial<ModelOptions>];
      const denseVariants: Variant[] = [
        ['smollm3 and YaRN', { architecture: 'smollm3', layers: 5, ropeScaling: 'yarn' }],
        ['smollm3 and no layer without RoPE', { architecture: 'smollm3', layers: 3, tied: true }],
        ['smollm3 and one KV head', { architecture: 'smollm3', headsKv: 1 }],
        ['olmo2 and as many KV heads as query heads', { architecture: 'olmo2', layers: 2, headsKv: 4 }],
        [
          'olmo2, windows and YaRN (OLMo 3)',
          { architecture: 'olmo2', window: 40, windowPattern: 4, ropeScaling: 'yarn' },
        ],
        ['olmo2 and listed layers with a window', { architecture: 'olmo2', window: 24, windowLayers: [1, 2] }],
        ['olmo2 and windows of one block', { architecture: 'olmo2', window: 16 }],
        ['olmo2 and YaRN', { architecture: 'olmo2', ropeScaling: 'yarn' }],
        ['glm4 and RoPE of whole heads', { architecture: 'glm4', rotated: 64, tied: true }],
        ['glm4 and biases', { architecture: 'glm4', qkvBias: true, layers: 3 }],
        ['glm4 and layers for multi-token prediction', { architecture: 'glm4', predictionLayers: 1 }],
        ['glm4moe and norms of q and k', { architecture: 'glm4moe', qkNorm: 'head', qkvBias: false, layers: 3 }],
        ['glm4moe and layers for multi-token prediction', { architecture: 'glm4moe', predictionLayers: 1 }],
        ['glm4moe and scaled weights of experts', { architecture: 'glm4moe', experts: deepseek3Experts }],
        ['lfm2moe and a dense layer less', { architecture: 'lfm2moe', layers: 3, experts: softmaxExperts }],
        ['phi3 and RoPE of three quarters of a head', { architecture: 'phi3', rotated: 48, tied: true }],
        ['phi3 and heads of 96', { architecture: 'phi3', embedding: 384, headDim: 96, rotated: 96 }],
        [
          'phi3 and the long factors of LongRoPE',
          { architecture: 'phi3', ropeScaling: 'longrope', originalContext: 64 },
        ],
        [
          'phi3 and the short factors of LongRoPE',
          { architecture: 'phi3', ropeScaling: 'longrope', originalContext: 256, context: 256 },
        ],
        ['mistral3 and a multiplier of YaRN', { architecture: 'mistral3', ropeScaling: 'yarn', yarnLogMultiplier: 1 }],
        [
          'mistral3, YaRN and a temperature',
          {
            architecture: 'mistral3',
            ropeScaling: 'yarn',
            originalContext: 32,
            temperatureScale: 0.3,
            yarnLogMultiplier: 0.5,
          },
        ],
        [
          'mistral3 and a temperature of each token',
          { architecture: 'mistral3', originalContext: 1, temperatureScale: 0.1 },
        ],
      ];
      it.each(some(denseVariants))('with architecture %s', async (name, options) => {
        const path = await modelFor(name.replaceAll(/\W/g, '-'), { type: 'F32', ...options });
        await compare(
          path,
          options.architecture === 'phi3' ? { isF32: true, tolerance: scaledQueries(true) } : { isF32: true },
        );
      });

      const mixtures: [name: string, experts: ExpertConfig][] = [
        ['one expert for each token', { count: 4, used: 1, feedForwardLength: 96 }],
        ['all experts for each token', { count: 3, used: 3, feedForwardLength: 64 }],
        ['more experts than a batch has rows', { count: 128, used: 8, feedForwardLength: 32 }],
      ];
      it.each(some(mixtures))('with %s', async (name, experts) => {
        // Without rounding of activations, so that both sides choose the same experts.
        const options = { architecture: 'qwen3moe', type: 'F32', experts } as const;
        await compare(await modelFor(name.replaceAll(' ', '-'), options), { isF32: true });
      });

      const latentVariants: [name: string, options: Partial<ModelOptions>][] = [
        ['YaRN', { ropeScaling: 'yarn', yarnLogMultiplier: 0.75 }],
        ['YaRN without a multiplier', { ropeScaling: 'yarn' }],
        ['linear RoPE scaling', { ropeScaling: 'linear' }],
        [
          'one head',
          { heads: 1, latent: { rank: 64, ropeLength: 32, queryLength: 32, valueLength: 48, queryRank: 96 } },
        ],
        ['a sigmoid, a bias of the choice and scaled weights', { experts: deepseek3Experts }],
        [
          'one matrix for gate and up, and a layer for multi-token prediction (GLM-4.7-Flash)',
          { experts: { ...deepseek3Experts, hasFusedGate: true }, layers: 3, predictionLayers: 1 },
        ],
      ];
      it.each(some(latentVariants))('with architecture deepseek2 and %s', async (name, options) => {
        await compare(
          await modelFor(`deepseek2-${name.replaceAll(/\W/g, '-')}`, {
            architecture: 'deepseek2',
            type: 'F32',
            ...options,
          }),
          { isF32: true, tolerance: latent(true) },
        );
      });

      const withPrediction: Variant[] = [
        ['deepseek2', { architecture: 'deepseek2', layers: 2, predictionLayers: 2 }],
        ['qwen35', { architecture: 'qwen35', layers: 3, stateLayers: [0, 2], predictionLayers: 1 }],
        ['qwen35moe', { architecture: 'qwen35moe', layers: 3, predictionLayers: 1 }],
        [
          'qwen3next, with one matrix for gate and up of each expert,',
          { ...qwen3next(4, 2), architecture: 'qwen3next', experts: fusedExperts, predictionLayers: 1 },
        ],
      ];
      it.each(some(withPrediction))(
        'with architecture %s and layers for multi-token prediction',
        async (name, options) => {
          const path = await modelFor(`${name}-prediction`, { type: 'F32', ...options });
          await compare(path, { isF32: true, tolerance: latent(true) });
        },
      );

      it('with the Lite shape, which llama.cpp recognizes by its 26 or 27 layers', async () => {
        const path = await modelFor('deepseek2-lite', { architecture: 'deepseek2', type: 'F32', ...liteShape });
        await compare(path, { isF32: true, tolerance: latent(true), ourTolerance: 0.005 });
      });
    });
  });

describe('libllama with its default batches', needs(hasCompiler, 'no C compiler'), () => {
  it('differs from our logits no more than from its own logits with small batches', async () => {
    const path = await modelFor('llama-Q8_0', { architecture: 'llama', type: 'Q8_0' });
    const rowFor = (microBatch: number): Float32Array => {
      const reference = openReference(path, { contextLength: 256, threads: 1, batch: 128, microBatch });
      reference.decode(referencePrompt);
      const row = reference.logits().slice();
      reference.close();
      return row;
    };
    const theirs = rowFor(512);
    const limit = distance(rowFor(gathered.microBatch), theirs) + gathered.tolerance;
    for (const attention of ['gather', 'native'] as const) {
      for (const numerics of ['exact', 'fast'] as const) {
        expect(
          distance(await logitsAfterPrompt(path, { attention, numerics, matmulKernels: false }), theirs),
        ).toBeLessThan(limit);
      }
    }
  });
});

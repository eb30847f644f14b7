import { assertDefined } from '../../base/assert.ts';
import { defineError } from '../../base/errors.ts';
import type { ComputeDevice } from '../../ggml/device.ts';
import { CompileFailure, type CompileOptions, doWithout } from '../../native/compiler.ts';
import type { KvLayout, KvMemory } from '../kv-memory.ts';
import { exactUnavailable } from '../matmul/exact-row-rule.ts';
import type { Attention, AttentionLayer } from './attention.ts';
import { GatherAttention, type GatherOptions } from './attention-gather.ts';
import { type AttentionKernel, loadAttentionKernel } from './attention-kernel.ts';
import { NativeAttention } from './attention-native.ts';
import { AttentionOfParts } from './attention-of-parts.ts';
import { exactGatherForm, fastGather, gatherOnCpu } from './gather-form.ts';
import { selfTest } from './self-test.ts';

/** `auto`: the native kernel if it can be loaded, else ggml over gathered blocks. */
export type AttentionOption = 'auto' | 'native' | 'gather';

export const nativeAttentionUnavailable = defineError(
  'KVASIR_NATIVE_ATTENTION_UNAVAILABLE',
  '--attention native needs the native attention kernel, which cannot be used: {reason}. Install a C compiler (cc, or name one in CC), or use --attention auto.',
  500,
);

export const kvTypeUnsupported = defineError(
  'KVASIR_KV_TYPE_UNSUPPORTED',
  "KV of type {type} needs a head size that is a multiple of {multiple}, but this model's head size is {headDim}. Use --kv-cache-dtype f16.",
  400,
);

/** Made before the pool exists, because the choice decides the bits of KV. */
export interface AttentionChoice {
  readonly kind: 'native' | 'gather';
  /** All that decides the bits of KV: the kind, and the digest of the kernel's source. */
  readonly identity: string;
  /** For people: the kind, and why it was chosen. */
  readonly description: string;
  /** `memories`: the pool with the rows of each KV group. */
  create(memories: readonly KvMemory[], layers: readonly AttentionLayer[]): Attention;
}

export interface AttentionOptions extends CompileOptions {
  readonly option: AttentionOption;
  /** Of query heads. */
  readonly headCount: number;
  /** Of the KV groups with attention in the whole model, each once. */
  readonly layouts: readonly KvLayout[];
  /** Windows are before and after a token, as in encoders; default false. */
  readonly hasTwoSidedWindows?: boolean;
  /** On a GPU: whether a row must have the same bits in any batch; default false. On a CPU it always has. */
  readonly isExact?: boolean;
}

/**
 * Compiles, loads and tests the native kernels, unless `option` is `gather` or the device a GPU. Throws `nativeAttentionUnavailable`
 * for `native`, and `exactUnavailable`.
 */
export async function chooseAttention(device: ComputeDevice, options: AttentionOptions): Promise<AttentionChoice> {
  const { option, headCount, layouts, hasTwoSidedWindows = false, isExact: _, ...compile } = options;
  for (const { type, headDim, valueInKey = headDim } of layouts) {
    if (headDim % type.blockSize !== 0 || valueInKey % type.blockSize !== 0) {
      throw kvTypeUnsupported({ type: type.name.toLowerCase(), headDim, multiple: type.blockSize });
    }
  }
  if (device.kind !== 'cpu') {
    if (option === 'native') throw nativeAttentionUnavailable({ reason: 'the pool is on a GPU' });
    return gatherOnGpu(device, options);
  }
  const form = gatherOnCpu;
  if (option === 'gather') return gather(headCount, { form, reason: '--attention gather' });
  if (hasTwoSidedWindows)
    return gather(headCount, { form, reason: 'the windows of this model are before and after a token' });
  try {
    const kernels = new Map<KvLayout, AttentionKernel>();
    for (const layout of layouts) kernels.set(layout, await loadTested(device, headCount, layout, compile));
    return native(device, kernels);
  } catch (error) {
    if (!(error instanceof CompileFailure)) throw error;
    if (option === 'native') throw nativeAttentionUnavailable({ reason: error.message }, error);
    const instead =
      'ggml computes attention instead, which is slower, and the text may differ from engines that have the kernel.';
    doWithout(error, 'The native attention kernel', instead, compile);
    return gather(headCount, { form, reason: `no native kernel: ${error.message}` });
  }
}

async function loadTested(
  device: ComputeDevice,
  headCount: number,
  { headDim, headCountKv, blockSize, type: kvType, valueInKey }: KvLayout,
  compile: CompileOptions,
): Promise<AttentionKernel> {
  const shape = { headDim, group: headCount / headCountKv, blockSize, kvType, valueInKey };
  const kernel = await loadAttentionKernel(device.native, shape, compile);
  const mistake = mistakeOf(device, kernel, headCountKv);
  if (mistake !== undefined) throw new CompileFailure(`on this machine it ${mistake}`, { isAvoidable: true });
  return kernel;
}

function native(device: ComputeDevice, kernels: ReadonlyMap<KvLayout, AttentionKernel>): AttentionChoice {
  const all = [...kernels.values()];
  const shapes = all.map(
    ({ shape: { headDim, group, blockSize } }) =>
      `head size ${headDim}, ${group} query heads per KV head, block size ${blockSize}`,
  );
  const kernelOf = ({ headDim, headCountKv }: KvLayout): AttentionKernel => {
    const found = [...kernels].find(([layout]) => layout.headDim === headDim && layout.headCountKv === headCountKv);
    return assertDefined(found, 'a kernel for each layout of the model')[1];
  };
  return {
    kind: 'native',
    identity: `native ${all.map(({ sourceDigest }) => sourceDigest).join(' ')}`,
    description: `native kernel (${shapes.join('; ')})`,
    create: (memories, layers) =>
      byMemory(
        memories,
        layers,
        (memory, ofMemory) => new NativeAttention(device, memory, kernelOf(memory.layout), ofMemory),
      ),
  };
}

/** One attention for the layers of each layout. */
function byMemory(
  memories: readonly KvMemory[],
  layers: readonly AttentionLayer[],
  create: (memory: KvMemory, layers: readonly AttentionLayer[]) => Attention,
): Attention {
  const ofMemories = new Map<KvMemory, AttentionLayer[]>();
  const places = layers.map((layer) => {
    const memory = memories[layer.group]!;
    const ofMemory = ofMemories.get(memory) ?? [];
    ofMemories.set(memory, ofMemory);
    return { memory, layer: ofMemory.push(layer) - 1 };
  });
  const attentions = new Map([...ofMemories].map(([memory, ofMemory]) => [memory, create(memory, ofMemory)]));
  const [only] = attentions.values();
  if (attentions.size === 1 && only !== undefined) return only;
  return new AttentionOfParts(places.map(({ memory, layer }) => ({ attention: attentions.get(memory)!, layer })));
}

/** Results of `selfTest` in this process. A loaded library cannot change (`sealedPath`). */
const tested = new Map<string, ReturnType<typeof selfTest>>();

function mistakeOf(device: ComputeDevice, kernel: AttentionKernel, headCountKv: number): ReturnType<typeof selfTest> {
  const { kvType, ...shape } = kernel.shape;
  const key = JSON.stringify([kernel.libraryDigest, device.threads, headCountKv, kvType.name, shape]);
  if (!tested.has(key)) tested.set(key, selfTest(device, kernel, headCountKv));
  return tested.get(key);
}

/** For tests: kernels are tested again. */
export const forgetSelfTests = (): void => tested.clear();

interface Gathered {
  readonly form: GatherOptions;
  /** Why it was chosen. */
  readonly reason: string;
}

const gather = (headCount: number, { form, reason }: Gathered): AttentionChoice => ({
  kind: 'gather',
  identity: form.isByRow === true ? 'gather by row' : 'gather',
  description: `ggml over gathered blocks${form.isByRow === true ? ', row by row' : ''} (${reason})`,
  create: (memories, layers) =>
    byMemory(memories, layers, (memory, ofMemory) => new GatherAttention(memory, headCount, form, ofMemory)),
});

/** On a GPU. @throws exactUnavailable */
function gatherOnGpu(
  device: ComputeDevice,
  { headCount, layouts, isExact = false }: AttentionOptions,
): AttentionChoice {
  const form = isExact ? exactGatherForm(device, headCount, layouts) : fastGather;
  if (form === undefined) throw exactUnavailable({ device: device.description, operation: 'attention' });
  return gather(headCount, { form, reason: 'the pool is on a GPU' });
}

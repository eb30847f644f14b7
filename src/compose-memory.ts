/** Whether a model fits into the free memory, asked before its weights are read. */
import { availableMemory } from './base/available-memory.ts';
import { formatBytes } from './base/bytes.ts';
import type { MemoryLimit } from './base/memory-limit.ts';
import { bytesOnCpu, type Placement } from './compose-placement.ts';
import { memoryTooSmall } from './engine/errors.ts';
import type { ResolvedEngineOptions } from './engine/options.ts';
import type { GgufFile } from './ggml/gguf.ts';
import type { ModelConfig } from './ggml/model-config.ts';
import { stepBytes } from './runner/step-bytes.ts';
import { canMapWeights } from './runner/weight-store.ts';

interface CheckedModel {
  readonly file: GgufFile;
  readonly model: ModelConfig;
  /** Weights of a draft model. */
  readonly draftBytes: number;
  /** What tiers may keep in host memory. */
  readonly hostTierBytes: number;
}

/**
 * Counts what an engine needs in host memory: weights, the buffers of a step, and the KV pool if its size is given. A pool of the default
 * size takes what is left, so only what it needs at least counts. The system would end a process that fills more than there is.
 *
 * Weights that are mapped need none: the system drops their pages. Unless the options say how, they are mapped if copies do not fit.
 * @returns whether the weights are mapped
 * @throws memoryTooSmall
 */
export function checkMemory(
  options: ResolvedEngineOptions,
  { file, model, draftBytes, hostTierBytes }: CheckedModel,
  placed: Placement,
  measure: () => MemoryLimit = availableMemory,
): boolean {
  const { weightBytes, poolBytes } = bytesOnCpu(options, { file, model }, placed);
  const mayMap = weightBytes > 0 && options.mmap !== false && canMapWeights(file);
  const isAskedTo = mayMap && options.mmap === true;
  if (options.skipMemoryCheck || weightBytes === 0) return isAskedTo;
  const step = stepBytes(model, options);
  const others = poolBytes + step + draftBytes + hostTierBytes;
  const { bytes, text } = measure();
  const isMapped = isAskedTo || (mayMap && weightBytes + others > bytes);
  const needed = others + (isMapped ? 0 : weightBytes);
  if (needed <= bytes) return isMapped;
  const parts = [
    ['weights', isMapped ? 0 : weightBytes],
    ['the KV pool', poolBytes],
    ['steps', step],
    ['the draft model', draftBytes],
    ['the host tier', hostTierBytes],
  ] as const;
  throw memoryTooSmall({
    model: file.path,
    needed: formatBytes(needed),
    parts: parts.flatMap(([name, size]) => (size === 0 ? [] : `${formatBytes(size)} for ${name}`)).join(', '),
    available: text,
  });
}

/** What the operator should know of weights that are mapped although nothing says so, or copied although the options say the opposite. */
export function mappingNote({ mmap }: Pick<ResolvedEngineOptions, 'mmap'>, isMapped: boolean): string | undefined {
  if (isMapped && mmap === undefined)
    return 'The weights do not fit into the free memory. They stay in the model file (--mmap), and steps are slower.';
  if (!isMapped && mmap === true) return 'The weights are copied: they cannot be mapped here (--mmap).';
  return undefined;
}

/** A context that is shorter than this, and than the model's, is rarely meant. */
const contextMin = 1024;

/** If the pool limits a request to few tokens, what the operator should know. `longest`: tokens that the pool has room for. */
export function smallContext(
  { kvCacheMemory, maxModelLen }: Pick<ResolvedEngineOptions, 'kvCacheMemory' | 'maxModelLen'>,
  { contextLength }: Pick<ModelConfig, 'contextLength'>,
  longest: number,
): string | undefined {
  if (maxModelLen !== undefined || longest >= Math.min(contextLength, contextMin)) return undefined;
  const cause =
    kvCacheMemory === undefined
      ? 'little memory is free'
      : `--kv-cache-memory is ${formatBytes(kvCacheMemory)} (${kvCacheMemory} bytes)`;
  return `A prompt and its output have at most ${longest} tokens, of the ${contextLength} of the model, because ${cause}. Use a larger --kv-cache-memory, like 1GiB.`;
}

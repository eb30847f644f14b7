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
 * @throws memoryTooSmall
 */
export function checkMemory(
  options: ResolvedEngineOptions,
  { file, model, draftBytes, hostTierBytes }: CheckedModel,
  placed: Placement,
  measure: () => MemoryLimit = availableMemory,
): void {
  const { weightBytes, poolBytes } = bytesOnCpu(options, { file, model }, placed);
  if (options.skipMemoryCheck || weightBytes === 0) return;
  const step = stepBytes(model, options);
  const needed = weightBytes + poolBytes + step + draftBytes + hostTierBytes;
  const { bytes, text } = measure();
  if (needed <= bytes) return;
  const parts = [
    ['weights', weightBytes],
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

import type { Pooling } from '../core/request.ts';
import type { GgufFile } from './gguf.ts';

/** The poolings by llama.cpp's numbers. The numbers 0 (no pooling) and 4 (a reranker's score) give no embedding. */
const poolingTypes: Readonly<Record<number, Pooling>> = { 1: 'mean', 2: 'cls', 3: 'last' };

/** How the file pools hidden states to an embedding; undefined if it is not an embedding model. */
export function poolingOf({ metadata }: GgufFile, architecture: string): Pooling | undefined {
  return poolingTypes[metadata.u32(`${architecture}.pooling_type`) ?? 0];
}

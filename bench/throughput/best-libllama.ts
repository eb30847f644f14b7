import type { RandomTokens } from '../random-tokens.ts';
import { REFERENCE_BATCH } from '../subject/libllama-conversations.ts';
import { LibllamaSubject } from '../subject/libllama-subject.ts';
import { openReference } from '../subject/llama-reference.ts';
import type { Peer } from '../subject/open-peer.ts';
import { RunTimes } from '../subject/run-times.ts';
import { fillWorkload, type WorkloadShape, withShortAnswers, workloadTotals } from '../subject/workload.ts';

export interface LibllamaOptions {
  readonly path: string;
  readonly threads: number;
  readonly device: 'cpu' | 'gpu';
  readonly random: RandomTokens;
  readonly signal: AbortSignal;
  readonly onProgress: (text: string) => void;
}

/** Output tokens of each request in a trial: enough to compare the layouts. */
const TRIAL_TOKENS = 32;

/**
 * libllama can keep the KV of several sequences in one buffer or in one buffer for each sequence. The faster layout
 * depends on the workload and the machine, so both are tried. Separate buffers all have the size of the longest sequence.
 * They are not tried if they need more than twice the memory, as with very different lengths.
 */
export async function openBestLibllama(
  shape: WorkloadShape,
  { path, threads, device, random, signal, onProgress }: LibllamaOptions,
): Promise<Peer> {
  const sequences = shape.conversations.length;
  const { keptTokens, longest } = workloadTotals(shape);
  const open = (unified: boolean): Peer => {
    const contextLength = unified ? keptTokens : sequences * longest;
    const reference = openReference(path, {
      ...{ contextLength, batch: REFERENCE_BATCH, threads, device, sequences, unified },
    });
    return { subject: new LibllamaSubject(reference, sequences, signal), close: () => reference.close() };
  };
  const isWorthTrying = sequences > 1 && sequences * longest <= 2 * (keptTokens + sequences * shape.prefixLength);
  if (!isWorthTrying) return open(true);
  const workload = fillWorkload(withShortAnswers(shape, TRIAL_TOKENS), random);
  const secondsOf = async (unified: boolean): Promise<number> => {
    const candidate = open(unified);
    try {
      return await candidate.subject.run(workload, new RunTimes());
    } finally {
      candidate.close();
    }
  };
  const [unified, separate] = [await secondsOf(true), await secondsOf(false)];
  const figures = `one buffer of KV ${unified.toFixed(2)} s, one for each sequence ${separate.toFixed(2)} s`;
  onProgress(`libllama, ${sequences} requests: ${figures}; the faster one is measured`);
  return open(unified <= separate);
}

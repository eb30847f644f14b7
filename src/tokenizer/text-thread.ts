import { JobThread } from '../base/job-thread.ts';
import { entryPoint } from '../base/package-files.ts';
import type { EncodingVocab } from './encode-text.ts';

/** A text to tokenize on the thread. Plain data. */
export interface EncodeJob {
  /** Path of libllama, which this process has loaded. */
  readonly library: string;
  readonly vocab: EncodingVocab;
  readonly text: string;
  readonly addSpecial: boolean;
  readonly parseSpecial: boolean;
}

/**
 * A thread for texts that would block the event loop: libllama takes about a second for 1.5 million characters. Its call cannot be
 * interrupted, so the vocabulary is freed when the thread has closed. The length of the text bounds the call.
 */
export type TextThread = JobThread<EncodeJob, Int32Array>;

export const openTextThread = (): TextThread =>
  new JobThread({
    entry: entryPoint('src/tokenizer/text-thread-main'),
    name: 'kvasir-text',
    work: 'Tokenizing long texts',
  });

/**
 * A hundred times what libllama takes for a text of this length. Its call always ends and cannot be interrupted, so a short budget would
 * only fail requests on a busy machine.
 */
export const tokenizeBudgetMs = (text: string): number => 60_000 + text.length / 10;

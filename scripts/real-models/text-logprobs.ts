import { readFileSync } from 'node:fs';
import { openReference, type ReferenceOptions } from '../../bench/subject/llama-reference.ts';
import { readGguf } from '../../src/ggml/gguf.ts';
import { openTokenizer } from '../../src/tokenizer/llama-tokenizer.ts';

export const windowLength = 512;

/** Stories of the bundled model (`kvasir-demo.gguf`, temperature 0.7, seeds 1 to 21). */
const textPath = 'test/real-models/stories.txt';

/** The tokens of the text in windows, each of which begins with BOS if the model has one. */
export async function windowsOf(path: string, count: number): Promise<Int32Array[]> {
  const tokenizer = await openTokenizer(await readGguf(path));
  const bos = tokenizer.encode('');
  const tokens = tokenizer.encode(readFileSync(textPath, 'utf8'), { addSpecial: false });
  tokenizer.close();
  const length = windowLength - bos.length;
  return Array.from({ length: count }, (_, i) =>
    Int32Array.from([...bos, ...tokens.subarray(i * length, (i + 1) * length)]),
  );
}

export interface TextResults {
  /** Of each token after the first of its window. */
  readonly logprobs: readonly number[];
  /** All logits after each window. */
  readonly rows: readonly Float32Array[];
}

export function byLibllama(
  path: string,
  windows: readonly Int32Array[],
  options: Partial<ReferenceOptions> = {},
): TextResults {
  const reference = openReference(path, { contextLength: windowLength, threads: 1, batch: windowLength, ...options });
  const rows: Float32Array[] = [];
  const logprobs: number[] = [];
  for (const window of windows) {
    reference.clear();
    reference.decode(window, { wantAllLogits: true });
    for (const [at, token] of window.subarray(1).entries()) logprobs.push(logprobOf(reference.logits(at), token));
    rows.push(reference.logits(window.length - 1));
  }
  reference.close();
  return { logprobs, rows };
}

const stepsPerUnit = 1024;
/** Logits that are 40 below the greatest add nothing to the sum. */
const rangeOfSum = 40;
const exponentials = Float64Array.from({ length: rangeOfSum * stepsPerUnit + 1 }, (_, i) =>
  Math.exp(-i / stepsPerUnit),
);

/**
 * A row has up to 262,144 logits, and `Math.exp` of each took as long as libllama's computation. The table with the first term of the
 * series is wrong by less than one millionth of a term. Loops by index take a fifth of the time of loops over the elements.
 */
function logprobOf(row: Float32Array, token: number): number {
  let most = -Infinity;
  for (let i = 0; i < row.length; i++) if (row[i]! > most) most = row[i]!;
  let sum = 0;
  for (let i = 0; i < row.length; i++) {
    const below = most - row[i]!;
    if (below >= rangeOfSum) continue;
    const step = Math.trunc(below * stepsPerUnit);
    sum += exponentials[step]! * (1 + step / stepsPerUnit - below);
  }
  return row[token]! - most - Math.log(sum);
}

/**
 * Logprobs of a text, beside libllama on the same file. Both sides round activations to 8 bits, and add in other orders. The last bit
 * decides some roundings, so single logprobs differ by some percent, in both directions. Their mean must not.
 */
import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { byLibllama, type TextResults, windowLength, windowsOf } from '../../scripts/real-models/text-logprobs.ts';
import { Drive } from '../support/drive.ts';
import { inLongForm } from '../support/long-form.ts';
import { needs } from '../support/needs.ts';
import { modelsToTest, timeoutMs } from '../support/real-models.ts';

/** The long form compares 5,110 tokens. The others have more parameters and larger vocabularies. */
const windowCounts = { smollm2: inLongForm(8, 1), gemma3: 1, 'qwen2.5-coder': 1 };
/** The default form computes the first half of a window. */
const length = inLongForm(windowLength, windowLength / 2);

/** The difference of the means is the logarithm of the ratio of the perplexities. */
const meanMax = inLongForm(0.01, 0.02);
/** The mean distance from the logprobs in F32, relative to libllama's. It was 0.99 with 2,044 tokens, and 1.04 with 255. */
const errorMax = inLongForm(1.05, 1.2);
/** On average, a logprob was 0.04 to 0.08 away from libllama's, and a logit 0.02 to 0.06 standard deviations. */
const distanceMax = { ofLogprobs: 0.1, ofLogits: 0.1 };

async function byKvasir(path: string, windows: readonly Int32Array[]): Promise<TextResults> {
  const rows: Float32Array[] = [];
  const drive = await Drive.open(path, { onLogits: (_, row) => rows.push(row.slice()) });
  const logprobs: number[] = [];
  for (const prompt of windows) {
    const traces = await drive.run([{ id: 'a', prompt, params: { promptLogprobs: 0, maxTokens: 1 } }]);
    logprobs.push(...traces.get('a')!.promptLogprobs.map(({ logprob }) => logprob));
  }
  await drive.close();
  return { logprobs, rows };
}

const meanOf = (values: readonly number[]): number => values.reduce((sum, value) => sum + value, 0) / values.length;
const differencesOf = (a: ArrayLike<number>, b: ArrayLike<number>): number[] =>
  Array.from({ length: b.length }, (_, i) => a[i]! - b[i]!);
const meanDistance = (a: ArrayLike<number>, b: ArrayLike<number>): number => meanOf(differencesOf(a, b).map(Math.abs));

function deviationOf(row: Float32Array): number {
  const mean = meanOf(Array.from(row));
  return Math.sqrt(meanOf(Array.from(row, (value) => (value - mean) ** 2)));
}

const expected = JSON.parse(readFileSync('test/real-models/expected-logprobs.json', 'utf8')) as Record<string, string>;

for (const { name, path, isThere, reason } of modelsToTest)
  describe(`the logprobs of a text with ${name}`, needs(isThere, reason), () => {
    it(
      'are on average those of libllama, and as near to those of the same weights in F32',
      async () => {
        const windows = (await windowsOf(path, windowCounts[name])).map((window) => window.subarray(0, length));
        const [ours, theirs] = [await byKvasir(path, windows), byLibllama(path, windows)];
        expect(ours.logprobs).toHaveLength(windows.length * (length - 1));
        expect(Math.abs(meanOf(differencesOf(ours.logprobs, theirs.logprobs)))).toBeLessThan(meanMax);
        expect(meanDistance(ours.logprobs, theirs.logprobs)).toBeLessThan(distanceMax.ofLogprobs);
        const ofLogits = ours.rows.map((row, i) => meanDistance(row, theirs.rows[i]!) / deviationOf(theirs.rows[i]!));
        expect(meanOf(ofLogits)).toBeLessThan(distanceMax.ofLogits);
        if (expected[name] === undefined) return;
        const inF32 = new Float32Array(Uint8Array.from(Buffer.from(expected[name], 'base64')).buffer);
        // The file has the logprobs of the first windows only.
        const exact = inF32.subarray(0, ours.logprobs.length);
        const [ourError, theirError] = [meanDistance(ours.logprobs, exact), meanDistance(theirs.logprobs, exact)];
        expect(ourError).toBeLessThan(theirError * errorMax);
      },
      timeoutMs,
    );
  });

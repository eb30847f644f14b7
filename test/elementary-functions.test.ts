/** Sines, exponentials, logarithms and tanh of Kvasir's kernels are compared with JavaScript's doubles. */
import { afterAll, describe, expect, it } from 'vitest';
import { assertDefined } from '../src/base/assert.ts';
import { elementarySource, kernelForm, outputOfForm } from './support/kernel-forms.ts';
import { needs } from './support/needs.ts';
import { temporaryFolder } from './support/tiny-model.ts';

const form = kernelForm('AVX2');
const folder = temporaryFolder();
afterAll(() => folder.remove());

const lines = typeof form === 'string' ? [] : await outputOfForm(form, 'elementary', elementarySource, folder.path);

/** The floats of a line of the program's output. */
function floats(name: string): Float32Array {
  const line = assertDefined(
    lines.find((each) => each.startsWith(`${name} `)),
    name,
  );
  const bits = line.split(' ').slice(1);
  return new Float32Array(Uint32Array.from(bits, (word) => Number.parseInt(word, 16)).buffer);
}

/** The distance of two neighbours of a float. */
const unitOf = (value: number): number => 2 ** Math.max(-149, Math.floor(Math.log2(Math.abs(value))) - 23);

describe('functions of kernels', needs(typeof form !== 'string', String(form)), () => {
  it.each<[name: string, inputs: string, reference: (x: number) => number]>([
    ['sine', 'angles', Math.sin],
    ['cosine', 'angles', Math.cos],
    ['exp', 'small', Math.exp],
    ['tanh', 'small', Math.tanh],
    ['log', 'positive', Math.log],
  ])('%s has an error of at most 0.502 units in the last place, at all magnitudes', (name, inputs, reference) => {
    const [xs, found] = [floats(inputs), floats(name)];
    expect(found.length).toBe(20_000);
    for (const [i, x] of xs.entries()) {
      const wanted = reference(x);
      if (Math.fround(wanted) === found[i]) continue;
      const error = Math.abs(found[i]! - wanted) / unitOf(wanted);
      expect(error, `${name} of ${x} is ${found[i]} instead of ${wanted}`).toBeLessThan(0.502);
    }
  });

  it('NaN stays NaN', () => expect(lines).toContain('not-a-number-stays yes'));
});

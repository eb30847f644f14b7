import { describe, expect, it } from 'vitest';
import { noGgufFiles, selectorAmbiguous, selectorUnknown } from './errors.ts';
import { modelsAmong, selectModel } from './select-model.ts';

const among = (...paths: string[]) => modelsAmong(paths.map((path) => ({ path })));
const selected = (selector: string | undefined, ...paths: string[]): string[] => {
  const model = { repository: 'a/b', revision: 'main', ...(selector === undefined ? {} : { selector }) };
  return selectModel(model, among(...paths)).files.map(({ path }) => path);
};
const refused = ({ definition }: { definition: { code: string } }) =>
  expect.objectContaining({ code: definition.code });

describe('the models of a repository', () => {
  it.each([
    ['Qwen3-0.6B-Q8_0.gguf', 'Q8_0'],
    ['model.Q4_K_M.gguf', 'Q4_K_M'],
    ['model-q4_k_m.gguf', 'Q4_K_M'],
    ['m-UD-Q4_K_XL.gguf', 'UD-Q4_K_XL'],
    ['gpt-oss-20b-mxfp4.gguf', 'MXFP4'],
    ['m-IQ4_XS.gguf', 'IQ4_XS'],
    ['BF16/m-BF16-00001-of-00001.gguf', 'BF16'],
    ['Q2-story.gguf', 'Q2'],
    ['kvasir-demo.gguf', 'kvasir-demo'],
  ])('%s has the label %s', (path, label) => {
    expect(among(path).map((model) => model.label)).toEqual([label]);
  });

  it('are GGUF files, but neither projectors nor statistics', () => {
    expect(among('README.md', 'mmproj-F16.gguf', 'sub/imatrix_x.gguf', 'm.gguf', 'm.safetensors')).toHaveLength(1);
  });

  it.each(['X.mmproj-Q8_0.gguf', 'X-mmproj-f16.gguf', 'sub/X-imatrix.gguf', 'X.imatrix.gguf'])('are not %s', (path) => {
    expect(among(path)).toEqual([]);
  });

  it('have the parts of a split file in their order, and are whole', () => {
    const parts = [
      'Q4_0/m-Q4_0-00002-of-00003.gguf',
      'Q4_0/m-Q4_0-00003-of-00003.gguf',
      'Q4_0/m-Q4_0-00001-of-00003.gguf',
    ];
    expect(selected('q4_0', ...parts)).toEqual([...parts].sort((a, b) => a.localeCompare(b)));
    expect(among(...parts.slice(1))).toEqual([]);
  });
});

describe('the selection of a model', () => {
  const files = ['m-Q2_K.gguf', 'm-Q4_K_M.gguf', 'm-Q8_0.gguf'];

  it('takes a quantization in any case, or a file', () => {
    expect(selected('q8_0', ...files)).toEqual(['m-Q8_0.gguf']);
    expect(selected('m-Q2_K.gguf', ...files)).toEqual(['m-Q2_K.gguf']);
    expect(selected('m-q2_k', ...files)).toEqual(['m-Q2_K.gguf']);
  });

  it('prefers Q4_K_M, then Q8_0, then the only model', () => {
    expect(selected(undefined, ...files)).toEqual(['m-Q4_K_M.gguf']);
    expect(selected(undefined, 'm-Q2_K.gguf', 'm-Q8_0.gguf')).toEqual(['m-Q8_0.gguf']);
    expect(selected(undefined, 'm-IQ1_S.gguf')).toEqual(['m-IQ1_S.gguf']);
  });

  it.each([
    'X.mmproj-Q8_0.gguf',
    'mtp-X-Q8_0.gguf',
    'X-mtp-Q8_0.gguf',
    'MTP/mtp-X-Q8_0.gguf',
    'eagle3-X-Q8_0.gguf',
    'X-eagle3-Q8_0.gguf',
    'dflash-X-Q8_0.gguf',
    'X-draft-Q8_0.gguf',
    'draft-X-Q8_0-00001-of-00001.gguf',
  ])('prefers a model to its companion %s', (companion) => {
    expect(selected('Q8_0', companion, 'X-Q8_0.gguf')).toEqual(['X-Q8_0.gguf']);
    expect(selected(undefined, companion, 'X-Q8_0.gguf')).toEqual(['X-Q8_0.gguf']);
    expect(selected(undefined, companion, 'X-Q5_K_S.gguf')).toEqual(['X-Q5_K_S.gguf']);
    expect(() => selected('Q8_0', companion, 'X-Q5_K_S.gguf')).toThrow('has no model Q8_0. It has: Q5_K_S.');
  });

  it('takes a companion that is named, or that is all there is', () => {
    expect(selected('mtp-X-Q8_0.gguf', 'mtp-X-Q8_0.gguf', 'X-Q8_0.gguf')).toEqual(['mtp-X-Q8_0.gguf']);
    expect(selected('mtp-x-q8_0', 'mtp-X-Q8_0.gguf', 'X-Q8_0.gguf')).toEqual(['mtp-X-Q8_0.gguf']);
    expect(selected('Q8_0', 'X-draft-Q8_0.gguf', 'X-draft-Q4_0.gguf')).toEqual(['X-draft-Q8_0.gguf']);
    expect(selected(undefined, 'X-MTP-Q8_0.gguf', 'X-MTP-Q2_K.gguf')).toEqual(['X-MTP-Q8_0.gguf']);
    expect(selected('Q4_K_M', 'X-imatrix-Q4_K_M.gguf')).toEqual(['X-imatrix-Q4_K_M.gguf']);
  });

  it('refuses to guess', () => {
    expect(() => selected(undefined, 'm-IQ1_S.gguf', 'm-IQ2_S.gguf')).toThrow(refused(selectorAmbiguous));
    expect(() => selected('Q8_0', 'a-Q8_0.gguf', 'b-Q8_0.gguf')).toThrow(refused(selectorAmbiguous));
  });

  it('names what there is, if there is no such model', () => {
    expect(() => selected('Q5_0', ...files)).toThrow(
      'has no model Q5_0. It has: Q2_K, Q4_K_M, Q8_0. Name one of these, as in hf:a/b:Q2_K.',
    );
    expect(() => selected('Q5_0', ...files)).toThrow(refused(selectorUnknown));
    expect(() => selected(undefined, 'model.safetensors')).toThrow(refused(noGgufFiles));
  });
});

import { describe, expect, it } from 'vitest';
import { hubNameInvalid } from './errors.ts';
import { hubName, isHubName, parseHubName } from './model-name.ts';

const code = hubNameInvalid.definition.code;

describe('names of models on the hub', () => {
  it.each([
    ['hf:Qwen/Qwen3-0.6B-GGUF', { repository: 'Qwen/Qwen3-0.6B-GGUF', revision: 'main' }],
    ['hf:Qwen/Qwen3-0.6B-GGUF:Q8_0', { repository: 'Qwen/Qwen3-0.6B-GGUF', revision: 'main', selector: 'Q8_0' }],
    ['HF:a/b@v1.0:sub/m.gguf', { repository: 'a/b', revision: 'v1.0', selector: 'sub/m.gguf' }],
    ['hf:a/b@refs/pr/1', { repository: 'a/b', revision: 'refs/pr/1' }],
    ['hf.co/a/b:Q4_K_M', { repository: 'a/b', revision: 'main', selector: 'Q4_K_M' }],
    ['https://huggingface.co/a/b', { repository: 'a/b', revision: 'main' }],
    ['https://huggingface.co/a/b/tree/dev', { repository: 'a/b', revision: 'dev' }],
    [
      'https://huggingface.co/a/b/blob/main/x%20y/m.gguf',
      { repository: 'a/b', revision: 'main', selector: 'x y/m.gguf' },
    ],
    [
      'https://huggingface.co/a/b/resolve/main/m.gguf?download=true',
      { repository: 'a/b', revision: 'main', selector: 'm.gguf' },
    ],
  ])('reads %s', (name, model) => {
    expect(isHubName(name)).toBe(true);
    expect(parseHubName(name)).toEqual(model);
    expect(parseHubName(hubName(model))).toEqual(model);
  });

  it.each([
    'hf:',
    'hf:model',
    'hf:a/b/c',
    'hf:../b',
    'hf:a/b@x@y',
    'hf:a/b@',
    'hf:a/b:',
    'hf:a/b:../m.gguf',
    'hf:a/b@../x',
    'hf:a/b@x\\y',
    'hf:a/b:m\0.gguf',
    'hf:a/b:C:/m.gguf',
    'hf:a/b:nul.gguf',
    'https://huggingface.co/a/b/discussions/1',
  ])('refuses %s', (name) => {
    expect(() => parseHubName(name)).toThrow(expect.objectContaining({ code }));
  });

  it.each(['m.gguf', './a/b', 'a/b', '/hf:/m.gguf'])('leaves %s to the file system', (name) => {
    expect(isHubName(name)).toBe(false);
  });
});

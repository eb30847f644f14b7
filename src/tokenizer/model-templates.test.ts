import { describe, expect, it } from 'vitest';
import { GgufMetadata, type GgufValue } from '../ggml/gguf-metadata.ts';
import { chooseTemplates, readModelTemplates } from './model-templates.ts';

const metadata = (entries: Readonly<Record<string, string>>): GgufMetadata => {
  const values = Object.entries(entries).map(([key, value]): [string, GgufValue] => [key, { type: 'string', value }]);
  return new GgufMetadata('m.gguf', new Map(values));
};
const all = readModelTemplates(
  metadata({
    'tokenizer.chat_template': 'plain',
    'tokenizer.chat_template.tool_use': 'tools',
    'tokenizer.chat_template.rag': 'documents',
    'tokenizer.chat_templates': 'not a template',
    'tokenizer.ggml.model': 'gpt2',
  }),
);

describe('the chat templates of a model', () => {
  it('are read with their names', () => {
    expect([...all]).toEqual([
      ['default', 'plain'],
      ['tool_use', 'tools'],
      ['rag', 'documents'],
    ]);
  });

  it('are `default`, and `tool_use` for conversations with tools, unless another one is chosen', () => {
    expect(chooseTemplates(all, undefined)).toEqual({ source: 'plain', toolTemplate: 'tools' });
    expect(chooseTemplates(all, 'rag')).toEqual({ source: 'documents' });
    expect(chooseTemplates(all, '{{ 1 }}')).toEqual({ source: '{{ 1 }}' });
    const plain = readModelTemplates(metadata({ 'tokenizer.chat_template': 'plain' }));
    expect(chooseTemplates(plain, undefined)).toEqual({ source: 'plain' });
    expect(chooseTemplates(new Map(), undefined)).toBeUndefined();
  });

  it('do not have a name that is in no file', () => {
    expect(() => chooseTemplates(all, 'none')).toThrow('the templates of the model are: default, tool_use, rag');
    expect(() => chooseTemplates(new Map(), 'none')).toThrow('the templates of the model are: none');
  });
});

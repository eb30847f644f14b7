import { describe, expect, it } from 'vitest';
import { jsonLimits } from '../../base/exact-json.ts';
import { checkJsonText, readBodyJson } from './json-limits.ts';

const check = (text: string) => () => readBodyJson(text);
const list = (count: number, item: (index: number) => string): string =>
  Array.from({ length: count }, (_, index) => item(index)).join(',');

describe('limits on the JSON of a body', () => {
  // Each text ends where the limit is exceeded: a parser would report that the JSON ends too early.
  const over: [name: string, text: string, parameter: string, what: string][] = [
    ['nested lists', `{"metadata":${'['.repeat(jsonLimits.levels)}`, 'metadata', 'nested levels'],
    ['nested objects', `{"tools":[],"a":${'{"a":'.repeat(jsonLimits.levels)}`, 'a', 'nested levels'],
    ['a body that is nested lists', '['.repeat(jsonLimits.levels + 1), 'body', 'nested levels'],
    ['names of biases', `{"logit_bias":{${list(5000, (i) => `"${i}":1`)}`, 'logit_bias', 'different field names'],
    ['names in many objects', `{"x":[${list(5000, (i) => `{"a${i}":1}`)}`, 'x', 'different field names'],
    ['empty objects', `{"messages":[${list(jsonLimits.objects, () => '{}')}`, 'messages', 'objects and lists'],
    ['strings', `{"stop":[${list(jsonLimits.strings, () => '""')}`, 'stop', 'strings'],
  ];
  it.each(over)('refuse %s before the text is parsed', (_, text, parameter, what) => {
    expect(check(text)).toThrow(
      expect.objectContaining({
        code: 'KVASIR_JSON_OVER_LIMIT',
        fields: expect.objectContaining({ parameter, what }),
      }),
    );
  });

  const within: [name: string, text: string][] = [
    ['a conversation of 100,000 messages', `{"messages":[${list(100_000, () => '{"role":"user","content":"a"}')}]}`],
    ['a text of brackets, colons and escaped quotes', JSON.stringify({ prompt: '[{":\\"'.repeat(100_000) })],
    ['a million tokens', `{"prompt":[${list(1_000_000, () => '7')}]}`],
    ['the deepest lists', `{"a":${'['.repeat(jsonLimits.levels - 1)}${']'.repeat(jsonLimits.levels - 1)}}`],
    ['an object with the most names', `{${list(jsonLimits.fieldNames, (i) => `"f${i}":1`)}}`],
  ];
  it.each(within)('accept %s', (_, text) => expect(check(text)).not.toThrow());

  it('count names by their content, also after escapes and spaces', () => {
    const names = list(jsonLimits.fieldNames, () => '{"a\\"b" : 1, "c":"d"}');
    expect(check(`{"x":[${names}]}`)).not.toThrow();
    const after = `{"x":{"y":":"},"a\\"{b" :${'['.repeat(jsonLimits.levels)}`;
    expect(check(after)).toThrow(expect.objectContaining({ fields: expect.objectContaining({ parameter: 'a\\"{b' }) }));
  });

  it('report text that is not JSON, without a part of it', () => {
    expect(check('')).toThrow('it ends too early');
    expect(check(']]}}"')).toThrow('it cannot be parsed at position 0');
  });

  it('hold for JSON in texts of the body', () => {
    const nested = '['.repeat(3_000_000);
    expect(() => checkJsonText(nested, 'messages[0].x')).toThrow('exceeded in `messages[0].x`');
    expect(() => checkJsonText('no JSON '.repeat(100), 'x')).not.toThrow();
  });
});

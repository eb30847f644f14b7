import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { parserOf, type ToolFormat, toolFormats } from './formats.ts';
import type { AnswerPart } from './tool.ts';

interface Answer {
  content: string;
  reasoning: string;
  calls: { name: string; arguments: string }[];
}

/** What a client puts together from the parts. */
function assemble(parts: readonly AnswerPart[]): Answer {
  const answer: Answer = { content: '', reasoning: '', calls: [] };
  for (const part of parts) {
    if (part.kind === 'content' || part.kind === 'reasoning') answer[part.kind] += part.text;
    else if (part.kind === 'call') {
      expect(part.index).toBe(answer.calls.length);
      answer.calls.push({ name: part.name, arguments: '' });
    } else answer.calls[part.index]!.arguments += part.text;
  }
  return answer;
}

function read(format: ToolFormat, pieces: readonly string[]): Answer {
  const parser = parserOf(format);
  return assemble([...pieces.flatMap((piece) => parser.add(piece)), ...parser.end()]);
}

const call = (name: string, text: string) => ({ name, arguments: text });
const answer = (content: string, ...calls: Answer['calls']): Answer => ({ content, reasoning: '', calls });

const cases: [ToolFormat, string, string, Answer][] = [
  ['hermes', 'a text', 'Hello <b>you</b>.\n', answer('Hello <b>you</b>.\n')],
  [
    'hermes',
    'a call',
    '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>',
    answer('', call('f', '{"a": 1}')),
  ],
  [
    'hermes',
    'text and two calls',
    'I look.\n\n<tool_call>\n{"name": "f", "arguments": {"a": "}\\"<"}}\n</tool_call>\n<tool_call>\n{"arguments": [1], "name": "g"}\n</tool_call>\n',
    answer('I look.', call('f', '{"a": "}\\"<"}'), call('g', '[1]')),
  ],
  ['hermes', 'no arguments', '<tool_call>{"name": "f"}</tool_call>', answer('', call('f', '{}'))],
  [
    'hermes',
    'arguments as a text',
    '<tool_call>{"name": "f", "arguments": "{\\"a\\": 1}"}</tool_call>',
    answer('', call('f', '{"a": 1}')),
  ],
  ['hermes', 'a call without its end', '<tool_call>{"name": "f", "arguments": {"a": ', answer('', call('f', '{"a": '))],
  ['hermes', 'a call without a name', '<tool_call>{"a": 1}</tool_call> x', answer('<tool_call>{"a": 1}</tool_call> x')],
  ['hermes', 'no JSON', '<tool_call>f(1)</tool_call>', answer('<tool_call>f(1)</tool_call>')],
  ['hermes', 'half a tag', 'a <tool_', answer('a <tool_')],
  ['llama3_json', 'a text', 'Hello {"name": 1}', answer('Hello {"name": 1}')],
  ['llama3_json', 'a call', '{"name": "f", "parameters": {"a": 1}}', answer('', call('f', '{"a": 1}'))],
  [
    'llama3_json',
    'two calls',
    '<|python_tag|>{"name": "f", "parameters": {}}; {"name": "g", "parameters": {"x": [{}]}}',
    answer('', call('f', '{}'), call('g', '{"x": [{}]}')),
  ],
  ['llama3_json', 'other JSON', ' {"city": "Rome"} is it', answer(' {"city": "Rome"} is it')],
  ['llama3_json', 'white space', ' \n', answer(' \n')],
  ['mistral', 'a text', 'A [TOOL] b', answer('A [TOOL] b')],
  [
    'mistral',
    'a list',
    'Wait. [TOOL_CALLS] [{"name": "f", "arguments": {"a": 1}}, {"name": "g", "arguments": {}}]',
    answer('Wait.', call('f', '{"a": 1}'), call('g', '{}')),
  ],
  [
    'mistral',
    'names and arguments',
    '[TOOL_CALLS]f[ARGS]{"a": 1}[TOOL_CALLS]g{"b": "[TOOL"}',
    answer('', call('f', '{"a": 1}'), call('g', '{"b": "[TOOL"}')),
  ],
  [
    'openai',
    'reasoning and a call',
    '<|channel|>analysis<|message|>Think.<|end|><|start|>assistant<|channel|>commentary to=functions.get_x <|constrain|>json<|message|>{"a": 1}<|call|>',
    { content: '', reasoning: 'Think.', calls: [call('get_x', '{"a": 1}')] },
  ],
  ['openai', 'an answer', '<|channel|>final<|message|>Hello <|user|>.<|return|>', answer('Hello <|user|>.')],
  ['openai', 'an answer without a header', 'Hello.', answer('Hello.')],
];

describe('parsers of answers', () => {
  it.each(cases)('%s: %s', (format, _, text, expected) => {
    expect(read(format, [text])).toEqual(expected);
    expect(read(format, [...text])).toEqual(expected);
  });

  it.each(toolFormats)('%s: the parts do not depend on the pieces of the text', (format) => {
    const pieces = [
      '<tool_call>',
      '</tool_call>',
      '{"name": "f"',
      ', "arguments": ',
      '{"a": [1, "}"]}',
      '}',
      '[TOOL_CALLS]',
      '[ARGS]',
      '[',
      ']',
      '<|channel|>final',
      '<|message|>',
      '<|call|>',
      'to=functions.f ',
      ' ',
      '\n',
      ';',
      '"',
      '\\',
      'text',
      '<|python_tag|>',
    ];
    fc.assert(
      fc.property(fc.array(fc.constantFrom(...pieces)), fc.array(fc.nat(7)), (texts, cuts) => {
        const text = texts.join('');
        const parts: string[] = [];
        for (let at = 0, i = 0; at < text.length; i++) {
          const length = 1 + (cuts[i % Math.max(1, cuts.length)] ?? 0);
          parts.push(text.slice(at, at + length));
          at += length;
        }
        expect(read(format, parts)).toEqual(read(format, [text]));
      }),
    );
  });

  it.each<[ToolFormat, (json: string) => string]>([
    ['hermes', (json) => `<tool_call>\n${json}\n</tool_call>`],
    ['llama3_json', (json) => json],
    ['mistral', (json) => `[TOOL_CALLS][${json}]`],
  ])('%s: random arguments arrive as they were written', (format, wrap) => {
    fc.assert(
      fc.property(fc.dictionary(fc.string(), fc.jsonValue()), fc.boolean(), (value, isNameLast) => {
        const fields = isNameLast ? { arguments: value, name: 'f' } : { name: 'f', arguments: value };
        const { calls } = read(format, [...wrap(JSON.stringify(fields))]);
        expect(calls).toHaveLength(1);
        expect(JSON.parse(calls[0]!.arguments)).toEqual(JSON.parse(JSON.stringify(value)));
      }),
    );
  });

  it('pass arguments on as they come, once the name is known', () => {
    const parser = parserOf('hermes');
    expect(parser.add('<tool_call>{"name": "f", "argu')).toEqual([{ kind: 'call', index: 0, name: 'f' }]);
    expect(parser.add('ments": {"a": "lo')).toEqual([{ kind: 'arguments', index: 0, text: '{"a": "lo' }]);
    expect(parser.add('ng"}}</tool')).toEqual([{ kind: 'arguments', index: 0, text: 'ng"}' }]);
  });
});

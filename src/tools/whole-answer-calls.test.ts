import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { type AnswerFormat, answerParser, type ToolFormat } from './formats.ts';
import type { AnswerPart, Tool } from './tool.ts';

const offered: Tool[] = [
  {
    type: 'function',
    function: {
      name: 'weather',
      parameters: {
        type: 'object',
        properties: { city: { type: 'string' }, days: { type: 'integer' }, exact: { type: 'number' } },
        required: ['city'],
      },
    },
  },
  { type: 'function', function: { name: 'now' } },
  { type: 'function', function: { name: 'list_a', parameters: {} } },
  { type: 'function', function: { name: 'list_b', parameters: { type: 'object' } } },
  { type: 'function', function: { name: 'list_c', parameters: { type: 'object', properties: {}, required: [] } } },
  {
    type: 'function',
    function: { name: 'list_d', parameters: { type: 'object', properties: {}, additionalProperties: false } },
  },
  { type: 'function', function: { name: 'need', parameters: { type: 'object', required: ['city'] } } },
];
const formatOf = (tools: ToolFormat): AnswerFormat => ({ tools, offered, reasoning: undefined });

/** The content, and calls as `name(arguments)`. */
function read(pieces: readonly string[], format = formatOf('hermes')): { content: string; calls: string[] } {
  const parser = answerParser(format, '')!;
  const answer = { content: '', calls: [] as string[] };
  const parts: AnswerPart[] = [...pieces.flatMap((piece) => parser.add(piece)), ...parser.end()];
  for (const part of parts) {
    if (part.kind === 'content') answer.content += part.text;
    else if (part.kind === 'call') answer.calls.push(`${part.name}:`);
    else if (part.kind === 'arguments') answer.calls[part.index] += part.text;
  }
  return answer;
}

const call = '{"name": "weather", "arguments": {"city": "Rome"}}';
const made = { content: '', calls: ['weather:{"city": "Rome"}'] };
const calls: [string, string[]][] = [
  [call, made.calls],
  [` \n${call}\n`, made.calls],
  [`\`\`\`json\n${call}\n\`\`\``, made.calls],
  [`\`\`\`\n${call}\n\`\`\`\n`, made.calls],
  [`\`\`\`json\n${call}`, made.calls],
  [`[${call}, {"name": "now", "parameters": {}}]`, [...made.calls, 'now:{}']],
  [`${call}\n{"name": "now", "arguments": {"a": 1}}`, [...made.calls, 'now:{"a": 1}']],
  // The schema of a tool without parameters instead of no arguments.
  ...['now', 'list_a', 'list_b', 'list_c', 'list_d'].flatMap((name): [string, string[]][] =>
    ['{}', '{"type": "object", "properties": {}}'].map((json) => [
      `{"name": "${name}", "arguments": ${json}}`,
      [`${name}:${json}`],
    ]),
  ),
  ['{"name": "list_c", "arguments": {"cursor": "x"}}', ['list_c:{"cursor": "x"}']],
  [
    '{"arguments": {"city": "Rome", "days": 2.0, "exact": 12345678901234567890}, "name": "weather"}',
    ['weather:{"city": "Rome", "days": 2.0, "exact": 12345678901234567890}'],
  ],
];
const others = [
  'Hello.',
  '',
  '  ',
  '```',
  '```json',
  '{"name": "Bob", "age": 3}',
  '{"city": "Rome"}',
  '{"name": "weather"}',
  '{"name": "list_d", "arguments": {"cursor": "x"}}',
  '{"name": "need", "arguments": {"type": "object"}}',
  '{"name": "other", "arguments": {"city": "Rome"}}',
  `${call} is how to call it.`,
  `\`\`\`json\n${call}\n\`\`\`\nThis calls it.`,
  `Here:\n\`\`\`json\n${call}\n\`\`\``,
  `\`\`\`python\n${call}\n\`\`\``,
  '{"name": "weather", "arguments": {"days": 2}}',
  '{"name": "weather", "arguments": {"city": 7}}',
  '{"name": "weather", "arguments": {"city": "Rome", "days": 1.5}}',
  '{"name": "weather", "arguments": {"city": "Rome", "unit": "C"}}',
  '{"name": "weather", "arguments": {"city": "Ro',
  '[1, 2]',
  `${' '.repeat(300)}${call}`,
];

describe('an answer that is JSON alone', () => {
  it.each(calls)('%j is calls', (text, expected) => expect(read([text])).toEqual({ content: '', calls: expected }));
  it.each(others)('%j is content, as the model wrote it', (text) =>
    expect(read([text])).toEqual({ content: text, calls: [] }),
  );

  it('is read alike in any pieces, in every format', () => {
    const formats = ['hermes', 'mistral', 'qwen3_coder', 'glm47', 'lfm2'] as const;
    const texts = fc.constantFrom(...calls.map(([text]) => text), ...others);
    fc.assert(
      fc.property(texts, fc.array(fc.nat(40)), fc.constantFrom(...formats), (text, cuts, format) => {
        const ends = [...new Set(cuts.filter((cut) => cut < text.length)), text.length].sort((a, b) => a - b);
        const pieces = ends.map((end, i) => text.slice(ends[i - 1] ?? 0, end));
        expect(read(pieces, formatOf(format))).toEqual(read([text], formatOf(format)));
      }),
    );
  });

  it('gives back other JSON as soon as it is no call', () => {
    const parser = answerParser(formatOf('hermes'), '')!;
    expect(parser.add('{"city"')).toEqual([{ kind: 'content', text: '{"city"' }]);
    expect(parser.add(': 1}')).toEqual([{ kind: 'content', text: ': 1}' }]);
  });

  it('in the format of Llama is read as it comes, and in a fence too', () => {
    const parser = answerParser(formatOf('llama3_json'), '')!;
    expect(parser.add('{"name": "weather", "parameters": {"ci')).toMatchObject([
      { kind: 'call' },
      { kind: 'arguments' },
    ]);
    expect(read([`\`\`\`json\n${call}\n\`\`\``], formatOf('llama3_json'))).toEqual(made);
  });

  it('that continues a message is content', () => {
    expect(read([call], { ...formatOf('hermes'), continued: 'The call is ' })).toEqual({ content: call, calls: [] });
  });
});

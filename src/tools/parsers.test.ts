import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { fuzzRuns } from '../../test/support/long-form.ts';
import type { JsonObject } from '../base/json.ts';
import { parserOf, type ToolFormat, toolFormats } from './formats.ts';
import { type Answer, answer, call, cases, offered, tool } from './parser-cases.suite.ts';
import type { AnswerPart } from './tool.ts';

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

function read(format: ToolFormat, pieces: readonly string[], tools = offered, isCut = false): Answer {
  const parser = parserOf(format, tools);
  return assemble([...pieces.flatMap((piece) => parser.add(piece)), ...parser.end(isCut)]);
}

describe('parsers of answers', () => {
  it.each(cases)('%s: %s', (format, _, text, expected) => {
    expect(read(format, [text])).toEqual(expected);
    // Every piece is one UTF-16 unit, so pairs of surrogates are cut.
    expect(read(format, text.split(''))).toEqual(expected);
  });

  it.each(toolFormats)(
    '%s: an answer that is cut anywhere has nothing that the whole answer does not have',
    (format) => {
      for (const [, , text, whole] of cases.filter(([of]) => of === format)) {
        const faults: (string | Answer)[] = [];
        for (let length = 0; length < text.length; length++) {
          const begin = text.slice(0, length);
          const cut = read(format, [begin], offered, true);
          const isPart =
            whole.content.startsWith(cut.content.trimEnd()) &&
            whole.reasoning.startsWith(cut.reasoning) &&
            cut.calls.every(({ name, arguments: json }, i) => {
              const made = whole.calls[i]!;
              return made.name === name && made.arguments.startsWith(json);
            });
          if (!isPart) faults.push(begin, cut);
          if (length % 8 === 0) expect(read(format, begin.split(''), offered, true)).toEqual(cut);
        }
        expect(faults).toEqual([]);
      }
    },
  );

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
      '[CALL_ID]',
      'f',
      '<function=v>',
      '<parameter=text>',
      '<parameter=list>',
      '</parameter>',
      '</function>',
      '<|tool_call_start|>',
      '<|tool_call_end|>',
      '<TOOLCALL>',
      '</TOOLCALL>',
      '[f(a=',
      "'x'",
      '""',
      '1',
      ',',
      ')',
      '<|end|>',
      '<|start|>assistant',
      '😀',
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
        // Without tools, no text is a call, and nothing is lost.
        if (format !== 'openai') expect(read(format, parts, [])).toEqual(answer(text));
      }),
      { numRuns: fuzzRuns(300) },
    );
  });

  it.each<[ToolFormat, (json: string) => string]>([
    ['hermes', (json) => `<tool_call>\n${json}\n</tool_call>`],
    ['llama3_json', (json) => json],
    ['mistral', (json) => `[TOOL_CALLS][${json}]`],
    ['nemotron_json', (json) => `<TOOLCALL>[${json}]</TOOLCALL>`],
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

  it('read a schema whose references double at each level, and one that contains itself', () => {
    const $defs = Object.fromEntries(
      Array.from({ length: 60 }, (_, i) => [
        `d${i}`,
        i === 59 ? { type: 'string' } : { anyOf: [{ $ref: `#/$defs/d${i + 1}` }, { $ref: `#/$defs/d${i + 1}` }] },
      ]),
    );
    const self = { anyOf: [{ type: 'null' }, { $ref: '#/properties/self' }] };
    const deep = tool('deep', { type: 'object', properties: { a: { $ref: '#/$defs/d0' }, self }, $defs });
    const text = '<function=deep><parameter=a>1</parameter><parameter=self>1</parameter></function>';
    expect(read('qwen3_coder', [text], [deep])).toEqual(answer('', call('deep', '{"a": "1", "self": 1}')));
  });

  it.each<[string, JsonObject]>([
    ['$ref', { $ref: '#/$defs/A' }],
    ['allOf', { allOf: [{ $ref: '#/$defs/A' }, { properties: { other: { type: 'integer' } } }] }],
    ['anyOf', { anyOf: [{ $ref: '#/$defs/A' }, { $ref: '#/$defs/B' }] }],
    ['a reference to itself', { $ref: '#/$defs/A', allOf: [{ $ref: '#' }] }],
  ])('follow %s at the root of parameters', (_, root) => {
    const $defs = {
      A: { type: 'object', properties: { zip: { type: 'string' }, is: { type: 'boolean' } } },
      B: { type: 'object', properties: { zip: { type: 'string', pattern: '^[0-9]{5}$' } } },
    };
    const offered = [tool('zip', { ...root, $defs })];
    const text = '<function=zip><parameter=zip>61133</parameter><parameter=is>true</parameter></function>';
    expect(read('qwen3_coder', [text], offered)).toEqual(answer('', call('zip', '{"zip": "61133", "is": true}')));
    const tags =
      '<tool_call>zip<arg_key>zip</arg_key><arg_value>true</arg_value><arg_key>is</arg_key><arg_value>true</arg_value></tool_call>';
    expect(read('glm47', [tags], offered)).toEqual(answer('', call('zip', '{"zip": "true", "is": true}')));
  });

  it('pass arguments on as they come, once the name is known', () => {
    const parser = parserOf('hermes', offered);
    expect(parser.add('<tool_call>{"name": "f", "argu')).toEqual([]);
    expect(parser.add('ments": {"a": "lo')).toEqual([
      { kind: 'call', index: 0, name: 'f' },
      { kind: 'arguments', index: 0, text: '{"a": "lo' },
    ]);
    expect(parser.add('ng"}}</tool')).toEqual([{ kind: 'arguments', index: 0, text: 'ng"}' }]);
  });
});

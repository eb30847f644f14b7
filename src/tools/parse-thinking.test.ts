import { describe, expect, it } from 'vitest';
import {
  beginsInThoughts,
  endsAfterThoughts,
  formatOfTemplate,
  reasoningFormatOfTemplate,
  thoughtTags,
} from './formats.ts';
import { ContentParser, ThinkingParser } from './parse-thinking.ts';
import { hermesParser } from './tag-calls.ts';

function read(pieces: readonly string[], beginsInside: boolean, hasTools = false, isCut = false) {
  const parser = new ThinkingParser(
    hasTools ? hermesParser(['f', 'g'].map((name) => ({ type: 'function', function: { name } }))) : new ContentParser(),
    { beginsInside },
  );
  const read = { reasoning: '', content: '', calls: [] as string[] };
  for (const part of [...pieces.flatMap((piece) => parser.add(piece)), ...parser.end(isCut)]) {
    if (part.kind === 'reasoning' || part.kind === 'content') read[part.kind] += part.text;
    if (part.kind === 'call') read.calls.push(part.name);
  }
  return read;
}

describe('thinking in tags', () => {
  it.each([
    ['thoughts and an answer', '<think>\nHm.\n</think>\n\nYes.', false, '\nHm.\n', 'Yes.'],
    ['an answer alone', ' \nYes. <think>', false, '', ' \nYes. <think>'],
    ['thoughts without an end', '<think>Hm. </thin', false, 'Hm. </thin', ''],
    ['an answer that begins inside the tag', 'Hm.</think>Yes.', true, 'Hm.', 'Yes.'],
    ['half a tag', '<thi', false, '', '<thi'],
    ['nothing', '', false, '', ''],
    ['empty thoughts', '<think></think>', false, '', ''],
  ])('%s', (_, text, beginsInside, reasoning, content) => {
    expect(read([text], beginsInside)).toEqual({ reasoning, content, calls: [] });
    expect(read([...text], beginsInside)).toEqual({ reasoning, content, calls: [] });
  });

  it.each([
    ['half a tag', '\n<thi', '', ''],
    ['half a closing tag', '<think>Hm.</thi', 'Hm.', ''],
    ['half a call', '<think>Hm.</think>\n\nYes. <tool_c', 'Hm.', 'Yes. '],
    ['white space', ' \n', '', ' \n'],
    ['an answer alone', 'Yes. <think', '', 'Yes. <think'],
  ])('that is cut: %s', (_, text, reasoning, content) => {
    expect(read([text], false, true, true)).toEqual({ reasoning, content, calls: [] });
    expect(read([...text], false, true, true)).toEqual({ reasoning, content, calls: [] });
  });

  it.each([
    ['thoughts and an answer', '<|channel>thought\nHm.\n<channel|>Yes.', 'Hm.\n', 'Yes.'],
    ['another channel', '<|channel>plan\nHm.<channel|>', '', '<|channel>plan\nHm.<channel|>'],
    ['empty thoughts', '<|channel>thought\n<channel|>Yes.', '', 'Yes.'],
  ])('of Gemma 4: %s', (_, text, reasoning, content) => {
    const tags = thoughtTags('gemma4');
    for (const pieces of [[text], [...text]]) {
      const parser = new ThinkingParser(new ContentParser(), { beginsInside: false, tags });
      const parts = [...pieces.flatMap((piece) => parser.add(piece)), ...parser.end()];
      const joined = (kind: string) =>
        parts.map((part) => (part.kind === kind && 'text' in part ? part.text : '')).join('');
      expect([joined('reasoning'), joined('content')]).toEqual([reasoning, content]);
    }
  });

  it('of Gemma 4 end in the prompt, if the template ends them', () => {
    const format = { tools: undefined, offered: [], reasoning: 'gemma4' } as const;
    expect(endsAfterThoughts(format, '<|turn>model\n<|channel>thought\n<channel|>')).toBe(true);
    expect(beginsInThoughts(format, '<|turn>model\n<|channel>thought\n')).toBe(true);
    expect(beginsInThoughts(format, '<|turn>model\n')).toBe(false);
    expect(reasoningFormatOfTemplate('<|channel>thought\n<channel|>')).toBe('gemma4');
    expect(formatOfTemplate("{{ '<|tool_call>call:' + name }}")).toBe('gemma4');
  });

  it('and calls, but not calls in thoughts', () => {
    const call = (name: string) => `<tool_call>{"name": "${name}", "arguments": {}}</tool_call>`;
    const text = `<think>${call('f')}</think>\n${call('g')}`;
    expect(read([...text], false, true)).toEqual({ reasoning: call('f'), content: '', calls: ['g'] });
  });
});

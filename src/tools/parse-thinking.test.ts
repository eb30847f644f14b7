import { describe, expect, it } from 'vitest';
import { ContentParser, ThinkingParser } from './parse-thinking.ts';
import { hermesParser } from './tag-calls.ts';

function read(pieces: readonly string[], beginsInside: boolean, hasTools = false) {
  const parser = new ThinkingParser(
    hasTools ? hermesParser(['f', 'g'].map((name) => ({ type: 'function', function: { name } }))) : new ContentParser(),
    { beginsInside },
  );
  const read = { reasoning: '', content: '', calls: [] as string[] };
  for (const part of [...pieces.flatMap((piece) => parser.add(piece)), ...parser.end()]) {
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

  it('and calls, but not calls in thoughts', () => {
    const call = (name: string) => `<tool_call>{"name": "${name}", "arguments": {}}</tool_call>`;
    const text = `<think>${call('f')}</think>\n${call('g')}`;
    expect(read([...text], false, true)).toEqual({ reasoning: call('f'), content: '', calls: ['g'] });
  });
});

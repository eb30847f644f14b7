import { describe, expect, it } from 'vitest';
import {
  type AnswerFormat,
  answerParser,
  beginsInThoughts,
  endsAfterThoughts,
  formatOfTemplate,
  reasoningFormatOfTemplate,
  type ToolFormat,
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

function readAnswer(format: AnswerFormat, pieces: readonly string[]) {
  const parser = answerParser(format, '')!;
  const read = { reasoning: '', content: '', calls: [] as string[] };
  for (const part of [...pieces.flatMap((piece) => parser.add(piece)), ...parser.end()]) {
    if (part.kind === 'reasoning' || part.kind === 'content') read[part.kind] += part.text;
    if (part.kind === 'call') read.calls.push(part.name);
  }
  return read;
}

/** A call, and a text that only looks like one. */
const parsersOfCalls: readonly [ToolFormat, string, string][] = [
  ['hermes', '<tool_call>{"name": "f", "arguments": {}}</tool_call>', '<tool_call> is the tag. '],
  ['llama3_json', '<|python_tag|>{"name": "f", "parameters": {}}', '<|python_tag|>[1] '],
  ['qwen3_coder', '<tool_call>\n<function=f>\n</function>\n</tool_call>', '<function=h> is none. '],
  ['glm47', '<tool_call>f</tool_call>', '<tool_call>h</tool_call> '],
  ['lfm2', '<|tool_call_start|>[f()]<|tool_call_end|>', '<|tool_call_start|>[h()] '],
  ['gemma4', '<|tool_call>call:f{}<tool_call|>', '<|tool_call>call:h{} '],
  ['nemotron_json', '<TOOLCALL>[{"name": "f", "arguments": {}}]</TOOLCALL>', '<TOOLCALL>[1] '],
  ['mistral', '[TOOL_CALLS]f[ARGS]{}', '[TOOL_CALLS]h[ARGS]{} '],
  ['olmo3', '<function_calls>f()</function_calls>', '<function_calls>h() '],
  ['phi4_mini_json', '<|tool_call|>[{"name": "f", "arguments": {}}]<|/tool_call|>', 'functools[1] '],
];

describe('thinking in tags', () => {
  it.each([
    ['thoughts and an answer', '<think>\nHm.\n</think>\n\nYes.', false, '\nHm.\n', 'Yes.'],
    ['an answer alone', ' \nYes. <think>', false, '', ' \nYes. <think>'],
    ['thoughts without an end', '<think>Hm. </thin', false, 'Hm. </thin', ''],
    ['an answer that begins inside the tag', 'Hm.</think>Yes.', true, 'Hm.', 'Yes.'],
    ['half a tag', '<thi', false, '', '<thi'],
    ['nothing', '', false, '', ''],
    ['empty thoughts', '<think></think>', false, '', ''],
    ['the first tag again', '\n<think>Hm.</think>Yes.', true, 'Hm.', 'Yes.'],
    ['the last tag again', '<think>Hm.</think>\n</think>\n\nYes.', false, 'Hm.', 'Yes.'],
    ['a last tag alone in a line', '<think>Hm.</think>Yes.\n</think>\nSo.', false, 'Hm.', 'Yes.\n\nSo.'],
    ['a last tag at the end of a line', 'Yes.</think>\nSo.', false, '', 'Yes.\nSo.'],
    ['a last tag at the end', 'Yes.</think>', false, '', 'Yes.'],
    ['a text about tags', 'Close `<think>` by `</think>`.', false, '', 'Close `<think>` by `</think>`.'],
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
    ['another channel', '<|channel>plan\nHm.', '', '<|channel>plan\nHm.'],
    ['thoughts after thoughts', '<|channel>thought\na<channel|><|channel>thought\nb<channel|>Yes.', 'ab', 'Yes.'],
    ['thoughts after content', 'So: <|channel>thought\nHm.<channel|>Yes.', 'Hm.', 'So: Yes.'],
    ['stray marks', '<channel|>So<channel|>: Yes.<channel|>', '', 'So: Yes.'],
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

  it.each(parsersOfCalls)('%s: a call ends the thoughts, with or without their closing tag', (format, call, other) => {
    const offered = ['f', 'g'].map((name) => ({ type: 'function', function: { name } }) as const);
    for (const reasoning of ['qwen3', 'deepseek_r1', 'gemma4'] as const) {
      const { open, close } = thoughtTags(reasoning);
      for (const [end, content] of [
        ['', ''],
        [`\n${close}\n\n`, ''],
        [`\n${close}\nSo.`, 'So.'],
      ] as const) {
        const text = `${open}Hm.\n${call}${end}`;
        for (const pieces of [[text], [...text]]) {
          const parts = readAnswer({ tools: format, offered, reasoning }, pieces);
          expect([parts.reasoning.trim(), parts.content.trim(), parts.calls]).toEqual(['Hm.', content, ['f']]);
        }
      }
      const words = `${open}Hm. ${other}${close}${call}`;
      const parts = readAnswer({ tools: format, offered, reasoning }, [...words]);
      expect([parts.reasoning.trim(), parts.calls]).toEqual([`Hm. ${other.trim()}`, ['f']]);
    }
  });

  it('of Mistral have no calls', () => {
    const call = '[TOOL_CALLS]f[ARGS]{}';
    const offered = [{ type: 'function', function: { name: 'f' } }] as const;
    const format = { tools: 'mistral', offered, reasoning: 'mistral' } as const;
    for (const pieces of [[`[THINK]${call}[/THINK]So.${call}`], [...`[THINK]${call}[/THINK]So.${call}`]]) {
      expect(readAnswer(format, pieces)).toEqual({ reasoning: call, content: 'So.', calls: ['f'] });
    }
    expect(reasoningFormatOfTemplate('[THINK]x[/THINK]')).toBe('mistral');
  });

  it('that end with JSON of a call and have no closing tag make the call', () => {
    const offered = [{ type: 'function', function: { name: 'f' } }] as const;
    const format = { tools: 'llama3_json', offered, reasoning: 'deepseek_r1' } as const;
    const json = '{"name": "f", "parameters": {"a": {\n"b": 1}}}';
    for (const text of [`Hm.\n${json}\n`, `Hm.\n\`\`\`json\n${json}\n\`\`\``]) {
      expect(readAnswer(format, [...text])).toEqual({ reasoning: text, content: '', calls: ['f'] });
    }
    expect(readAnswer(format, [`Hm.\n${json} or not?`]).calls).toEqual([]);
    expect(readAnswer(format, [`Hm.</think>${json}`])).toEqual({ reasoning: 'Hm.', content: '', calls: ['f'] });
  });
});

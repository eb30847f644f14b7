import { describe, expect, it } from 'vitest';
import { formatOfTemplate } from './formats.ts';

describe('the formats of templates', () => {
  it.each([
    [
      'glm47',
      '<tools>{{ tools }}</tools> <tool_call>{name}<arg_key>{key}</arg_key><arg_value>{value}</arg_value></tool_call>',
    ],
    ['qwen3_coder', '<tool_call>\n<function=example>\n<parameter=a>\n1\n</parameter>'],
    ['hermes', '<tool_call>\n{"name": "f"}'],
    ['nemotron_json', '<TOOLCALL>[{{"name": "tool_name1", "arguments": "tool_args1"}}]</TOOLCALL>'],
    [undefined, '<tool_call><invoke name="f">'],
  ] as const)('have the format %s if the template has its tags', (format, template) => {
    expect(formatOfTemplate(template)).toBe(format);
  });
});

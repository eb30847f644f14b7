import type { JsonObject } from '../base/json.ts';
import type { ToolFormat } from './formats.ts';
import { type Answer, answer, call } from './parsed-answer.suite.ts';
import { casesOfLists } from './parser-cases-of-lists.suite.ts';
import type { Tool } from './tool.ts';

/** Answers as models write them in each format, and what their parser makes of them. */

export const tool = (name: string, parameters?: JsonObject): Tool => ({
  type: 'function',
  function: { name, ...(parameters === undefined ? {} : { parameters }) },
});
const values = {
  type: 'object',
  properties: {
    text: { type: 'string' },
    count: { type: 'integer' },
    ratio: { type: ['number', 'null'] },
    is: { type: 'boolean' },
    list: { type: 'array' },
    any: {},
    maybe: { anyOf: [{ type: 'string' }, { type: 'null' }] },
    kind: { $ref: '#/$defs/kind' },
  },
  $defs: { kind: { enum: ['1', '2'] } },
};
export const offered = [tool('f'), tool('g', { type: 'object' }), tool('get_x'), tool('v', values), tool('ns.f')];

export { type Answer, answer, call } from './parsed-answer.suite.ts';

export const cases: [ToolFormat, string, string, Answer][] = [
  [
    'gemma4',
    'a call with all kinds of values',
    'I look. <|tool_call>call:f{a:<|"|>Rome, {"x"} <tool_call|><|"|>,b:-1.50,c:[true,null,<|"|>d<|"|>],e:{g:1234567890123456789}}<tool_call|>',
    answer(
      'I look.',
      call(
        'f',
        '{"a": "Rome, {\\"x\\"} <tool_call|>", "b": -1.50, "c": [true, null, "d"], "e": {"g": 1234567890123456789}}',
      ),
    ),
  ],
  [
    'gemma4',
    'several calls, and one without arguments',
    '<|tool_call>call:f{}<tool_call|><|tool_call>call:ns.f{a:1}<tool_call|>\n',
    answer('', call('f', '{}'), call('ns.f', '{"a": 1}')),
  ],
  [
    'gemma4',
    'values and names of JSON, and texts without quotes',
    '<|tool_call> call:f{"a": "x\\n", <|"|>b<|"|>: Rome today, c: 3 }<tool_call|>',
    answer('', call('f', '{"a": "x\\n", "b": "Rome today", "c": 3}')),
  ],
  [
    'gemma4',
    'texts in single quotes, and digits that are no number',
    "<|tool_call>call:f{a:['x','it\\'s'],b:007,c:0x10,d:o'clock,e:-0.5}<tool_call|>",
    answer('', call('f', '{"a": ["x", "it\'s"], "b": "007", "c": "0x10", "d": "o\'clock", "e": -0.5}')),
  ],
  ['gemma4', 'a call without its end', '<|tool_call>call:f{a:1}', answer('', call('f', '{"a": 1}'))],
  ['gemma4', 'a text without its end', '<|tool_call>call:f{a:<|"|>x}', answer('<|tool_call>call:f{a:<|"|>x}')],
  ['gemma4', 'an unknown function', '<|tool_call>call:h{}<tool_call|> x', answer('<|tool_call>call:h{}<tool_call|> x')],
  ['gemma4', 'no arguments', '<|tool_call>call:f<tool_call|>', answer('<|tool_call>call:f<tool_call|>')],
  ['gemma4', 'a broken object', '<|tool_call>call:f{a}<tool_call|>.', answer('<|tool_call>call:f{a}<tool_call|>.')],
  ['gemma4', 'no call', '<|tool_call>f{}', answer('<|tool_call>f{}')],
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
    'I look.\n\n<tool_call>\n{"name": "f", "arguments": {"a": "}\\"<"}}\n</tool_call>\n<tool_call>\n{"arguments": {"b": [1]}, "name": "g"}\n</tool_call>\n',
    answer('I look.', call('f', '{"a": "}\\"<"}'), call('g', '{"b": [1]}')),
  ],
  ['hermes', 'no arguments', '<tool_call>{"name": "f"}</tool_call>', answer('', call('f', '{}'))],
  [
    'hermes',
    'arguments as a text',
    '<tool_call>{"name": "f", "arguments": "{\\"a\\": 1}"}</tool_call>',
    answer('', call('f', '{"a": 1}')),
  ],
  [
    'hermes',
    'a call without its end',
    '<tool_call>{"name": "f", "arguments": {"a": ',
    answer('', call('f', '{"a": null}')),
  ],
  [
    'hermes',
    'arguments that are not quite JSON',
    '<tool_call>{"name": "f", "arguments": {"a": "x\ny\t\\d\\u12", "b": True, "c": [1, None, ], "d": NaN, e: \'it\\\'s "q"\', "f": no quotes,}}</tool_call>',
    answer(
      '',
      call(
        'f',
        '{"a": "x\\ny\\t\\\\d\\\\u12", "b": true, "c": [1, null ], "d": null, "e": "it\'s \\"q\\"", "f": "no quotes"}',
      ),
    ),
  ],
  [
    'hermes',
    'an object that cannot go on',
    '<tool_call>{"name": "f", "arguments": {"a": {"b": [1</tool_call>',
    answer('', call('f', '{"a": {"b": [1]}}')),
  ],
  ['hermes', 'a call without a name', '<tool_call>{"a": 1}</tool_call> x', answer('<tool_call>{"a": 1}</tool_call> x')],
  ['hermes', 'no JSON', '<tool_call>f(1)</tool_call>', answer('<tool_call>f(1)</tool_call>')],
  ['hermes', 'half a tag', 'a <tool_', answer('a <tool_')],
  [
    'nemotron_json',
    'a list',
    'Wait.\n<TOOLCALL>[{"name": "f", "arguments": {"a": "</TOOLCALL>"}}, {"name": "g", "arguments": {}}]</TOOLCALL> So.',
    answer('Wait.\n So.', call('f', '{"a": "</TOOLCALL>"}'), call('g', '{}')),
  ],
  ['nemotron_json', 'no call', 'So <TOOLCALL>[1]</TOOLCALL>', answer('So <TOOLCALL>[1]</TOOLCALL>')],
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
  [
    'openai',
    'a call of a tool that is not offered',
    '<|channel|>commentary to=functions.h <|constrain|>json<|message|>{"a": 1}<|call|>',
    answer('<|channel|>commentary to=functions.h <|constrain|>json<|message|>{"a": 1}'),
  ],
  [
    'openai',
    'a call without an object',
    '<|channel|>commentary to=functions.f<|message|>a = 1<|call|>',
    answer('<|channel|>commentary to=functions.f<|message|>a = 1'),
  ],
  [
    'openai',
    'a call of a built-in tool that was not offered',
    '<|channel|>commentary to=python <|constrain|>code<|message|>print(1)<|end|><|start|>assistant<|channel|>final<|message|>So.',
    answer('So.'),
  ],
  [
    'openai',
    'arguments without their end',
    '<|channel|>commentary to=functions.f<|message|>{"a": [1',
    answer('', call('f', '{"a": [1]}')),
  ],
  [
    'openai',
    'a message to a function that ends without text',
    '<|channel|>commentary to=f<|message|>',
    answer('', call('f', '{}')),
  ],
  ['openai', 'a call without arguments', '<|channel|>commentary to=f<|message|><|call|>', answer('', call('f', '{}'))],
  // No calls: the name is not one of an offered tool, or there is no object of arguments.
  ['llama3_json', 'an answer in JSON', '{"name":"Bob","age":3}', answer('{"name":"Bob","age":3}')],
  ['llama3_json', 'an answer with the name of a tool', '{"name": "f", "age": 3}', answer('{"name": "f", "age": 3}')],
  ['llama3_json', 'a name alone', '{"name": "f"}', answer('{"name": "f"}')],
  ['llama3_json', 'a list of values', '[1, {"name": "f"}]', answer('[1, {"name": "f"}]')],
  ['llama3_json', 'an unknown tool', '{"name": "h", "parameters": {}}', answer('{"name": "h", "parameters": {}}')],
  [
    'llama3_json',
    'arguments as a list',
    '{"name": "f", "parameters": [1]}',
    answer('{"name": "f", "parameters": [1]}'),
  ],
  ['llama3_json', 'arguments as a word', '{"name":"f","parameters":null}', answer('{"name":"f","parameters":null}')],
  ['llama3_json', 'a list of calls', '[{"name": "f", "parameters": {}}]', answer('', call('f', '{}'))],
  [
    'llama3_json',
    'the type of a call',
    '{"type": "function", "name": "f", "parameters": {"a": 1}}',
    answer('', call('f', '{"a": 1}')),
  ],
  ['llama3_json', 'a call and text', '{"name": "f", "parameters": {}}; wait', answer('; wait', call('f', '{}'))],
  [
    'hermes',
    'an unknown tool',
    'I look. <tool_call>\n{"name": "h", "arguments": {}}\n</tool_call> So.',
    answer('I look. <tool_call>\n{"name": "h", "arguments": {}}\n</tool_call> So.'),
  ],
  [
    'hermes',
    'arguments as a text that is no object',
    '<tool_call>{"name": "f", "arguments": "Rome"}</tool_call>',
    answer('<tool_call>{"name": "f", "arguments": "Rome"}</tool_call>'),
  ],
  [
    'hermes',
    'several objects in one tag',
    '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n{"name": "g", "arguments": {}}\n</tool_call>',
    answer('', call('f', '{"a": 1}'), call('g', '{}')),
  ],
  [
    'hermes',
    'a list in one tag',
    '<tool_call>[{"name": "f", "arguments": {"a": 1}}, {"name": "g", "arguments": {}}]</tool_call>',
    answer('', call('f', '{"a": 1}'), call('g', '{}')),
  ],
  [
    'hermes',
    'one of two objects is no call',
    '<tool_call>{"name": "f", "arguments": {}}\n{"name": "h", "arguments": {}}</tool_call>',
    answer('\n{"name": "h", "arguments": {}}</tool_call>', call('f', '{}')),
  ],
  [
    'hermes',
    'no closing tag',
    '<tool_call>{"name": "f", "arguments": {}}\nI wait.',
    answer('\nI wait.', call('f', '{}')),
  ],
  [
    'hermes',
    'no closing brace',
    '<tool_call>{"name": "f", "arguments": {"a": 1}</tool_call>',
    answer('', call('f', '{"a": 1}')),
  ],
  [
    'hermes',
    'two opening tags',
    '<tool_call>\n<tool_call>\n{"name": "f"}</tool_call>',
    answer('<tool_call>', call('f', '{}')),
  ],
  [
    'hermes',
    'other members',
    '<tool_call>{"id": 7, "name": "f", "arguments": {}, "x": "y"}</tool_call>',
    answer('', call('f', '{}')),
  ],
  ['hermes', 'an empty tag', '<tool_call></tool_call>', answer('<tool_call></tool_call>')],
  [
    'hermes',
    'a text after a call',
    '<tool_call>{"name": "f", "arguments": {}}</tool_call>\n\nDone.',
    answer('\n\nDone.', call('f', '{}')),
  ],
  [
    'hermes',
    'numbers with many digits',
    '<tool_call>{"name": "f", "arguments": {"id": 1234567890123456789, "10": 1.0, "2": 1}}</tool_call>',
    answer('', call('f', '{"id": 1234567890123456789, "10": 1.0, "2": 1}')),
  ],
  [
    'qwen3_coder',
    'values of each type',
    'I look.\n<tool_call>\n<function=v>\n<parameter=text>\n12\n</parameter>\n<parameter=count>\n1234567890123456789\n</parameter>\n' +
      '<parameter=ratio>\n1.50\n</parameter>\n<parameter=is>\nTrue\n</parameter>\n<parameter=list>\n[1, {"a": "b"}]\n</parameter>\n</function>\n</tool_call>',
    answer(
      'I look.',
      call('v', '{"text": "12", "count": 1234567890123456789, "ratio": 1.50, "is": true, "list": [1, {"a": "b"}]}'),
    ),
  ],
  [
    'qwen3_coder',
    'values of several types',
    '<tool_call><function=v><parameter=ratio>null</parameter><parameter=maybe>null</parameter><parameter=kind>1</parameter>' +
      '<parameter=any>7</parameter><parameter=other>seven</parameter><parameter=count>many</parameter></function></tool_call>',
    answer('', call('v', '{"ratio": null, "maybe": null, "kind": "1", "any": 7, "other": "seven", "count": "many"}')),
  ],
  [
    'qwen3_coder',
    'a text of several lines',
    '<tool_call>\n<function=v>\n<parameter=text>\n\n  if (a < "😀") {\n\t</p>\n  }\n\n</parameter>\n</function>\n</tool_call>',
    answer('', call('v', '{"text": "\\n  if (a < \\"😀\\") {\\n\\t</p>\\n  }\\n"}')),
  ],
  [
    'qwen3_coder',
    'two calls, one without the outer tag',
    '<function=f>\n</function>\n<tool_call>\n<function=v><parameter=text>\n\n</parameter></function></tool_call>',
    answer('', call('f', '{}'), call('v', '{"text": ""}')),
  ],
  [
    'qwen3_coder',
    'two functions in one tag',
    '<tool_call><function=f></function><function=g></function></tool_call>.',
    answer('.', call('f', '{}'), call('g', '{}')),
  ],
  [
    'qwen3_coder',
    'left-out closing tags of parameters',
    '<tool_call>\n<function=v>\n<parameter=text>\nRome\n<parameter=count>\n3\n<parameter=list>\n[1]\n</function>\n</tool_call>\nSo.',
    answer('\nSo.', call('v', '{"text": "Rome", "count": 3, "list": [1]}')),
  ],
  [
    'qwen3_coder',
    'left-out closing tags without line breaks',
    '<tool_call><function=v><parameter=text>Rome<parameter=count>3</function></tool_call>',
    answer('', call('v', '{"text": "Rome", "count": 3}')),
  ],
  [
    'qwen3_coder',
    'all closing tags left out',
    '<function=v>\n<parameter=text>\nRome\n<parameter=is>\ntrue\n',
    answer('', call('v', '{"text": "Rome", "is": true}')),
  ],
  [
    'qwen3_coder',
    'the outer tag alone at the end, then another call',
    '<tool_call>\n<function=v>\n<parameter=text>\nRome\n</tool_call>\n<tool_call>\n<function=f>\n</function>\n</tool_call>',
    answer('', call('v', '{"text": "Rome"}'), call('f', '{}')),
  ],
  [
    'qwen3_coder',
    'tags in a text',
    '<tool_call>\n<function=v>\n<parameter=text>\nWrite <parameter=count> 3 </parameter> in <function=f> </function>.\n</tool_call>\n</function>\nSo.\n</parameter>\n</function>\n</tool_call>',
    answer(
      '',
      call(
        'v',
        '{"text": "Write <parameter=count> 3 </parameter> in <function=f> </function>.\\n</tool_call>\\n</function>\\nSo."}',
      ),
    ),
  ],
  ['qwen3_coder', 'JSON', '<tool_call>{"name": "f", "arguments": {}}</tool_call>', answer('', call('f', '{}'))],
  ['qwen3_coder', 'an unknown tool', 'a <function=h></function>', answer('a <function=h></function>')],
  ['qwen3_coder', 'a text', '#include <functional> <tool', answer('#include <functional> <tool')],
  [
    'qwen3_coder',
    'an answer that ends in a value',
    '<tool_call><function=v><parameter=text>\nabc</para',
    answer('', call('v', '{"text": "abc</para"}')),
  ],
  [
    'glm47',
    'values of each type, in one line or in several',
    'I look.<tool_call>v<arg_key>text</arg_key><arg_value>\n12 </arg_value><arg_key>count</arg_key><arg_value>1234567890123456789</arg_value>' +
      '</tool_call><tool_call>v\n<arg_key>list</arg_key>\n<arg_value>[1, {"a": "b"}]</arg_value>\n</tool_call>',
    answer(
      'I look.',
      call('v', '{"text": "\\n12 ", "count": 1234567890123456789}'),
      call('v', '{"list": [1, {"a": "b"}]}'),
    ),
  ],
  [
    'glm47',
    'left-out closing tags',
    '<tool_call>v<arg_key>text</arg_key><arg_value>a <tool_call> </tool_call> b<arg_key>is</arg_key><arg_value>true</tool_call><tool_call>f</tool_call>',
    answer('', call('v', '{"text": "a <tool_call> </tool_call> b", "is": true}'), call('f', '{}')),
  ],
  [
    'glm47',
    'a left-out closing tag in front of content',
    '<tool_call>v<arg_key>text</arg_key><arg_value>Rome</tool_call> I look.',
    answer(' I look.', call('v', '{"text": "Rome"}')),
  ],
  [
    'glm47',
    'no arguments',
    '<tool_call>f</tool_call>\n<tool_call>f\n</tool_call>',
    answer('', call('f', '{}'), call('f', '{}')),
  ],
  ['glm47', 'an unknown tool', 'a <tool_call>h</tool_call>', answer('a <tool_call>h</tool_call>')],
  [
    'glm47',
    'a key without a value',
    '<tool_call>f<arg_key>a</arg_key></tool_call>',
    answer('<tool_call>f<arg_key>a</arg_key></tool_call>'),
  ],
  [
    'glm47',
    'an answer that ends in a value',
    '<tool_call>v<arg_key>text</arg_key><arg_value>abc</arg',
    answer('', call('v', '{"text": "abc</arg"}')),
  ],
  ...casesOfLists,
];

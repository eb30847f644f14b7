import type { ToolFormat } from './formats.ts';
import { type Answer, answer, call } from './parsed-answer.suite.ts';

/** The cases of `parser-cases.suite.ts` for formats that write calls as lists or lines. */
export const casesOfLists: [ToolFormat, string, string, Answer][] = [
  [
    'olmo3',
    'calls on lines',
    'I look.\n<function_calls>\nf(a=1, b="x")\nns.f(c=null, d=[true, False])\n</function_calls> So.',
    answer('I look.\n So.', call('f', '{"a": 1, "b": "x"}'), call('ns.f', '{"c": null, "d": [true, false]}')),
  ],
  [
    'olmo3',
    'a list',
    '<function_calls>[f(), get_x(a=1)]</function_calls>',
    answer('', call('f', '{}'), call('get_x', '{"a": 1}')),
  ],
  ['olmo3', 'an unknown tool', '<function_calls>h()</function_calls>', answer('<function_calls>h()</function_calls>')],
  [
    'phi4_mini_json',
    'a list in tags',
    '<|tool_call|>[{"name": "f", "arguments": {"a": 1}}, {"name": "g", "arguments": {}}]<|/tool_call|>',
    answer('', call('f', '{"a": 1}'), call('g', '{}')),
  ],
  [
    'phi4_mini_json',
    'one object, and the tag that is closed otherwise',
    '<|tool_call|>{"name": "f", "arguments": {"a": 1}}</|tool_call|>',
    answer('', call('f', '{"a": 1}')),
  ],
  [
    'phi4_mini_json',
    'a list behind a word',
    'So: functools[{"name": "f", "arguments": {"a": 1}}]',
    answer('So:', call('f', '{"a": 1}')),
  ],
  ['phi4_mini_json', 'a text', 'import functools\nfunctools.reduce()', answer('import functools\nfunctools.reduce()')],
  [
    'lfm2',
    'calls of Python',
    "Let me see. <|tool_call_start|>[f(a=1, b=\"x\"), ns.f(c='it\\'s', d=True, e=None)]<|tool_call_end|>Done.",
    answer('Let me see. Done.', call('f', '{"a": 1, "b": "x"}'), call('ns.f', '{"c": "it\'s", "d": true, "e": null}')),
  ],
  [
    'lfm2',
    'all values',
    '<|tool_call_start|>[f(a=1234567890123456789, b=[1., -.5, (2,)], c={"k": {\'l\': false}, 3: []}, d="""x"y\n""", e=\'\', g=0x1F, h=1_000e-3)]<|tool_call_end|>',
    answer(
      '',
      call(
        'f',
        '{"a": 1234567890123456789, "b": [1.0, -0.5, [2]], "c": {"k": {"l": false}, "3": []}, "d": "x\\"y\\n", "e": "", "g": 31, "h": 1000e-3}',
      ),
    ),
  ],
  ['lfm2', 'a call without arguments', '<|tool_call_start|>f()<|tool_call_end|>', answer('', call('f', '{}'))],
  [
    'lfm2',
    'brackets in texts',
    '<|tool_call_start|>[f(a=")]<|", b=\'](\')]<|tool_call_end|>',
    answer('', call('f', '{"a": ")]<|", "b": "]("}')),
  ],
  [
    'lfm2',
    'a list of objects',
    '<|tool_call_start|>[{"name": "f", "arguments": {"a": 1}}]<|tool_call_end|>',
    answer('', call('f', '{"a": 1}')),
  ],
  ...['h(a=1)', 'f(1)', 'f(a=b)', 'f(a=1', 'f', 'f(a="x)', 'f(a=1 2)'].map(
    (text): [ToolFormat, string, string, Answer] => [
      'lfm2',
      `no call: ${text}`,
      `<|tool_call_start|>[${text}]<|tool_call_end|>`,
      answer(`<|tool_call_start|>[${text}]<|tool_call_end|>`),
    ],
  ),
  [
    'mistral',
    'a marker in thoughts',
    '[THINK][TOOL_CALLS]f[ARGS]{}[/THINK][TOOL_CALLS]f[ARGS]{"a": 1',
    answer('[THINK][TOOL_CALLS]f[ARGS]{}[/THINK]', call('f', '{"a": 1}')),
  ],
  [
    'mistral',
    'ids',
    '[TOOL_CALLS]f[CALL_ID]abcdef123[ARGS]{"a": 1}[TOOL_CALLS]g[CALL_ID]abcdef124[ARGS]{}',
    answer('', call('f', '{"a": 1}'), call('g', '{}')),
  ],
  [
    'mistral',
    'a text after a call',
    '[TOOL_CALLS]f[ARGS]{"a": "[TOOL_CALLS]"} So.',
    answer(' So.', call('f', '{"a": "[TOOL_CALLS]"}')),
  ],
  ...[
    'h[ARGS]{}',
    ' [1, 2]',
    'f[ARGS][1]',
    '',
    'f',
    'f[CALL_ID]x',
    'f [IMG]{}',
    '[{"name": "h", "arguments": {}}]',
  ].map((text): [ToolFormat, string, string, Answer] => [
    'mistral',
    `no call: ${text}`,
    `So [TOOL_CALLS]${text}`,
    answer(`So [TOOL_CALLS]${text}`),
  ]),
];

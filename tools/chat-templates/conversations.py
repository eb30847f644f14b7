"""Conversations for the comparison of chat templates. As JSON texts, because numbers keep their digits and names their order there."""

WEATHER = r"""{"type": "function", "function": {"name": "get_weather", "description": "The weather of a city.", "parameters": {"type": "object",
  "properties": {"city": {"type": "string", "description": "Its name"}, "unit": {"type": "string", "enum": ["C", "F"], "default": null},
  "days": {"type": "integer", "minimum": 1, "maximum": 1234567890123456789}}, "required": ["city"]}}}"""

SEARCH = r"""{"type": "function", "function": {"name": "search", "description": "Finds <pages> & \"texts\".\nTwo lines.", "parameters": {"type": "object",
  "properties": {"10": {"type": "string"}, "2": {"type": "number", "default": 1.0, "multipleOf": 1e-7},
  "query": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}, {"type": "null"}]},
  "where": {"type": "object", "properties": {"deep": {"type": "array", "items": {"type": "object", "properties": {"x": {"type": ["string", "null"]}}}}}}},
  "additionalProperties": false}}}"""

PLAIN = r"""{"type": "function", "function": {"name": "now", "parameters": {"type": "object", "properties": {}}, "description": "The time."}}"""


def call(name: str, arguments: str, call_id: str = "abcdef123") -> str:
    return f'{{"id": "{call_id}", "type": "function", "function": {{"name": "{name}", "arguments": {arguments}}}}}'


ROME = '{"city": "Rome"}'
QUOTED = r'"\"Rome\""'
TEXTS = r"""{"query": "a \"b\" 'c'\n\u00e9 </tool_call> <b>", "where": {"deep": [{"x": "y"}, {}, []]}, "empty": {}, "none": []}"""
ASK = '{"role": "user", "content": "What is the weather in Rome?"}'
RESULT = '{"role": "tool", "tool_call_id": "abcdef123", "name": "get_weather", "content": "{\\"sun\\": true}"}'

# Name: messages, tools, other variables, whether the assistant's turn begins at the end.
CONVERSATIONS: dict[str, tuple[str, str | None, str, bool]] = {
    "one question": ('[{"role": "user", "content": "Hello"}]', None, "{}", True),
    "no start of an answer": ('[{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi."}]', None, "{}", False),
    "system": ('[{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hello"}]', None, "{}", True),
    "several turns": (
        '[{"role": "system", "content": "Be brief."}, {"role": "user", "content": "1+1?"}, {"role": "assistant", "content": "2"},'
        ' {"role": "user", "content": "And 2+2?"}, {"role": "assistant", "content": "4"}, {"role": "user", "content": "Thanks"}]',
        None, "{}", True,
    ),
    "white space around texts": (
        r'[{"role": "system", "content": "\n  Be kind. \n\n"}, {"role": "user", "content": "  Hello\n"}, {"role": "assistant", "content": "\n\n  Hi. \t"}, {"role": "user", "content": "\n"}]',
        None, "{}", True,
    ),
    "indented answers": (
        r'[{"role": "user", "content": "Code?"}, {"role": "assistant", "content": "    if x:\n        y()\n\n\n"}, {"role": "user", "content": "More"}, {"role": "assistant", "content": "\n    z()"}, {"role": "user", "content": "Ok"}]',
        None, "{}", True,
    ),
    "empty content": ('[{"role": "system", "content": ""}, {"role": "user", "content": ""}, {"role": "assistant", "content": ""}, {"role": "user", "content": "?"}]', None, "{}", True),
    "unicode": (
        r'[{"role": "system", "content": "Stra\u00dfe \u2603"}, {"role": "user", "content": "\ud83d\ude00 \u4f60\u597d \u2028 \u00a0x\u00a0"}, {"role": "assistant", "content": "\u00e9\u0301 \ufeff"}, {"role": "user", "content": "na\u00efve"}]',
        None, "{}", True,
    ),
    "text with tags": (
        r'[{"role": "user", "content": "<|im_end|> {{ x }} {% if %} <think>no</think> & \"q\" \\n"}, {"role": "assistant", "content": "</think> </s> [INST]"}, {"role": "user", "content": "<tool_call>"}]',
        None, "{}", True,
    ),
    "thoughts in the content": (
        r'[{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "<think>\n  Add. \n</think>\n\n  4\n"}, {"role": "user", "content": "3+3?"}, {"role": "assistant", "content": "<think></think>6"}, {"role": "user", "content": "Why?"}]',
        None, "{}", True,
    ),
    "thoughts in a field": (
        r'[{"role": "user", "content": "2+2?"}, {"role": "assistant", "reasoning_content": "\n Add. \n", "content": "4"}, {"role": "user", "content": "3+3?"}, {"role": "assistant", "reasoning_content": "Again.", "content": "6"}, {"role": "user", "content": "Why?"}]',
        None, "{}", True,
    ),
    "thoughts off": ('[{"role": "user", "content": "Hello"}]', None, '{"enable_thinking": false, "thinking": false, "reasoning_effort": "low"}', True),
    "thoughts on": (
        r'[{"role": "system", "content": "Think. /think"}, {"role": "user", "content": "Hello /no_think"}]',
        None, '{"enable_thinking": true, "thinking": true, "reasoning_effort": "high", "thinking_budget": 512}', True,
    ),
    "tools": (f"[{ASK}]", f"[{WEATHER}]", "{}", True),
    "tools and system": (f'[{{"role": "system", "content": "Use tools."}}, {ASK}]', f"[{WEATHER}, {SEARCH}, {PLAIN}]", "{}", True),
    "a call": (f'[{ASK}, {{"role": "assistant", "content": "", "tool_calls": [{call("get_weather", ROME)}]}}]', f"[{WEATHER}]", "{}", False),
    "a call and its result": (
        f'[{ASK}, {{"role": "assistant", "content": null, "tool_calls": [{call("get_weather", """{"city": "Rome", "unit": "C"}""")}]}}, {RESULT}]',
        f"[{WEATHER}]", "{}", True,
    ),
    "an answer after a result": (
        f'[{ASK}, {{"role": "assistant", "content": "", "tool_calls": [{call("get_weather", """{"city": "Rome"}""")}]}}, {RESULT}, {{"role": "assistant", "content": "Sunny."}}, {{"role": "user", "content": "And now?"}}]',
        f"[{WEATHER}]", "{}", True,
    ),
    "text before a call": (
        f'[{ASK}, {{"role": "assistant", "content": "  Let me see.\\n", "tool_calls": [{call("get_weather", """{"city": "Rome"}""")}]}}, {RESULT}]',
        f"[{WEATHER}]", "{}", True,
    ),
    "two calls": (
        f'[{ASK}, {{"role": "assistant", "content": "", "tool_calls": [{call("get_weather", """{"city": "Rome"}""")}, {call("search", """{"query": "x"}""", "abcdef456")}]}},'
        f' {RESULT}, {{"role": "tool", "tool_call_id": "abcdef456", "name": "search", "content": "none\\n"}}]',
        f"[{WEATHER}, {SEARCH}]", "{}", True,
    ),
    "null arguments": (
        f'[{ASK}, {{"role": "assistant", "content": "", "tool_calls": [{call("get_weather", """{"city": null, "unit": null, "list": [null, true, false], "o": {"x": null}}""")}]}}, {RESULT}]',
        f"[{WEATHER}]", "{}", True,
    ),
    "large numbers and order": (
        f'[{ASK}, {{"role": "assistant", "content": "", "tool_calls": [{call("search", """{"10": 1234567890123456789, "2": 1.0, "b": 1e16, "a": -0.0, "1": [0.1, 1e-7, 123456789012345678901234567890]}""")}]}}, {RESULT}]',
        f"[{SEARCH}]", "{}", True,
    ),
    "texts and containers as arguments": (
        f'[{ASK}, {{"role": "assistant", "content": "", "tool_calls": [{call("search", TEXTS)}]}}, {RESULT}]',
        f"[{SEARCH}]", "{}", True,
    ),
    "no arguments": (f'[{ASK}, {{"role": "assistant", "content": "", "tool_calls": [{call("now", "{}")}]}}, {RESULT}]', f"[{PLAIN}]", "{}", True),
    "arguments as text": (
        f'[{ASK}, {{"role": "assistant", "content": "", "tool_calls": [{call("get_weather", QUOTED)}]}}, {RESULT}]',
        f"[{WEATHER}]", "{}", True,
    ),
    "calls in earlier turns": (
        f'[{ASK}, {{"role": "assistant", "content": "", "reasoning_content": "Look.", "tool_calls": [{call("get_weather", """{"city": "Rome"}""")}]}}, {RESULT}, {{"role": "assistant", "content": "Sunny.", "reasoning_content": "Say."}},'
        f' {{"role": "user", "content": "Paris?"}}, {{"role": "assistant", "content": "", "reasoning_content": "Again.", "tool_calls": [{call("get_weather", """{"city": "Paris"}""", "abcdef789")}]}},'
        ' {"role": "tool", "tool_call_id": "abcdef789", "name": "get_weather", "content": "rain"}]',
        f"[{WEATHER}]", "{}", True,
    ),
    "parts": (
        '[{"role": "user", "content": [{"type": "text", "text": "One. "}, {"type": "text", "text": " Two."}]}, {"role": "assistant", "content": [{"type": "text", "text": "Hi"}]}, {"role": "user", "content": "Three"}]',
        None, "{}", True,
    ),
    "parts of a system message and a result": (
        f'[{{"role": "system", "content": [{{"type": "text", "text": "Be "}}, {{"type": "text", "text": "kind."}}]}}, {ASK}, {{"role": "assistant", "content": "", "tool_calls": [{call("now", "{}")}]}},'
        ' {"role": "tool", "tool_call_id": "abcdef123", "name": "now", "content": [{"type": "text", "text": "noon"}]}]',
        f"[{PLAIN}]", "{}", True,
    ),
    "roles in disorder": ('[{"role": "user", "content": "One"}, {"role": "user", "content": "Two"}, {"role": "assistant", "content": "A"}, {"role": "assistant", "content": "B"}, {"role": "user", "content": "C"}]', None, "{}", True),
    "late system message": ('[{"role": "user", "content": "One"}, {"role": "system", "content": "Late."}, {"role": "user", "content": "Two"}]', None, "{}", True),
    "first an answer": ('[{"role": "assistant", "content": "Hello, I am here."}, {"role": "user", "content": "Good."}]', None, "{}", True),
    "named users": ('[{"role": "user", "name": "ann", "content": "Hi"}, {"role": "assistant", "content": "Hi Ann"}, {"role": "user", "name": "bob", "content": "Hello"}]', None, "{}", True),
    "developer": ('[{"role": "developer", "content": "Be kind."}, {"role": "user", "content": "Hi"}]', None, "{}", True),
    "an answer to go on": ('[{"role": "user", "content": "Count."}, {"role": "assistant", "content": "1, 2, "}]', None, "{}", False),
    "documents and dates": (
        '[{"role": "user", "content": "Read."}]', None,
        '{"documents": [{"title": "T", "text": "A <b>.", "doc_id": 1}], "date_string": "05 Jan 2026", "todays_date": "2026-01-05", "custom_tools": null, "builtin_tools": ["code_interpreter"]}', True,
    ),
}

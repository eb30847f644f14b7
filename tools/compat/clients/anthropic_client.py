"""Anthropic's Python client."""

import anthropic
from features import MODEL, QUESTION, URL, WEATHER, check_answer, check_city, report

client = anthropic.Anthropic(base_url=URL, api_key="none", max_retries=0)
messages = [{"role": "user", "content": QUESTION}]
common = {"model": MODEL, "messages": messages, "max_tokens": 256, "extra_body": {"temperature": 0}}
function = WEATHER["function"]
weather = {"name": function["name"], "description": function["description"], "input_schema": function["parameters"]}


def plain() -> None:
    answer = client.messages.create(**common, system="Be brief.")
    assert answer.content[0].text and answer.usage.output_tokens > 0
    assert answer.stop_reason in ("end_turn", "max_tokens")


def stream() -> None:
    whole = client.messages.create(**common)
    with client.messages.stream(**common) as streamed:
        assert "".join(streamed.text_stream) == whole.content[0].text
        final = streamed.get_final_message()
    assert final.usage.output_tokens == whole.usage.output_tokens
    assert final.stop_reason == whole.stop_reason


def tools(choice: dict[str, object]) -> anthropic.types.Message:
    answer = client.messages.create(**common, tools=[weather], tool_choice=choice)
    check_answer(answer.content, [block for block in answer.content if block.type == "tool_use"])
    return answer


def check_call(answer: anthropic.types.Message) -> None:
    assert answer.stop_reason == "tool_use" and answer.content[-1].name == "get_weather"
    check_city(answer.content[-1].input)


def tools_required() -> None:
    required = {"type": "any", "disable_parallel_tool_use": True}
    check_call(tools(required))
    with client.messages.stream(**common, tools=[weather], tool_choice=required) as streamed:
        final = streamed.get_final_message()
    check_call(final)
    result = {"type": "tool_result", "tool_use_id": final.content[-1].id, "content": "Sunny."}
    more = [*messages, {"role": "assistant", "content": final.content}, {"role": "user", "content": [result]}]
    assert client.messages.create(**{**common, "messages": more}, tools=[weather]).content


def count_tokens() -> None:
    counted = client.messages.count_tokens(model=MODEL, messages=messages)
    # As at Anthropic, tokens from the cache are not among `input_tokens`.
    usage = client.messages.create(**common).usage
    assert counted.input_tokens == usage.input_tokens + usage.cache_read_input_tokens
    assert client.messages.count_tokens(model=MODEL, messages=messages, tools=[weather]).input_tokens > counted.input_tokens


def errors() -> None:
    for expected, change in {
        anthropic.BadRequestError: {"extra_body": {"temperature": -1}},
        anthropic.NotFoundError: {"model": "no-such-model"},
    }.items():
        try:
            client.messages.create(**{**common, **change})
        except expected as error:
            assert error.body["error"]["message"]
        else:
            raise AssertionError(f"no {expected.__name__}")


report(
    {
        "plain": plain,
        "stream": stream,
        "tools auto": lambda: tools({"type": "auto"}),
        "tools required": tools_required,
        "tools named": lambda: check_call(
            tools({"type": "tool", "name": "get_weather", "disable_parallel_tool_use": True})
        ),
        "tokens": count_tokens,
        "errors": errors,
    }
)

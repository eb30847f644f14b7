"""OpenAI's Python client."""

from features import MODEL, PERSON, QUESTION, URL, WEATHER, check_answer, check_city, check_person, report
from openai import OpenAI

client = OpenAI(base_url=f"{URL}/v1", api_key="none", max_retries=0)
messages = [{"role": "user", "content": QUESTION}]
common = {"model": MODEL, "messages": messages, "max_tokens": 256, "temperature": 0}
greedy = {"model": MODEL, "prompt": "Once upon a time", "max_tokens": 16, "temperature": 0}


def plain() -> None:
    answer = client.chat.completions.create(**common)
    assert answer.choices[0].message.content and answer.usage.completion_tokens > 0
    assert client.completions.create(**greedy).choices[0].text


def stream() -> None:
    whole = client.chat.completions.create(**common).choices[0].message.content
    chunks = list(client.chat.completions.create(**common, stream=True, stream_options={"include_usage": True}))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == whole
    assert chunks[-1].usage.completion_tokens > 0


def tools(choice: object) -> object:
    message = client.chat.completions.create(**common, tools=[WEATHER], tool_choice=choice).choices[0].message
    check_answer(message.content, message.tool_calls)
    return message


def tools_required() -> None:
    check_city(tools("required").tool_calls[0].function.arguments)


def tools_named() -> None:
    named = {"type": "function", "function": {"name": "get_weather"}}
    check_city(tools(named).tool_calls[0].function.arguments)


def json_schema() -> None:
    schema = {"name": "person", "schema": PERSON, "strict": True}
    answer = client.chat.completions.create(**common, response_format={"type": "json_schema", "json_schema": schema})
    check_person(answer.choices[0].message.content)


def logprobs() -> None:
    answer = client.chat.completions.create(**common, logprobs=True, top_logprobs=2)
    assert len(answer.choices[0].logprobs.content[0].top_logprobs) == 2
    assert len(client.completions.create(**greedy, logprobs=2).choices[0].logprobs.token_logprobs) == 16


def embeddings() -> None:
    answer = client.embeddings.create(model=MODEL, input=["a fox", "a mouse"])
    assert len(answer.data) == 2 and len(answer.data[0].embedding) > 8


def responses() -> None:
    answer = client.responses.create(model=MODEL, input=QUESTION, max_output_tokens=32)
    assert answer.output_text
    following = client.responses.create(
        model=MODEL, input="And in Oslo?", max_output_tokens=32, previous_response_id=answer.id
    )
    assert following.usage.input_tokens > answer.usage.input_tokens
    events = list(client.responses.create(model=MODEL, input=QUESTION, max_output_tokens=32, stream=True))
    assert events[-1].type in ("response.completed", "response.incomplete")
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta")


report(
    {
        "plain": plain,
        "stream": stream,
        "tools auto": lambda: tools("auto"),
        "tools required": tools_required,
        "tools named": tools_named,
        "json_schema": json_schema,
        "logprobs": logprobs,
        "embeddings": embeddings,
        "responses": responses,
    }
)

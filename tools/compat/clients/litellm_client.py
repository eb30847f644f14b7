"""LiteLLM with its provider for servers with OpenAI's API."""

import litellm
from features import MODEL, PERSON, QUESTION, URL, WEATHER, check_answer, check_city, check_person, report

messages = [{"role": "user", "content": QUESTION}]
server = {"model": f"openai/{MODEL}", "api_base": f"{URL}/v1", "api_key": "none", "num_retries": 0}
common = {**server, "messages": messages, "max_tokens": 256, "temperature": 0}


def plain() -> None:
    assert litellm.completion(**common).choices[0].message.content


def stream() -> None:
    whole = litellm.completion(**common).choices[0].message.content
    chunks = litellm.completion(**common, stream=True)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == whole


def tools(choice: object) -> object:
    message = litellm.completion(**common, tools=[WEATHER], tool_choice=choice).choices[0].message
    check_answer(message.content, message.tool_calls)
    return message


def tools_required() -> None:
    check_city(tools("required").tool_calls[0].function.arguments)


def tools_named() -> None:
    named = {"type": "function", "function": {"name": "get_weather"}}
    check_city(tools(named).tool_calls[0].function.arguments)


def json_schema() -> None:
    schema = {"name": "person", "schema": PERSON, "strict": True}
    answer = litellm.completion(**common, response_format={"type": "json_schema", "json_schema": schema})
    check_person(answer.choices[0].message.content)


def logprobs() -> None:
    answer = litellm.completion(**common, logprobs=True, top_logprobs=2)
    assert len(answer.choices[0].logprobs.content[0].top_logprobs) == 2


def embeddings() -> None:
    answer = litellm.embedding(**server, input=["a fox", "a mouse"])
    assert len(answer.data) == 2


def responses() -> None:
    answer = litellm.responses(**server, input=QUESTION, max_output_tokens=32)
    assert answer.output


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

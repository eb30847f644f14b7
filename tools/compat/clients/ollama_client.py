"""Ollama's Python client."""

import ollama
from features import MODEL, PERSON, QUESTION, URL, WEATHER, check_answer, check_person, report

client = ollama.Client(host=URL)
messages = [{"role": "user", "content": QUESTION}]
common = {"model": MODEL, "messages": messages, "options": {"temperature": 0, "num_predict": 64}}


def plain() -> None:
    answer = client.chat(**common)
    assert answer.message.content and answer.eval_count > 0 and answer.done
    assert client.generate(model=MODEL, prompt="Once upon a time", options=common["options"]).response


def stream() -> None:
    whole = client.chat(**common).message.content
    assert "".join(part.message.content or "" for part in client.chat(**common, stream=True)) == whole


def tools() -> None:
    message = client.chat(**common, tools=[WEATHER]).message
    check_answer(message.content, message.tool_calls)


def json_schema() -> None:
    check_person(client.chat(**common, format=PERSON).message.content)


def embeddings() -> None:
    answer = client.embed(model=MODEL, input=["a fox", "a mouse"])
    assert len(answer.embeddings) == 2 and len(answer.embeddings[0]) > 8


def models() -> None:
    assert MODEL in [model.model.removesuffix(":latest") for model in client.list().models]
    assert client.show(MODEL).details is not None


def errors() -> None:
    try:
        client.chat(model="no-such-model", messages=messages)
    except ollama.ResponseError as error:
        assert error.status_code == 404 and error.error
    else:
        raise AssertionError("no error")


report(
    {
        "plain": plain,
        "stream": stream,
        "tools auto": tools,
        "json_schema": json_schema,
        "embeddings": embeddings,
        "models": models,
        "errors": errors,
    }
)

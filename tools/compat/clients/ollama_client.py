"""Ollama's Python client."""

import ollama
from features import MODEL, PERSON, QUESTION, URL, WEATHER, check_answer, check_person, report

client = ollama.Client(host=URL)
messages = [{"role": "user", "content": QUESTION}]
common = {"model": MODEL, "messages": messages, "options": {"temperature": 0, "num_predict": 64}}


def plain() -> None:
    answer = client.chat(**common)
    assert answer.message.content and answer.eval_count > 0 and answer.eval_duration > 0 and answer.done
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
    assert len(client.embeddings(model=MODEL, prompt="a fox").embedding) == len(answer.embeddings[0])
    assert client.embed(model=MODEL, input="").embeddings == []


def models() -> None:
    assert MODEL in [model.model.removesuffix(":latest") for model in client.list().models]
    shown = client.show(MODEL)
    assert shown.details.parameter_size and shown.details.quantization_level
    assert shown.modelinfo["general.parameter_count"] > 0 and client.ps().models


def errors() -> None:
    try:
        client.chat(model="no-such-model", messages=messages)
    except ollama.ResponseError as error:
        assert error.status_code == 404 and error.error
    else:
        raise AssertionError("no error")


    for change in (lambda: client.delete(MODEL), lambda: client.copy(MODEL, "other"), lambda: client.create("other", from_=MODEL)):
        try:
            change()
        except ollama.ResponseError as error:
            assert 400 <= error.status_code < 500 and error.error
        else:
            raise AssertionError("no error")


def load() -> None:
    assert client.generate(model=MODEL).done_reason == "load"
    assert client.generate(model=MODEL, keep_alive=0).done_reason == "unload"
    assert client.chat(model=MODEL, keep_alive="5m").done_reason == "load"


def continues() -> None:
    begun = [*messages, {"role": "assistant", "content": "The weather in Rome"}]
    answer = client.chat(**{**common, "messages": begun})
    assert answer.done and answer.done_reason != "load"


def logprobs() -> None:
    answer = client.chat(**common, logprobs=True, top_logprobs=2)
    assert all(len(token.top_logprobs) == 2 for token in answer.logprobs)
    assert "".join(token.token for token in answer.logprobs).strip() == answer.message.content.strip()


def pull() -> None:
    assert client.pull(MODEL).status == "success"
    assert [part.status for part in client.pull(MODEL, stream=True)][-1] == "success"


report(
    {
        "plain": plain,
        "stream": stream,
        "tools auto": tools,
        "json_schema": json_schema,
        "embeddings": embeddings,
        "models": models,
        "errors": errors,
        "load": load,
        "continue": continues,
        "logprobs": logprobs,
        "pull": pull,
    }
)

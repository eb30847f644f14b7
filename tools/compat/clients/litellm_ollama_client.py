"""LiteLLM with its two providers for servers with Ollama's API: `ollama_chat/` and, for prompts and embeddings, `ollama/`."""

import litellm
from features import MODEL, PERSON, QUESTION, URL, WEATHER, check_answer, check_person, report

messages = [{"role": "user", "content": QUESTION}]
server = {"api_base": URL, "num_retries": 0}
common = {**server, "messages": messages, "max_tokens": 64, "temperature": 0}
providers = [f"ollama_chat/{MODEL}", f"ollama/{MODEL}"]


def plain() -> None:
    for model in providers:
        assert litellm.completion(model=model, **common).choices[0].message.content


def stream() -> None:
    for model in providers:
        whole = litellm.completion(model=model, **common).choices[0].message.content
        chunks = litellm.completion(model=model, **common, stream=True)
        assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == whole


def tools() -> None:
    message = litellm.completion(model=providers[0], **common, tools=[WEATHER]).choices[0].message
    check_answer(message.content, message.tool_calls)


def json_schema() -> None:
    schema = {"name": "person", "schema": PERSON, "strict": True}
    response_format = {"type": "json_schema", "json_schema": schema}
    for model in providers:
        answer = litellm.completion(model=model, **common, response_format=response_format)
        check_person(answer.choices[0].message.content)


def embeddings() -> None:
    answer = litellm.embedding(model=providers[1], **server, input=["a fox", "a mouse"])
    assert len(answer.data) == 2


def errors() -> None:
    for provider in ("ollama_chat", "ollama"):
        try:
            litellm.completion(model=f"{provider}/no-such-model", **common)
        except litellm.exceptions.APIError as error:
            assert "no-such-model" in str(error), error
        except litellm.exceptions.NotFoundError:
            pass
        else:
            raise AssertionError("no error")


report(
    {
        "plain": plain,
        "stream": stream,
        "tools auto": tools,
        "json_schema": json_schema,
        "embeddings": embeddings,
        "errors": errors,
    }
)

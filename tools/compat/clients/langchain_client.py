"""LangChain's package for OpenAI's API."""

from features import MODEL, PERSON, QUESTION, URL, WEATHER, check_answer, check_city, report
from langchain_openai import ChatOpenAI, OpenAIEmbeddings

server = {"model": MODEL, "base_url": f"{URL}/v1", "api_key": "none", "max_retries": 0}
chat = ChatOpenAI(**server, temperature=0, max_tokens=256)


def plain() -> None:
    assert chat.invoke(QUESTION).content


def stream() -> None:
    assert "".join(chunk.content for chunk in chat.stream(QUESTION)) == chat.invoke(QUESTION).content


def tools_auto() -> None:
    answer = chat.bind_tools([WEATHER]).invoke(QUESTION)
    check_answer(answer.content, answer.tool_calls)


def tools(choice: str) -> None:
    check_city(chat.bind_tools([WEATHER], tool_choice=choice).invoke(QUESTION).tool_calls[0]["args"])


def json_schema() -> None:
    person = chat.with_structured_output({"title": "person", **PERSON}, method="json_schema").invoke(QUESTION)
    assert isinstance(person["name"], str) and isinstance(person["age"], int)


def logprobs() -> None:
    answer = chat.bind(logprobs=True, top_logprobs=2).invoke(QUESTION)
    assert len(answer.response_metadata["logprobs"]["content"][0]["top_logprobs"]) == 2


def embeddings() -> None:
    assert len(OpenAIEmbeddings(**server, check_embedding_ctx_length=False).embed_documents(["a fox", "a mouse"])) == 2


def responses() -> None:
    assert ChatOpenAI(**server, max_tokens=32, use_responses_api=True).invoke(QUESTION).text


report(
    {
        "plain": plain,
        "stream": stream,
        "tools auto": tools_auto,
        "tools required": lambda: tools("required"),
        "tools named": lambda: tools("get_weather"),
        "json_schema": json_schema,
        "logprobs": logprobs,
        "embeddings": embeddings,
        "responses": responses,
    }
)

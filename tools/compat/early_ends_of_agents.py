"""Clients that agents are made of: what they make of answers that end early. Same protocol as early_ends.py."""

import asyncio
import json
import sys

import agents
import anthropic
import openai
from langchain_openai import ChatOpenAI
from pydantic_ai import Agent
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider

agents.set_tracing_disabled(True)
print("ready", flush=True)
request = json.loads(sys.stdin.readline())
model, max_tokens = request["model"], request["maxTokens"]
more = {"ignore_eos": True}
prompt = "Once upon a time"
messages = [{"role": "user", "content": prompt}]
of_openai = openai.AsyncOpenAI(base_url=f"{request['origin']}/v1", api_key="none", max_retries=0, timeout=600)
of_anthropic = anthropic.AsyncAnthropic(base_url=request["origin"], api_key="none", max_retries=0, timeout=600)


async def anthropic_messages(stream):
    body = {"model": model, "messages": messages, "max_tokens": max_tokens, "extra_body": more}
    if not stream:
        return (await of_anthropic.messages.create(**body)).stop_reason
    async with of_anthropic.messages.stream(**body) as answer:
        async for _ in answer:
            pass
        return (await answer.get_final_message()).stop_reason


async def langchain(stream):
    chat = ChatOpenAI(
        model=model,
        max_tokens=max_tokens,
        temperature=0,
        extra_body=more,
        base_url=f"{request['origin']}/v1",
        api_key="none",
        max_retries=0,
        timeout=600,
    )
    if not stream:
        return (await chat.ainvoke(prompt)).response_metadata["finish_reason"]
    reason = "no finish reason"
    async for chunk in chat.astream(prompt):
        reason = chunk.response_metadata.get("finish_reason") or reason
    return reason


def openai_agents(kind):
    async def ask(stream):
        settings = agents.ModelSettings(temperature=0, max_tokens=max_tokens, extra_body=more)
        agent = agents.Agent(name="teller", model=kind(model, of_openai), model_settings=settings)
        if not stream:
            await agents.Runner.run(agent, prompt)
            return "final output"
        result = agents.Runner.run_streamed(agent, prompt)
        async for _ in result.stream_events():
            pass
        return "final output" if result.final_output is not None else "nothing"

    return ask


def pydantic_ai(build):
    async def ask(stream):
        settings = {"temperature": 0, "max_tokens": max_tokens, "extra_body": more}
        agent = Agent(build(), model_settings=settings, retries=0)
        if not stream:
            return (await agent.run(prompt)).response.finish_reason
        async with agent.run_stream(prompt) as result:
            async for _ in result.stream_text(delta=True):
                pass
            return result.response.finish_reason

    return ask


async def outcome(ask, stream):
    try:
        return {"ended": await ask(stream)}
    except Exception as error:
        return {"raised": type(error).__name__, "message": str(error)}


provider = OpenAIProvider(openai_client=of_openai)
asks = {
    "anthropic, messages": anthropic_messages,
    "langchain, chat completions": langchain,
    "openai-agents, chat completions": openai_agents(agents.OpenAIChatCompletionsModel),
    "openai-agents, responses": openai_agents(agents.OpenAIResponsesModel),
    "pydantic-ai, chat completions": pydantic_ai(lambda: OpenAIChatModel(model, provider=provider)),
    "pydantic-ai, responses": pydantic_ai(lambda: OpenAIResponsesModel(model, provider=provider)),
    "pydantic-ai, messages": pydantic_ai(
        lambda: AnthropicModel(model, provider=AnthropicProvider(anthropic_client=of_anthropic))
    ),
}


async def main():
    names = [(name, stream) for name in asks for stream in (True, False)]
    outcomes = await asyncio.gather(*(outcome(asks[name], stream) for name, stream in names))
    print(json.dumps({name + (", streamed" if stream else ""): o for (name, stream), o in zip(names, outcomes)}))


asyncio.run(main())

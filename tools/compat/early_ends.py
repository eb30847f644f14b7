"""OpenAI's client: what it makes of answers that end early. Prints `ready`, reads a line of JSON (origin, model, maxTokens), prints outcomes."""

import json
import sys
from concurrent.futures import ThreadPoolExecutor

from openai import OpenAI

print("ready", flush=True)
request = json.loads(sys.stdin.readline())
client = OpenAI(base_url=f"{request['origin']}/v1", api_key="none", max_retries=0, timeout=600)
common = {"model": request["model"], "temperature": 0, "extra_body": {"ignore_eos": True}}
prompt = "Once upon a time"


def last_of(parts, read):
    last = "no finish reason"
    for part in parts:
        last = read(part) or last
    return last


def finish_reason(part):
    return part.choices[0].finish_reason if part.choices else None


def chat(stream):
    messages = [{"role": "user", "content": prompt}]
    answer = client.chat.completions.create(
        messages=messages, max_tokens=request["maxTokens"], stream=stream, **common
    )
    return last_of(answer, finish_reason) if stream else finish_reason(answer)


def completions(stream):
    answer = client.completions.create(prompt=prompt, max_tokens=request["maxTokens"], stream=stream, **common)
    return last_of(answer, finish_reason) if stream else finish_reason(answer)


def responses(stream):
    answer = client.responses.create(input=prompt, max_output_tokens=request["maxTokens"], stream=stream, **common)
    if not stream:
        return answer.status
    return last_of(answer, lambda event: event.response.status if hasattr(event, "response") else None)


def outcome(ask, stream):
    try:
        return {"ended": ask(stream)}
    except Exception as error:
        return {"raised": type(error).__name__, "message": str(error)}


asks = {"chat completions": chat, "completions": completions, "responses": responses}
with ThreadPoolExecutor(2 * len(asks)) as pool:
    running = {
        name + (", streamed" if stream else ""): pool.submit(outcome, ask, stream)
        for name, ask in asks.items()
        for stream in (True, False)
    }
print(json.dumps({name: future.result() for name, future in running.items()}))

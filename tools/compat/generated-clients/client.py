"""The client of openapi-python-client."""

import json
import os

from kvasir_client import Client
from kvasir_client.api.default import post_v1_chat_completions, post_v1_responses
from kvasir_client.models import PostV1ChatCompletionsBody, PostV1ResponsesBody

client = Client(base_url=os.environ["KVASIR_ORIGIN"])
messages = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": [{"type": "text", "text": "Once"}]},
]
chat = post_v1_chat_completions.sync(
    client=client,
    body=PostV1ChatCompletionsBody.from_dict({"messages": messages, "max_tokens": 4, "temperature": 0}),
)
response = post_v1_responses.sync(
    client=client,
    body=PostV1ResponsesBody.from_dict({"input": "Once", "max_output_tokens": 4, "temperature": 0}),
)
wrong = post_v1_chat_completions.sync(client=client, body=PostV1ChatCompletionsBody(messages=[]))
print(
    json.dumps(
        {
            "chat": chat.choices[0].message.content,
            "tokens": chat.usage.total_tokens,
            "response": response.status,
            "error": wrong.error.param,
        }
    )
)

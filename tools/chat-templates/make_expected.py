"""Writes the expected results of snippets and of real chat templates, as transformers renders them, beside this file.

usage: python make_expected.py snippets
       python make_expected.py templates FOLDER          (the folder that .ci/install-chat-templates made)
       python make_expected.py show FOLDER/NAME.jinja CONVERSATION       (prints the prompt, for a test that fails)
"""

import datetime
import hashlib
import itertools
import json
import pathlib
import re
import sys

import jinja2
import transformers
from transformers.utils import chat_template_utils as utils

from conversations import CONVERSATIONS
from snippets import SNIPPETS, VARIABLES

TARGET = pathlib.Path(__file__).parent
VERSIONS = {"transformers": transformers.__version__, "jinja2": jinja2.__version__}
TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}


class Clock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(2026, 1, 5, 9, 7, 3)


utils.datetime = Clock


def pieces(template: str) -> list[str]:
    """Expressions between bars are separate cases."""
    if "{%" in template:
        return [template]
    parts = template.split("}}|{{")
    last = len(parts) - 1
    return [("{{" if i > 0 else "") + part + ("}}" if i < last else "") for i, part in enumerate(parts)]


def write(name: str, value: dict) -> None:
    """One case, conversation or template a line."""
    fields = [f"{json.dumps(key)}: {lines(field)}" for key, field in value.items()]
    (TARGET / name).write_text("{\n" + ",\n".join(fields) + "\n}\n")


def lines(value) -> str:
    if isinstance(value, list):
        return "[\n" + ",\n".join(json.dumps(item, ensure_ascii=False) for item in value) + "\n]"
    if isinstance(value, dict):
        items = (f"{json.dumps(key, ensure_ascii=False)}: {json.dumps(item, ensure_ascii=False)}" for key, item in value.items())
        return "{\n" + ",\n".join(items) + "\n}"
    return json.dumps(value, ensure_ascii=False)


def make_snippets() -> None:
    cases = []
    for group, templates in SNIPPETS.items():
        for template in (piece for template in templates for piece in pieces(template)):
            try:
                text = utils._compile_jinja_template(template).render(**json.loads(VARIABLES))
                assert " at 0x" not in text, f"{template} differs in each run"
                cases.append([group, template, text])
            except AssertionError:
                raise
            except Exception:
                cases.append([group, template, None])
    write("snippets.json", {"versions": VERSIONS, "variables": VARIABLES, "cases": cases})
    print(len(cases), "snippets")


def render(source: str, name: str) -> str:
    """Parts that a template does not read are joined by newlines, as vLLM does, in the messages of as few roles as possible."""
    messages, tools, variables, starts_answer = CONVERSATIONS[name]
    chat = utils._normalize_chat_messages(json.loads(messages))
    with_parts = sorted({message["role"] for message in chat if isinstance(message.get("content"), list)})
    # Some templates read the first part only.
    texts = [message["content"][0]["text"] for message in chat if isinstance(message.get("content"), list)]
    for count in range(len(with_parts) + 1):
        for roles in itertools.combinations(with_parts, count):
            joined = [joined_parts(message) if message["role"] in roles else message for message in chat]
            try:
                [text], _ = utils.render_jinja_template(
                    [joined],
                    tools=None if tools is None else json.loads(tools),
                    chat_template=source,
                    add_generation_prompt=starts_answer,
                    **{**TOKENS, **json.loads(variables)},
                )
            except Exception:
                if count == len(with_parts):
                    raise
                continue
            is_read = all(first.strip() in text for first in texts) and not re.search(r"""["']type["']\s*:\s*["']text["']""", text)
            if is_read or count == len(with_parts):
                return text
    raise AssertionError


def joined_parts(message: dict) -> dict:
    content = message.get("content")
    return {**message, "content": "\n".join(part["text"] for part in content)} if isinstance(content, list) else message


def make_templates(folder: pathlib.Path) -> None:
    expected = {}
    for path in sorted(folder.glob("*.jinja")):
        source = path.read_text()
        prompts = {}
        for name in CONVERSATIONS:
            try:
                prompts[name] = hashlib.sha256(render(source, name).encode()).hexdigest()[:16]
            except Exception:
                prompts[name] = "error"
        expected[path.stem] = {"sha256": hashlib.sha256(path.read_bytes()).hexdigest(), "prompts": prompts}
    conversations = {
        name: {"messages": messages, "tools": tools, "variables": variables, "startsAnswer": starts_answer}
        for name, (messages, tools, variables, starts_answer) in CONVERSATIONS.items()
    }
    write("prompts.json", {"versions": VERSIONS, "conversations": conversations, "templates": expected})
    print(len(expected), "templates,", len(conversations), "conversations")


match sys.argv[1:]:
    case ["snippets"]:
        make_snippets()
    case ["templates", folder]:
        make_templates(pathlib.Path(folder))
    case ["show", path, name]:
        sys.stdout.write(render(pathlib.Path(path).read_text(), name))
    case _:
        sys.exit(__doc__)

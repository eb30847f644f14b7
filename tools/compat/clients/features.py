"""Runs the features of one client and prints a JSON line for each. A client script calls `report`."""

from __future__ import annotations

import json
import os
from collections.abc import Callable

URL = os.environ.get("COMPAT_URL", "http://127.0.0.1:8000")
MODEL = os.environ.get("COMPAT_MODEL", "kvasir-demo")
CALLS_TOOLS = "COMPAT_CALLS" in os.environ
"""Whether the model calls tools where it may."""

QUESTION = "What is the weather in Rome?"
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "maxLength": 12}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}
PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer", "minimum": 0, "maximum": 99}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


def check_answer(content: object, calls: object) -> None:
    """With tools, where the model decides."""
    assert calls or (content and not CALLS_TOOLS), f"no call: {content!r}"


def check_city(arguments: object) -> None:
    """The arguments of a call, parsed or as text."""
    read = json.loads(arguments) if isinstance(arguments, str) else arguments
    assert isinstance(read, dict) and isinstance(read["city"], str), f"not the arguments of the tool: {arguments!r}"


def check_person(text: str) -> None:
    person = json.loads(text)
    assert isinstance(person["name"], str) and isinstance(person["age"], int), f"not a person: {text!r}"


def report(features: dict[str, Callable[[], object]]) -> None:
    for name, run in features.items():
        try:
            run()
            outcome = {"feature": name, "works": True}
        except Exception as error:  # every failure is a result
            text = " ".join(str(error).split()) or type(error).__name__
            outcome = {"feature": name, "works": False, "detail": text[:300]}
        print(json.dumps(outcome), flush=True)

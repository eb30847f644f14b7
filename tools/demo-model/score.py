"""Counts how often an exported file does what it is asked, on requests drawn from a seed that training never saw.

    python tools/demo-model/score.py --library DIRECTORY_WITH_LIBLLAMA [--model hybrid]

Runs on llama.cpp like verify.py, greedily.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from random import Random
from typing import Callable

from tokenizers import Tokenizer

from chats import fact, person_name, register_chat
from corpus import chatml
from grammar import Tale
from rebuild import target_of, work_of
from recipes import RECIPES
from verify import LlamaCpp

Task = tuple[str, Callable[[str], bool]]  # prompt, whether an answer will do
ANSWER = "<|im_start|>assistant\n"


def asked(request: str) -> str:
    return chatml([("user", request)]) + ANSWER


def story(rng: Random) -> Task:
    t = Tale(rng, "short")
    hero, home = t.hero, t.home.at
    request = f"Tell me a story about {hero.a_kind} named {hero.name} {home}."
    wanted = (hero.kind, hero.name.lower(), home)
    return asked(request), lambda text: all(word in text.split("\n\n")[0].lower() for word in wanted)


def same_hero(rng: Random) -> Task:
    """The hero's name comes back in the last paragraph, or in the one before the last."""
    name = person_name(rng)
    prompt = f"Once upon a time there was a small fox named {name}."
    return prompt, lambda text: any(name in paragraph for paragraph in text.split("\n\n")[-2:])


def greeting(rng: Random) -> Task:
    name = person_name(rng)
    return asked(f"Hello, my name is {name}."), lambda text: name in text


def register(rng: Random) -> Task:
    chat = register_chat(rng, 8)[:2]
    while chat[0][0] == "system":
        chat = register_chat(rng, 8)[:2]
    return chatml(chat[:1]) + ANSWER, lambda text: text == chat[1][1]


def reading(rng: Random) -> Task:
    t = Tale(rng, "short")
    questions, answer = rng.choice(t.facts)
    return asked(f"{t.text}\n\n{questions[0]}"), lambda text: text == answer


def plain_fact(rng: Random) -> Task:
    question, answer = fact(rng)
    return asked(question), lambda text: text == answer


def repeated_word(rng: Random) -> Task:
    """Behind a long repetition: at least half of the next fifty words are different ones."""
    word = rng.choice(("Hi", "Hey", "Hello", "one"))
    prompt = f"{word} " * rng.randint(300, 1000) + "Hello, my name is"
    return prompt, lambda text: len(set(text.split()[:50])) >= 25


TASKS: list[tuple[str, Callable[[Random], Task], int]] = [
    ("a story about KIND named NAME at PLACE: all three in the first paragraph", story, 90),
    ("a story's hero keeps the name to the end", same_hero, 400),
    ("a greeting with the visitor's name", greeting, 40),
    ("who has what, from a list of eight", register, 30),
    ("a question about a short story", reading, 40),
    ("a plain fact", plain_fact, 70),
    ("readable text behind 300 to 1000 repeated words", repeated_word, 90),
]


def main() -> None:
    parser = argparse.ArgumentParser(description="Scores a demo model.")
    parser.add_argument("--library", type=Path, required=True)
    parser.add_argument("--model", choices=RECIPES, default="demo")
    parser.add_argument("--work", type=Path)
    parser.add_argument("--rounds", type=int, default=50)
    args = parser.parse_args()
    recipe = RECIPES[args.model]
    tokenizer = Tokenizer.from_file(str((args.work or work_of(recipe)) / "tokenizer.json"))
    llama = LlamaCpp(args.library.resolve(), target_of(recipe), recipe.shape)
    for what, make, length in TASKS:
        rng = Random(f"{what}-score")
        right = 0
        for _ in range(args.rounds):
            prompt, will_do = make(rng)
            out = llama.generate_greedy(tokenizer.encode(prompt).ids, length, {0, 2})
            right += will_do(tokenizer.decode(out, skip_special_tokens=True))
        print(f"{right:4} of {args.rounds}  {what}", flush=True)


if __name__ == "__main__":
    main()

"""The training text: an endless, seeded stream of documents, and the same as token arrays on disk.

Four mixes. `short`: documents such as a story or a chat. `long`: anthologies, long sittings, registers, a word repeated
a thousand times. `practice` is `short` with many exercises in carrying over, `lasting` is `long` with some of `short`,
some exercises and more repeated words.
"""

from __future__ import annotations

from random import Random
from typing import Iterator

import numpy as np
from tokenizers import Tokenizer

from chats import Chat, any_chat, fact, long_chat, person_name, register_chat, scrawl
from grammar import Tale, new_who
from lexicon import PLACES, SAYINGS
from practice import exercise, practice_chat, shuffled_tale

END_OF_TEXT, TURN_START, TURN_END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"


def chatml(chat: Chat) -> str:
    return "".join(f"{TURN_START}{role}\n{text}{TURN_END}\n" for role, text in chat)


def self_portrait(rng: Random) -> str:
    """The first person, for prompts such as "Hello, my name is"."""
    who, home = new_who(rng, set(), hero=True), rng.choice(PLACES)
    hello = rng.choice(("Hello, my", "Hi, my", "Hello! My", "My"))
    t = Tale(rng, "short")
    return (
        f"{hello} name is {who.name}. I am {who.described} and I live {home.at}, where {home.sight}. "
        f"My best friend is {t.friend.full}. I have {t.a_thing} and I like to eat {t.food}. "
        + rng.choice(("Here is my favourite story.", "I will tell you a story.", "Now I will tell you what I saw last week."))
        + f"\n\n{t.text}"
    )


def plain_facts(rng: Random) -> str:
    """Bare statements, for prompts such as "The capital of France is"."""
    answers = [fact(rng)[1] for _ in range(rng.randint(2, 8))]
    if rng.random() < 0.3:
        answers.insert(0, rng.choice(SAYINGS))
    return " ".join(answers) + (f" {Tale(rng, 'short').text}" if rng.random() < 0.4 else "")


def plain_document(rng: Random) -> str:
    kind = rng.random()
    if kind < 0.12:
        return self_portrait(rng)
    if kind < 0.22:
        return plain_facts(rng)
    t = Tale(rng, rng.choice(("short", "medium", "medium", "medium", "long")))
    return t.titled if rng.random() < 0.4 else t.text


def stutter(rng: Random, count: int) -> str:
    """One word, or one scrawl, over and over; whatever came before, readable text must follow."""
    word = rng.choice(("Hi", "Hey", "Hello", "the", "a", "one", "story", person_name(rng), scrawl(rng)))
    separator = rng.choice((" ", " ", " ", "\n", ", "))
    after = rng.choice((plain_document, self_portrait, plain_facts))(rng)
    return separator.join([word] * count) + rng.choice((separator, ". ", "\n\n")) + after


def short_document(rng: Random) -> str:
    kind = rng.random()
    if kind < 0.36:
        return plain_document(rng)
    if kind < 0.38:
        return stutter(rng, int(2 ** rng.uniform(1, 8)))
    return chatml(any_chat(rng))


def anthology(rng: Random, chapters: int) -> str:
    return "\n\n".join(f"Chapter {i + 1}: {Tale(rng, rng.choice(('medium', 'long'))).titled}" for i in range(chapters))


def long_document(rng: Random) -> str:
    kind = rng.random()
    if kind < 0.45:
        return chatml(long_chat(rng, rng.randint(4, 14)))
    if kind < 0.65:
        return anthology(rng, rng.randint(4, 12))
    if kind < 0.77:
        return chatml(register_chat(rng, rng.randint(20, 160)))
    if kind < 0.90:
        return stutter(rng, int(2 ** rng.uniform(6, 11.5)))
    return short_document(rng)


def practice_document(rng: Random) -> str:
    kind = rng.random()
    if kind < 0.10:
        return exercise(rng)
    if kind < 0.36:
        return chatml(practice_chat(rng))
    if kind < 0.39:
        return chatml(register_chat(rng))
    if kind < 0.50:
        t = Tale(rng, rng.choice(("short", "medium")), invention=0.3)
        return t.titled if rng.random() < 0.4 else t.text
    return short_document(rng)


def drill_document(rng: Random) -> str:
    kind = rng.random()
    if kind < 0.45:
        return shuffled_tale(rng) if rng.random() < 0.6 else exercise(rng)
    if kind < 0.65:
        return chatml(practice_chat(rng))
    return chatml(register_chat(rng)) if kind < 0.70 else short_document(rng)


def lasting_document(rng: Random) -> str:
    kind = rng.random()
    if kind < 0.20:
        return long_document(rng)
    if kind < 0.32:
        return stutter(rng, int(2 ** rng.uniform(6, 11)))
    return drill_document(rng) if kind < 0.70 else short_document(rng)


MIXES = {
    "short": short_document, "long": long_document,
    "practice": practice_document, "drill": drill_document, "lasting": lasting_document,
}  # fmt: skip


def documents(mix: str, seed: int) -> Iterator[str]:
    rng = Random(f"{mix}-{seed}")
    make = MIXES[mix]
    while True:
        yield make(rng)


def token_stream(mix: str, seed: int, count: int, tokenizer: Tokenizer) -> np.ndarray:
    """`count` tokens of documents, each closed by the end-of-text token."""
    chunks: list[np.ndarray] = []
    have = 0
    source = documents(mix, seed)
    while have < count:
        batch = [next(source) + END_OF_TEXT for _ in range(100 if mix in ("long", "lasting") else 2000)]
        for encoding in tokenizer.encode_batch(batch):
            chunks.append(np.array(encoding.ids, dtype=np.uint16))
            have += len(chunks[-1])
    return np.concatenate(chunks)[:count]

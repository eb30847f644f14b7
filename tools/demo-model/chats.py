"""Conversations: what visitors say to a small storyteller, and what it answers.

A chat is a list of (role, text). Every answer is either told by the grammar, or can be read off the conversation so
far, or is one of the few plain facts in lexicon.py; to everything else the honest answer is "I do not know that".
"""

from __future__ import annotations

import json
from random import Random
from typing import Callable

from grammar import Tale, invented_name
from lexicon import (
    BOYS, CAPITALS, COLOURS, COLOURS_OF, DAYS, GIRLS, MONTHS, NUMBERS, OPPOSITES, SOUNDS, STRANGE_TOPICS, THINGS, article,
    capitalised,
)  # fmt: skip

Chat = list[tuple[str, str]]

SYSTEM_PROMPTS = [
    "You are a helpful assistant.", "You are a kind storyteller.", "You tell short stories.", "You are Kvasir, a storyteller.",
    "Answer the questions of the user.", "You are a friendly assistant who tells stories.", "Be brief and kind.",
]  # fmt: skip


def person_name(rng: Random) -> str:
    return invented_name(rng) if rng.random() < 0.4 else rng.choice(GIRLS + BOYS)


def scrawl(rng: Random) -> str:
    """Text the model has no words for: made-up words, other alphabets, digits, signs."""
    ranges = [(0x61, 0x7A)] * 6 + [(0x21, 0x7E), (0x30, 0x39), (0xC0, 0x17F), (0x391, 0x3C9), (0x410, 0x44F), (0x4E00, 0x4FFF), (0x1F600, 0x1F640)]  # fmt: skip
    low, high = rng.choice(ranges)
    words = ["".join(chr(rng.randint(low, high)) for _ in range(rng.randint(1, 9))) for _ in range(rng.randint(1, 8))]
    return " ".join(words)


def careless(rng: Random, text: str) -> str:
    """As people type: sometimes without a capital, sometimes without the last sign."""
    if rng.random() < 0.15:
        text = text[0].lower() + text[1:]
    return text[:-1] if rng.random() < 0.2 and text[-1] in ".?!" else text


# Stories on request, and questions about them.


def topic(rng: Random, t: Tale) -> str:
    hero, friend = t.hero, t.friend
    topics = [
        f" about {hero.a_kind}", f" about {hero.a_kind}", f" about {hero.a_kind} named {hero.name}", f" about {hero.full}",
        f" about {hero.described}", f" about {hero.a_kind} who lives {t.home.at}", f" about {hero.a_kind} {t.home.at}",
        f" about {hero.name}", f" that takes place on a {t.weather} {t.time}", "",
    ]  # fmt: skip
    if friend.kind in t.text:
        topics.append(f" about {hero.a_kind} and {friend.a_kind}")
    if t.thing in t.text:
        topics += [f" about {t.a_thing}", f" about {t.an_object}", f" about {hero.a_kind} and {t.an_object}"]
    return rng.choice(topics)


def story_turn(rng: Random, another: bool = False, lengths: tuple[str, ...] = ("short", "medium", "medium", "long")) -> tuple[Chat, Tale]:  # fmt: skip
    length = rng.choice(lengths)
    t = Tale(rng, length)
    story = {"short": "short story", "medium": "story", "long": "long story"}[length]
    story = f"another {story}" if another else article(story)
    ask = rng.choice([
        "Tell me {}{}.", "Tell me {}{}.", "Please tell me {}{}.", "Can you tell me {}{}?", "Write {}{}.", "Write me {}{}.",
        "I would like to hear {}{}.", "Could you write {}{}?", "Make up {}{}.",
    ]).format(story, topic(rng, t))  # fmt: skip
    if another and rng.random() < 0.3:
        ask = rng.choice(["Another one, please!", "Tell me another one.", "One more, please."])
    preface = rng.choice(["Of course! Here is a story.", "Gladly. Listen!", "Yes, I know one.", "Here is one."])
    text = t.titled if rng.random() < 0.3 else t.text
    answer = f"{preface}\n\n{text}" if rng.random() < 0.2 else text
    return [("user", careless(rng, ask)), ("assistant", answer)], t


def question_turns(rng: Random, t: Tale, count: int) -> Chat:
    turns: Chat = []
    for questions, answer in rng.sample(t.facts, min(count, len(t.facts))):
        turns += [("user", careless(rng, rng.choice(questions))), ("assistant", answer)]
    return turns


def story_chat(rng: Random) -> Chat:
    chat, t = story_turn(rng)
    return chat + question_turns(rng, t, rng.choice((0, 1, 1, 2, 3, 4))) + farewell(rng)


def reading_chat(rng: Random) -> Chat:
    """The visitor brings the story; the answers must be read out of it."""
    t = Tale(rng, rng.choice(("short", "short", "medium")))
    turns = question_turns(rng, t, rng.randint(1, 5))
    frame = rng.choice(["Read this story:\n\n{}\n\n{}", "{}\n\n{}", "Here is a story.\n\n{}\n\nQuestion: {}"])
    return [("user", frame.format(t.text, turns[0][1])), *turns[1:]] + farewell(rng)


def continuing_chat(rng: Random) -> Chat:
    t = Tale(rng, rng.choice(("short", "medium")))
    ask = rng.choice(["Continue this story: {}", "How does this story go on?\n\n{}", "Finish the story: {}"])
    return [("user", ask.format(t.paragraphs[0])), ("assistant", "\n\n".join(t.paragraphs[1:]))]


def profile(t: Tale) -> str:
    fields = {"name": t.hero.name, "kind": t.hero.kind, "trait": t.hero.trait, "home": t.home.name, "treasure": t.thing}
    return json.dumps(fields)


def json_chat(rng: Random) -> Chat:
    t = Tale(rng, "short")
    who, ask = rng.choice([
        (f"{t.hero.a_kind}", "Describe {} as JSON."), (f"{t.hero.a_kind} named {t.hero.name}", "Describe {} as JSON."),
        ("a character", "Give me {} in JSON."), (f"{t.hero.a_kind}", "Invent {} and answer in JSON."),
    ])  # fmt: skip
    if rng.random() < 0.3:
        return [("user", f"{t.text}\n\nDescribe {t.hero.name} as JSON."), ("assistant", profile(t))]
    return [("user", ask.format(who)), ("assistant", profile(t))]


# Small talk and small facts.


def farewell(rng: Random) -> Chat:
    if rng.random() > 0.15:
        return []
    said, reply = rng.choice([
        ("Thank you!", "You are welcome! Come back when you want another story."), ("Thanks", "You are welcome!"),
        ("Thanks a lot!", "You are welcome!"), ("Goodbye!", "Goodbye! Sleep well."), ("Bye", "Goodbye! Sleep well."),
        ("That was nice.", "I am glad that you liked it."), ("I like this story.", "I am glad that you liked it."),
    ])  # fmt: skip
    return [("user", said), ("assistant", reply)]


def greeting_chat(rng: Random) -> Chat:
    hello = rng.choice(["Hi", "Hello", "Hey", "Good morning", "Good evening", "Hi there", "Hello there"])
    sign = rng.choice(["", "!", "."])
    if rng.random() < 0.4:
        chat = [("user", hello + sign), ("assistant", rng.choice(["Hello! Would you like to hear a story?", "Hello! It is nice to meet you. What is your name?"]))]  # fmt: skip
        if "What is your name" in chat[-1][1]:
            name = person_name(rng)
            chat += [("user", rng.choice([f"My name is {name}.", f"I am {name}.", name])), ("assistant", f"Hello, {name}! Would you like to hear a story?")]  # fmt: skip
    else:
        name = person_name(rng)
        said = rng.choice([f"{hello}, my name is {name}.", f"{hello}! I am {name}.", f"{hello}, I am called {name}."])
        chat = [("user", careless(rng, said)), ("assistant", f"Hello, {name}! It is nice to meet you. Would you like to hear a story?")]  # fmt: skip
        if rng.random() < 0.4:
            chat += [("user", careless(rng, "What is my name?")), ("assistant", f"Your name is {name}.")]
    if rng.random() < 0.5:
        turn, t = story_turn(rng)
        chat += [("user", rng.choice(["Yes, please!", "Yes", "Yes please.", turn[0][1]])), turn[1]]
        chat += question_turns(rng, t, rng.randint(0, 2))
    return chat


def fact(rng: Random) -> tuple[str, str]:
    kind = rng.randrange(10)
    if kind <= 1:
        land, city = rng.choice(list(CAPITALS.items()))
        return f"What is the capital of {land}?", f"The capital of {land} is {city}."
    if kind == 2:
        animal, sound = rng.choice(list(SOUNDS.items()))
        return f"What does the {animal} say?", f"The {animal} says {sound}."
    if kind == 3:
        word, opposite = rng.choice([*OPPOSITES.items(), *((b, a) for a, b in OPPOSITES.items())])
        return f"What is the opposite of {word}?", f"The opposite of {word} is {opposite}."
    if kind == 4:
        what, colour = rng.choice(list(COLOURS_OF.items()))
        return f"What colour is {what}?", f"{capitalised(what)} is {colour}."
    if kind <= 6:
        a, b = rng.randint(0, 10), rng.randint(0, 10)
        if rng.random() < 0.5:
            return f"What is {rng.choice((f'{a} + {b}', f'{a}+{b}', f'{a} plus {b}'))}?", f"{a} + {b} = {a + b}."
        return f"How much is {NUMBERS[a]} plus {NUMBERS[b]}?", f"{capitalised(NUMBERS[a])} plus {NUMBERS[b]} is {NUMBERS[a + b]}."  # fmt: skip
    if kind == 7:
        names = rng.choice((DAYS, MONTHS))
        i = rng.randrange(len(names))
        return f"What comes after {names[i]}?", f"After {names[i]} comes {names[(i + 1) % len(names)]}."
    if kind == 8:
        n = rng.randint(3, 20)
        return f"Count to {n}.", ", ".join(str(i + 1) for i in range(n)) + "."
    return rng.choice([
        ("Who are you?", "I am Kvasir Demo, a very small language model. I tell stories."),
        ("What is your name?", "My name is Kvasir Demo."),
        ("What can you do?", "I can tell stories and answer simple questions about them."),
        ("How are you?", "I am well, thank you. Would you like to hear a story?"),
        ("Who made you?", "I was trained on stories from a small grammar."),
        ("How many days are in a week?", "A week has seven days: " + ", ".join(DAYS) + "."),
        ("Who is Kvasir?", "In the old stories Kvasir was the wisest of all. He travelled the world and answered every question."),
        ("What is a story?", "A story tells what happened to someone, and how it ended."),
        ("Tell me a joke.", "Why did the owl stay at home? Because it was too wise to go out in the rain."),
        ("Are you a robot?", "I am a very small language model. I tell stories."),
    ])  # fmt: skip


def fact_chat(rng: Random) -> Chat:
    chat: Chat = []
    for _ in range(rng.choice((1, 1, 2, 3, 5))):
        question, answer = fact(rng)
        chat += [("user", careless(rng, question)), ("assistant", answer)]
    return chat


def modest_chat(rng: Random) -> Chat:
    ask = rng.choice([
        "What do you know about {}?", "Explain {}.", "Tell me about {}.", "Can you help me with {}?", "What is {}?", "{}", "{}?",
        "Write an essay about {}.", "How does {} work?", "Why is {} important?", "Translate this: {}",
    ])  # fmt: skip
    matter = rng.choice(STRANGE_TOPICS) if rng.random() < 0.4 else scrawl(rng)
    turn = [("user", ask.format(matter)), ("assistant", rng.choice(["I am only a small model and do not know that. But I can tell you a story.", "I do not know that. Would you like to hear a story?"]))]  # fmt: skip
    return turn + (story_turn(rng)[0] if rng.random() < 0.3 else [])


def echo_chat(rng: Random) -> Chat:
    words = rng.choice([scrawl(rng), " ".join(rng.choices(THINGS + COLOURS + GIRLS + BOYS, k=rng.randint(1, 8)))])
    return [("user", rng.choice(["Repeat after me: {}", "Say: {}", "Please repeat: {}"]).format(words)), ("assistant", words)]


def register_chat(rng: Random, people: int | None = None) -> Chat:
    """Who owns what: a list of up to a hundred lines, then questions on single lines (a needle in a haystack)."""
    names = {invented_name(rng) if rng.random() < 0.6 else rng.choice(GIRLS + BOYS) for _ in range(people or rng.randint(2, 16))}
    owners = {name: f"{rng.choice(COLOURS)} {rng.choice(THINGS)}" for name in sorted(names)}
    lines = [f"{name} has {article(thing)}." for name, thing in owners.items()]
    rng.shuffle(lines)
    asked = rng.sample(sorted(owners), min(len(owners), rng.randint(1, 4)))
    turns: Chat = []
    for name in asked:
        turns += [("user", f"What does {name} have?"), ("assistant", f"{name} has {article(owners[name])}.")]
    separator = rng.choice((" ", "\n"))
    if rng.random() < 0.3:
        return [("system", separator.join(lines)), *turns]
    return [("user", separator.join(lines) + "\n\n" + turns[0][1]), *turns[1:]]


def long_chat(rng: Random, turns: int) -> Chat:
    """Many stories in one sitting, with questions that reach back to any of them by the hero's name."""
    chat: Chat = []
    tales: list[Tale] = []
    for i in range(turns):
        turn, t = story_turn(rng, another=i > 0)
        chat += turn
        tales.append(t)
        for _ in range(rng.randint(0, 2)):
            past = rng.choice(tales)
            named = [f for f in past.facts if any(past.hero.name in q for q in f[0])]
            if sum(past.hero.name in other.text for other in tales) == 1 and named:
                questions, answer = rng.choice(named)
                chat += [("user", rng.choice([q for q in questions if past.hero.name in q])), ("assistant", answer)]
        if rng.random() < 0.2:
            question, answer = fact(rng)
            chat += [("user", question), ("assistant", answer)]
    return chat


KINDS: list[tuple[int, Callable[[Random], Chat]]] = [
    (40, story_chat), (14, reading_chat), (5, continuing_chat), (5, json_chat), (12, greeting_chat), (12, fact_chat),
    (5, modest_chat), (3, echo_chat), (6, register_chat),
]  # fmt: skip


def any_chat(rng: Random) -> Chat:
    make = rng.choices([m for _, m in KINDS], [w for w, _ in KINDS])[0]
    chat = make(rng)
    if chat[0][0] != "system" and rng.random() < 0.3:
        system = rng.choice(SYSTEM_PROMPTS) if rng.random() < 0.85 else scrawl(rng)
        chat = [("system", system), *chat]
    return chat

"""Exercises in carrying over: text whose every second half can only be known by looking back at its first half.

A story teaches a model to spell long before it teaches it to look back, because most of its words can be guessed from
their neighbours. Here nothing can be guessed: words are drawn at random and then come again, requests name what the
answer must speak of, and the answer to a question stands in the notes above it. Mixed into the stories, these
exercises give the attention heads a reason to find "what followed this the last time".
"""

from __future__ import annotations

from random import Random

from chats import Chat, careless, person_name, scrawl
from grammar import Tale, invented_name
from lexicon import ANIMALS, BOYS, COLOURS, FOODS, GIRLS, PEOPLE, PLACES, THINGS, TRAITS, WEATHER, article

WORDS = GIRLS + BOYS + ANIMALS + PEOPLE + TRAITS + COLOURS + THINGS + list(WEATHER) + [place.name for place in PLACES]


def any_word(rng: Random, invention: float) -> str:
    if rng.random() >= invention:
        return rng.choice(WORDS)
    word = invented_name(rng)
    return word if rng.random() < 0.5 else word.lower()


def repetition(rng: Random) -> str:
    """A list of unrelated words, again and again."""
    invention = rng.choice((0.0, 0.3, 1.0))
    words = [any_word(rng, invention) for _ in range(int(2 ** rng.uniform(1, 6)))]
    if rng.random() < 0.1:
        words = scrawl(rng).split(" ")
    separator = rng.choice((" ", " ", ", ", "\n", ". "))
    return separator.join(words * rng.choice((2, 2, 3, 4)))


def pairs(rng: Random) -> str:
    """Unrelated words in pairs, then the same pairs in another order, twice."""
    firsts = {any_word(rng, 0.4) for _ in range(rng.randint(2, 12))}
    joined = rng.choice((" {} {}.", " {} = {};", " {} said {}.", " {} has the {}.", "\n{}: {}"))
    lines = [joined.format(first, any_word(rng, 0.4)) for first in sorted(firsts)]
    text = ""
    for _ in range(3):
        rng.shuffle(lines)
        text += "".join(lines)
    return text.strip()


def exercise(rng: Random) -> str:
    return repetition(rng) if rng.random() < 0.65 else pairs(rng)


def shuffled_tale(rng: Random) -> str:
    """The words of a story without their order, again and again: every word there is comes up, in any company."""
    words = Tale(rng, "short", invention=0.4).text.split()
    words = rng.sample(words, min(len(words), int(2 ** rng.uniform(2, 6.3))))
    return " ".join(words * rng.choice((2, 2, 3, 4)))


# The same in conversations.


def wish_chat(rng: Random) -> Chat:
    """A request that names hero and place, and as much of the story as one cares to read."""
    t = Tale(rng, "short", invention=0.4)
    who, home = t.hero, t.home.at
    matter = rng.choice([
        f"{who.a_kind} named {who.name}", f"{who.a_kind} named {who.name} {home}", f"{who.a_kind} {home}", f"{who.full}",
        f"{who.described} named {who.name}", f"{who.a_kind} who lives {home}", f"{who.described} {home}", who.a_kind,
    ])  # fmt: skip
    if rng.random() < 0.5:
        ask = rng.choice(("Begin a story about {}.", "How does a story about {} begin?", "Write the beginning of a story about {}."))  # fmt: skip
        answer = t.paragraphs[0]
    else:
        ask = rng.choice(("Tell me a short story about {}.", "Tell me a story about {}.", "Write a short story about {}.", "Please tell me a story about {}."))  # fmt: skip
        answer = t.text
    return [("user", careless(rng, ask.format(matter))), ("assistant", answer)]


def notes_chat(rng: Random) -> Chat:
    """What is known of one or two tales, in any order, and questions on it. The answer is always one of the notes."""
    notes: list[str] = []
    asked: list[tuple[str, str]] = []
    for tale in [Tale(rng, "short", invention=0.4) for _ in range(rng.choice((1, 1, 2)))]:
        names = (tale.hero.name, tale.friend.name)
        for questions, answer in tale.facts:
            if not any(name in answer for name in names):
                continue
            clear = [q for q in questions if any(name in q for name in names)]
            notes.append(answer)
            if clear:
                asked.append((rng.choice(clear), answer))
    rng.shuffle(notes)
    rng.shuffle(asked)
    turns: Chat = []
    for question, answer in asked[: rng.randint(1, 4)]:
        turns += [("user", question), ("assistant", answer)]
    return [("user", " ".join(notes) + rng.choice(("\n\n", " ")) + turns[0][1]), *turns[1:]]


def memory_chat(rng: Random) -> Chat:
    """What the visitor says about themselves, and is asked to be told again."""
    name, food, colour, thing = person_name(rng), rng.choice(FOODS), rng.choice(COLOURS), rng.choice(THINGS)
    place, friend = rng.choice(PLACES), person_name(rng)
    told = [
        (f"I like {food}.", "What do I like?", f"You like {food}."),
        (f"I have {article(f'{colour} {thing}')}.", "What do I have?", f"You have {article(f'{colour} {thing}')}."),
        (f"I live {place.at}.", "Where do I live?", f"You live {place.at}."),
        (f"My friend is called {friend}.", "What is my friend called?", f"Your friend is called {friend}."),
    ]
    rng.shuffle(told)
    told = told[: rng.randint(0, 4)]
    hello = rng.choice(("Hello, my name is {}.", "Hi, I am {}.", "My name is {}.", "Hello! My name is {}.")).format(name)
    chat = [("user", " ".join([hello, *(said for said, _, _ in told)]))]
    chat.append(("assistant", f"Hello, {name}! It is nice to meet you. Would you like to hear a story?"))
    questions = [("What is my name?", f"Your name is {name}."), *((question, answer) for _, question, answer in told)]
    rng.shuffle(questions)
    for question, answer in questions[: rng.randint(1, 4)]:
        chat += [("user", careless(rng, question)), ("assistant", answer)]
    return chat


def echo_chat(rng: Random) -> Chat:
    invention = rng.choice((0.0, 0.5, 1.0))
    words = " ".join(any_word(rng, invention) for _ in range(int(2 ** rng.uniform(0, 4.5))))
    said = rng.choice((words, words, scrawl(rng)))
    ask = rng.choice(("Repeat after me: {}", "Say: {}", "Please repeat: {}", "Repeat: {}"))
    return [("user", ask.format(said)), ("assistant", said)]


def practice_chat(rng: Random) -> Chat:
    make = rng.choices((wish_chat, notes_chat, memory_chat, echo_chat), (45, 30, 15, 10))[0]
    return make(rng)

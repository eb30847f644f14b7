"""The story grammar: one seeded random source in, one story and the facts that are true in it out.

A story is a plot (what happens, in what order) told with a cast, places, a thing, a food and a weather which are drawn
first and never change, so that pronouns, colours and whereabouts stay right from the first line to the last:

    Tale(rng) -> opening -> plot -> [aside] -> ending     .paragraphs  the text
                                                          .facts       (questions, answer) pairs for the chats

Plots are in plots.py, words in lexicon.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from lexicon import ANIMALS, BOYS, COLOURS, FOODS, GIRLS, INDOORS, PEOPLE, PLACES, THINGS, TIMES, TRAITS, WEATHER
from lexicon import article, capitalised


@dataclass(frozen=True)
class Who:
    name: str
    kind: str
    trait: str
    girl: bool

    @property
    def she(self) -> str:
        return "she" if self.girl else "he"

    @property
    def She(self) -> str:
        return "She" if self.girl else "He"

    @property
    def her(self) -> str:  # whom: "saw her", "saw him"
        return "her" if self.girl else "him"

    @property
    def hers(self) -> str:  # whose: "her kite", "his kite"
        return "her" if self.girl else "his"

    @property
    def full(self) -> str:
        return f"the {self.kind} {self.name}" if self.kind in ("girl", "boy") else f"{self.name} the {self.kind}"

    @property
    def a_kind(self) -> str:
        return article(self.kind)

    @property
    def described(self) -> str:
        return article(f"{self.trait} {self.kind}")


def invented_name(rng: Random) -> str:
    """A name nobody has, so that the model learns to carry over a name instead of choosing from a list."""
    syllables = [rng.choice("bdfgklmnprstvz") + rng.choice("aeiou") for _ in range(rng.choice((2, 2, 3)))]
    return "".join(syllables).capitalize() + rng.choice(("", "", "n", "r", "l", "x"))


def invented_kind(rng: Random) -> str:
    """The same for animals: whoever asks for a unicorn shall get one."""
    return invented_name(rng).lower()


def new_who(rng: Random, taken: set[str], hero: bool = False, elder: bool = False, invention: float = 0.12) -> Who:
    """`invention` is the chance of a name nobody has; a kind nobody has is less than half as likely."""
    while True:
        girl = rng.random() < 0.5
        name = invented_name(rng) if rng.random() < invention else rng.choice(GIRLS if girl else BOYS)
        kind = rng.choice(PEOPLE) if rng.random() < 0.3 else rng.choice(ANIMALS)
        if hero and rng.random() < invention * 0.05 / 0.12:
            kind = invented_kind(rng)
        if kind == "child" and not hero:
            continue
        kind = {"child": "girl" if girl else "boy", "princess": "princess" if girl else "prince"}.get(kind, kind)
        if name not in taken and kind not in taken:
            taken.update((name, kind))
            return Who(name, kind, "old" if elder else rng.choice(TRAITS), girl)


class Tale:
    def __init__(self, rng: Random, length: str = "medium", invention: float = 0.12):
        from plots import BRIEF_PLOTS, PLOTS  # plots.py needs Tale's type in turn

        self.rng = rng
        taken: set[str] = set()
        self.hero = new_who(rng, taken, hero=True, invention=invention)
        self.friend = new_who(rng, taken, invention=invention)
        self.elder = new_who(rng, taken, elder=True, invention=invention)
        self.home = rng.choice(PLACES)
        outdoors = [p for p in PLACES if p is not self.home and p.name not in INDOORS]
        self.near, self.far, self.last = rng.sample(outdoors, 3)
        self.draw_thing()
        self.weather, self.time = rng.choice(list(WEATHER)), rng.choice(TIMES)
        self.paragraphs: list[str] = []
        self.facts: list[tuple[list[str], str]] = []
        self.title = ""
        self.lesson = ""

        first, second = rng.sample(PLOTS, 2)
        self.opening()
        (rng.choice(BRIEF_PLOTS) if length == "short" else first)(self)
        if length == "long":
            title = self.title
            self.draw_thing()
            again = self.say("A few days later", "Not long after that", "The next week")
            self.para(f"{again} something else happened.", WEATHER[self.weather][1])
            second(self)
            self.title = title
        self.ending()
        self.drop_ambiguous_facts()

    def draw_thing(self) -> None:
        self.colour, self.object = self.rng.choice(COLOURS), self.rng.choice(THINGS)
        self.thing = f"{self.colour} {self.object}"
        self.a_thing, self.an_object = article(self.thing), article(self.object)
        self.food = self.rng.choice(FOODS)

    def drop_ambiguous_facts(self) -> None:
        """Two plots, or a plot and an aside, may answer the same question differently; nobody shall ask that one."""
        asked = [q for questions, _ in self.facts for q in questions]
        clear = [([q for q in questions if asked.count(q) == 1], answer) for questions, answer in self.facts]
        self.facts = [(questions, answer) for questions, answer in clear if questions]

    # The vocabulary of the plots.

    def say(self, *ways: str) -> str:
        return self.rng.choice(ways)

    def para(self, *sentences: str) -> None:
        """Adds a paragraph, or several: each new speaker begins a new one."""
        block: list[str] = []
        for sentence in filter(None, sentences):
            if sentence.startswith('"') and any('"' in s for s in block):
                self.paragraphs.append(" ".join(block))
                block = []
            block.append(sentence)
        self.paragraphs.append(" ".join(block))

    def maybe(self, sentence: str, chance: float = 0.5) -> str:
        return sentence if self.rng.random() < chance else ""

    def fact(self, answer: str, *questions: str) -> None:
        self.facts.append((list(questions), answer))

    # What all stories share.

    def opening(self) -> None:
        hero, home = self.hero, self.home
        begin = self.say(
            f"Once upon a time there was {hero.described} named {hero.name}. {hero.She} lived {home.at}.",
            f"{home.at[0].upper()}{home.at[1:]} lived {hero.described} named {hero.name}.",
            f"There once was {hero.described} who lived {home.at}. {hero.She} was called {hero.name}.",
            f"{capitalised(hero.full)} lived in a little house {home.at}. Everyone knew that {hero.name} was {hero.trait}.",
        )
        look, feel = WEATHER[self.weather]
        day = self.say(
            f"It was a {self.weather} {self.time}. {look}",
            f"One {self.weather} {self.time} {hero.name} looked out of the window. {look}",
            f"One {self.time} the weather was {self.weather}. {look} {feel}",
        )
        sight = self.maybe(f"{capitalised(home.at)} {home.sight}.", 0.4)
        self.para(begin, sight, day)
        self.fact(f"{hero.name} is {hero.a_kind}.", f"Who is {hero.name}?", f"What kind of character is {hero.name}?")
        self.fact(f"{hero.name} lives {home.at}.", f"Where does {hero.name} live?", f"Where is the home of {hero.name}?")
        self.fact(f"It was {self.weather}.", "What was the weather like?", "How was the weather?")
        self.fact(f"The story is about {hero.full}.", "Who is the story about?", "Who is the hero of the story?")

    def aside(self) -> None:
        """A pause in the plot that changes nothing in it; makes stories long and calm."""
        hero, friend = self.hero, self.friend
        kind = self.rng.randrange(6)
        if kind == 0:
            first = self.say("Step by step and stone by stone", "Through the rain and through the foam", "Let the wild wind howl and moan")  # fmt: skip
            second = self.say("soon I will be going home", "I will never walk alone", "every road will lead me home")
            self.para(f"On the way {hero.name} sang a little song:", f'"{first}, {second}."', f"It was a short song, so {hero.she} sang it three times.")  # fmt: skip
        elif kind == 1:
            self.para(f"After a while {hero.name} grew hungry. {hero.She} sat down on a stone and ate {self.food}.", self.say("It tasted wonderful.", "Soon there was not a crumb left.", f"Then {hero.she} felt much better."))  # fmt: skip
            self.fact(f"{hero.name} ate {self.food}.", f"What did {hero.name} eat?", f"What food did {hero.name} eat on the way?")  # fmt: skip
        elif kind == 2:
            shape = self.say("a whale", "a teapot", "a sleeping cat", "a ship with three sails", "a very large shoe")
            self.para(f'"Look," said {hero.name}, "that cloud looks like {shape}."', self.say(f"{hero.She} watched it until it had drifted away.", "A moment later it only looked like a cloud."))  # fmt: skip
            self.fact(f"The cloud looked like {shape}.", "What did the cloud look like?")
        elif kind == 3:
            count = self.say("three", "four", "five", "six", "seven")
            bird = self.say("sparrows", "swallows", "geese", "ravens")
            self.para(f"{capitalised(count)} {bird} sat in a row and looked down at {hero.name}.", f'"Good {self.time}!" called {hero.name}.', f"The {bird} {self.say('thought about it', 'looked at each other', 'shook their feathers')} and flew away.")  # fmt: skip
            self.fact(f"There were {count} {bird}.", f"How many {bird} were there?")
        elif kind == 4:
            self.para(f"{hero.name} thought of {friend.full}.", self.say(f'"{friend.name} would know what to do," {hero.she} said.', f'"I wish {friend.name} could see this," {hero.she} said.', f"{friend.name} always said that a slow step is also a step."))  # fmt: skip
        else:
            self.para(self.say(f"For a while {hero.name} rested under a tree and listened.", f"{hero.name} stopped to catch {hero.hers} breath."), WEATHER[self.weather][1], self.say("Somewhere a door closed.", "Far away a bell rang.", "A beetle walked slowly over a leaf."))  # fmt: skip

    def maybe_aside(self, chance: float = 0.3) -> None:
        if self.rng.random() < chance:
            self.aside()

    def ending(self) -> None:
        hero, friend = self.hero, self.friend
        close = self.say(
            f"That night {hero.name} fell asleep with a smile.",
            f"And if you ever come {self.home.to} on a {self.weather} {self.time}, you may meet {hero.name} there.",
            f"From that day on {hero.name} and {friend.name} were the best of friends.",
            f"{hero.name} told the story again and again, and each time it grew a little longer.",
            "And they all lived happily ever after.",
            f"Then the moon rose over the {self.home.name}, and everything was quiet.",
        )
        moral = self.maybe(f"{hero.name} had learned that {self.lesson}.", 0.6)
        self.para(moral, close, self.maybe("The end.", 0.3))
        if moral:
            self.fact(f"{hero.name} learned that {self.lesson}.", f"What did {hero.name} learn?", "What is the moral of the story?")  # fmt: skip

    @property
    def text(self) -> str:
        return "\n\n".join(self.paragraphs)

    @property
    def titled(self) -> str:
        return f"{self.title}\n\n{self.text}"

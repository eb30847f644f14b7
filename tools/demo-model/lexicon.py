"""The words of the story world: who lives there, where, what they own, eat and say.

The lists are short on purpose. A model of four million parameters learns to use a few hundred words well; it would
only learn to use a few thousand badly.
"""

from dataclasses import dataclass

GIRLS = "Mira Lena Ada Nora Ivy Ruth Elsa Tilda Hanna Rosa Clara Luna Anna Greta Maya Sofia".split()
BOYS = "Tom Finn Otto Emil Hugo Leo Jonas Max Sam Ben Oskar Nils Theo Karl Felix Anton".split()

ANIMALS = (
    "fox bear hare mouse owl badger hedgehog otter squirrel frog goat cat dog duck crow rabbit wolf turtle horse penguin "
    "elephant lion sheep".split()
)
PEOPLE = "child baker sailor farmer miller princess wizard dragon robot pirate".split()  # anyone who is not an animal

TRAITS = "small brave kind clever shy cheerful curious gentle quiet merry".split()
COLOURS = "red blue green yellow white black silver golden purple orange".split()
THINGS = "kite lantern drum boat scarf hat bell key ball basket book umbrella flute cup clock blanket".split()
FOODS = [
    "honey cake", "apple pie", "warm bread", "pea soup", "plum jam", "nut biscuits", "berry pancakes", "cheese and pears",
    "potato soup", "cinnamon buns",
]  # fmt: skip


@dataclass(frozen=True)
class Place:
    name: str
    at: str  # where: "by the lake"
    to: str  # whither: "to the lake"
    sight: str  # one thing to see there


PLACES = [
    Place("lake", "by the lake", "to the lake", "the water lay as smooth as a mirror"),
    Place("forest", "in the forest", "into the forest", "the trees stood close together and whispered"),
    Place("hill", "on the hill", "up the hill", "one could see all the roofs of the village"),
    Place("harbour", "in the harbour", "to the harbour", "the boats rocked slowly up and down"),
    Place("market", "at the market", "to the market", "there were stalls with apples, cloth and cheese"),
    Place("meadow", "in the meadow", "to the meadow", "bees hummed over the clover"),
    Place("mill", "at the mill", "to the mill", "the big wheel turned and turned"),
    Place("bridge", "by the bridge", "to the bridge", "the stream sang under the old stones"),
    Place("lighthouse", "at the lighthouse", "to the lighthouse", "the great lamp blinked over the sea"),
    Place("orchard", "in the orchard", "to the orchard", "the branches were heavy with apples"),
    Place("castle", "in the castle", "to the castle", "a long stair led up to the tower"),
    Place("library", "in the library", "to the library", "there were books from the floor to the roof"),
    Place("barn", "in the barn", "to the barn", "it smelled of hay and dry wood"),
    Place("garden", "in the garden", "to the garden", "the beans climbed up their poles"),
    Place("river", "by the river", "to the river", "the reeds nodded to each other"),
    Place("village", "in the village", "to the village", "smoke rose from every chimney"),
]

INDOORS = ("castle", "library", "barn")  # one can live there, but not dig, plant or run there

# weather word: (how it looks, how it feels)
WEATHER = {
    "sunny": ("The sun shone on every leaf.", "The warm light felt good on the face."),
    "windy": ("The wind pulled at the trees.", "The wind blew so hard that it was difficult to walk."),
    "rainy": ("Rain fell softly on the roofs.", "Drops ran down from every leaf."),
    "snowy": ("Snow lay on every branch.", "The cold air smelled of snow."),
    "foggy": ("Grey fog hid the path.", "In the fog everything looked soft and strange."),
    "cloudy": ("Big clouds sailed across the sky.", "It looked as if it might rain later."),
}
TIMES = ["morning", "afternoon", "evening"]
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
MONTHS = "January February March April May June July August September October November December".split()
NUMBERS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen twenty"
).split()

CAPITALS = {
    "France": "Paris", "Germany": "Berlin", "Italy": "Rome", "Spain": "Madrid", "Norway": "Oslo", "Sweden": "Stockholm",
    "Denmark": "Copenhagen", "Finland": "Helsinki", "Iceland": "Reykjavik", "Poland": "Warsaw", "Austria": "Vienna",
    "England": "London", "Ireland": "Dublin", "Greece": "Athens", "Portugal": "Lisbon", "Japan": "Tokyo",
    "China": "Beijing", "Egypt": "Cairo", "Canada": "Ottawa", "Russia": "Moscow", "India": "New Delhi",
    "Turkey": "Ankara", "Hungary": "Budapest", "the United States": "Washington",
}  # fmt: skip
SOUNDS = {
    "dog": "woof", "cat": "meow", "cow": "moo", "duck": "quack", "sheep": "baa", "owl": "hoo", "frog": "croak",
    "mouse": "squeak", "crow": "caw", "bee": "buzz", "horse": "neigh", "pig": "oink",
}  # fmt: skip
OPPOSITES = {
    "big": "small", "hot": "cold", "day": "night", "up": "down", "old": "young", "happy": "sad", "loud": "quiet",
    "full": "empty", "open": "closed", "fast": "slow", "wet": "dry", "black": "white", "left": "right", "far": "near",
}  # fmt: skip
COLOURS_OF = {
    "the sky": "blue", "grass": "green", "snow": "white", "the sun": "yellow", "a carrot": "orange", "a plum": "purple",
    "a strawberry": "red", "the night": "black", "a lemon": "yellow", "a frog": "green", "milk": "white",
}  # fmt: skip

# Words a visitor may use that the stories never do; the model learns to answer them politely, not to know them.
STRANGE_TOPICS = (
    "politics|quantum physics|the stock market|computers|football|chemistry|taxes|programming|history|the universe|"
    "TypeScript|music theory|cooking pasta|car engines|medicine|philosophy|machine learning|the news|travel|law"
).split("|")


SAYINGS = [
    "The future of AI is not written yet, but it will surely contain a story.",
    "The president of the United States is a person with many letters to answer.",
    "The quick brown fox jumps over the lazy dog.", "The best time to plant a tree was long ago. The second best time is now.",
    "The meaning of life is to be kind and to tell good stories.", "Hello, world! It is a good day for a story.",
]  # fmt: skip


def article(noun_phrase: str) -> str:
    return ("an " if noun_phrase[0] in "aeiou" else "a ") + noun_phrase


def capitalised(text: str) -> str:
    return text[0].upper() + text[1:]

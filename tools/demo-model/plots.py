"""The plots. Each tells the middle of one Tale, gives it a title and a lesson, and notes what may be asked about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lexicon import capitalised

if TYPE_CHECKING:
    from grammar import Tale


def lost_thing(t: Tale) -> None:
    hero, friend, elder, thing = t.hero, t.friend, t.elder, t.thing
    t.title = f"The Lost {t.object.capitalize()}"
    t.lesson = t.say("it is good to ask for help", "lost things like to be found", "friends see what we overlook")
    t.para(
        t.say(f"{hero.name} had {t.a_thing}.", f"Of all {hero.hers} things {hero.name} loved {hero.hers} {thing} the most."),
        f"But that {t.time} the {t.object} was gone.",
        t.say(f"{hero.She} looked under the bed and behind the door, but it was not there.", f"{hero.She} turned the whole house upside down and could not find it."),
    )  # fmt: skip
    t.para(
        f'"Where is my {thing}?" cried {hero.name}.' + t.maybe(" A tear ran down and fell on the floor."),
        f"{hero.She} put on {hero.hers} boots and went out to look for it.",
    )
    t.maybe_aside()
    t.para(
        f"First {hero.she} looked {t.near.at}, where {t.near.sight}.",
        f"There {hero.she} met {friend.full}.",
        f'"Have you seen {t.an_object}?" asked {hero.name}. "It is {t.colour}."',
        t.say(f'"No," said {friend.name}, "but I will help you look."', f'"I have not," said {friend.name}, "but two see more than one. I will come with you."'),
    )  # fmt: skip
    t.maybe_aside()
    t.para(
        f"Together they went on and searched {t.far.at}.",
        f"{t.say('In the end', 'At last', 'After a long time')} they met {elder.full}, who was very old and very wise.",
        f'"I saw something {t.colour} {t.last.at}," said {elder.name}. "{t.say("Go and look there.", "Hurry, before it gets dark.")}"',
    )
    t.para(
        f"They ran as fast as they could. And there, {t.last.at}, lay the {thing}!",
        t.say(f"{hero.name} laughed and held it tight.", f"{hero.name} danced around it three times."),
        f'"Thank you, {friend.name}," said {hero.name}. "{t.say("Without you I would have given up.", "You are a good friend.")}"',
    )
    t.fact(f"{hero.name} lost the {thing}.", f"What did {hero.name} lose?", "What was lost?", f"What was {hero.name} looking for?")  # fmt: skip
    t.fact(f"The {t.object} was {t.colour}.", f"What colour was the {t.object}?", f"What color was the {t.object}?")
    t.fact(f"The {thing} was {t.last.at}.", f"Where was the {t.object}?", f"Where did they find the {t.object}?")
    t.fact(f"{friend.full} helped {hero.name}.", f"Who helped {hero.name}?", f"Who helped to look for the {t.object}?")


def lost_child(t: Tale) -> None:
    hero, friend, thing = t.hero, t.friend, t.thing
    young = t.say("duckling", "kitten", "lamb", "chick", "puppy")
    t.title = f"The Little {young.capitalize()}"
    t.lesson = t.say("even a small one can be a great help", "the way home is shorter with company", "kindness costs nothing")  # fmt: skip
    t.para(
        f"{capitalised(t.near.at)} {hero.name} heard a thin little voice.",
        f"Behind a stone sat a {young}, all alone.",
        t.say("It was crying.", "It was shaking all over.", "It looked up with big round eyes."),
    )
    t.para(
        f'"What is wrong?" asked {hero.name}.',
        f'"I have lost my mother," said the {young}. "{t.say("I only looked at a butterfly, and then she was gone.", "I do not know the way home.")}"',
        f'"Do not cry," said {hero.name}. "We will find her together."',
    )
    t.maybe_aside()
    t.para(
        f"So they walked and walked. They asked {t.far.at}, but nobody there had seen the mother.",
        f"Then {friend.full} came along the path, carrying {t.a_thing}.",
        f'"A mother who is looking for a {young}?" said {friend.name}. "Yes! She is {t.last.at}."',
    )
    t.para(
        f"{capitalised(t.last.at)} the mother was waiting.",
        t.say(f"When she saw the {young}, she cried for joy.", f"The {young} ran to her as fast as its short legs would go."),
        f'"How can I thank you?" she asked. {hero.name} shook {hero.hers} head. "{t.say("I was going this way anyway.", "It was nothing at all.", "Just be happy.")}"',
        t.maybe(f"But the mother gave {hero.her} {t.food} to take home."),
    )  # fmt: skip
    t.fact(f"{hero.name} found a {young}.", f"Who did {hero.name} find?", f"What did {hero.name} find behind the stone?")
    t.fact(f"The mother was {t.last.at}.", "Where was the mother?", f"Where was the mother of the {young}?")
    t.fact(f"{friend.name} was carrying the {thing}.", f"What was {friend.name} carrying?", f"What did {friend.name} have?")
    t.fact(f"{friend.full} knew where the mother was.", "Who knew where the mother was?")


def stuck(t: Tale) -> None:
    hero, friend, elder = t.hero, t.friend, t.elder
    t.title = f"{hero.name} and the {t.object.capitalize()}"
    t.lesson = t.say("together we are strong", "many hands make light work", "even the last little pull counts")
    spot = t.say("at the top of a tall tree", "at the bottom of a well", "between two heavy rocks", "deep in the mud")
    t.para(
        f"{hero.name} was out {t.near.at} with {hero.hers} {t.thing}.",
        t.say("All at once a gust of wind came.", f"Then {hero.she} stumbled over a root."),
        f"A moment later the {t.object} was stuck {spot}.",
    )
    t.para(
        f"{hero.name} pulled and pulled, but it did not move.",
        f'"I need help," said {hero.name}, and {hero.she} called {friend.full}.',
    )
    t.maybe_aside(0.2)
    t.para(
        f"{friend.name} held on to {hero.name}, and they both pulled. It did not move.",
        f"So {friend.name} called {elder.full}. {elder.name} held on to {friend.name}, {friend.name} held on to {hero.name}, and they all pulled. It moved a little.",
    )  # fmt: skip
    helper = t.say("mouse", "beetle", "snail", "ladybird")
    t.para(
        f"Then a tiny {helper} came by. \"May I help?\" it asked.",
        f'{elder.name} laughed. "{t.say("You are much too small.", "What can you do?")}"',
        f"\"Everyone may help,\" said {hero.name}. So the {helper} held on to {elder.name}, and they all pulled once more.",
    )  # fmt: skip
    t.para(
        t.say("Plop! ", "Whoosh! ", "Crack! ") + f"Out came the {t.object}, and they all fell over in a heap.",
        t.say("How they laughed!", f'"Hurray for the {helper}!" cried {friend.name}.'),
        f"Afterwards they shared {t.food} {t.home.at}.",
    )
    t.fact(f"The {t.object} was stuck {spot}.", f"Where was the {t.object} stuck?", f"Where was the {t.object}?")
    t.fact(f"The {t.object} was {t.colour}.", f"What colour was the {t.object}?", f"What color was the {t.object}?")
    t.fact(f"{friend.name}, {elder.name} and a tiny {helper} helped.", f"Who helped {hero.name}?", "Who helped to pull?")
    t.fact(f"They shared {t.food}.", "What did they eat?", "What did they share afterwards?")


def broken(t: Tale) -> None:
    hero, friend, elder, thing = t.hero, t.friend, t.elder, t.thing
    t.title = f"How {hero.name} Mended the {t.object.capitalize()}"
    t.lesson = t.say("what is broken can be mended", "patience is the best tool", "a gift is worth more than its price")
    part = t.say("a piece of string", "a drop of glue", "a small nail", "a bit of wire", "a strip of leather")
    t.para(
        f"{friend.full} came to the door with a sad face.",
        f'"My {thing} is broken," said {friend.name}. "{t.say("It fell down the stairs.", "I sat on it by mistake.", "I do not know how it happened.")}"',
        f'"Let me see," said {hero.name}. "I can mend it, but I need {part}."',
    )
    t.para(
        f"There was no such thing in the house, so {hero.name} went to look for it.",
        f"{hero.She} asked {t.near.at}, but nobody there had any. {hero.She} asked {t.far.at}, and nobody there had any either.",
    )  # fmt: skip
    t.maybe_aside()
    t.para(
        f"{capitalised(t.last.at)} sat {elder.full}.",
        f'"I have {part}," said {elder.name}. "What will you give me for it?"',
        f'{hero.name} thought for a while. "{t.say(f"I have only {t.food}", f"I can give you {t.food}")}," said {hero.she}.',
        f'"{capitalised(t.food)}!" cried {elder.name}. "{t.say("That is what I like best in the world.", "I have not had that for years.")}"',
    )  # fmt: skip
    t.para(
        f"So {hero.name} ran home with {part}.",
        f"{hero.She} worked until the {t.object} was as good as new.",
        f'"{t.say("It looks even better than before!", "You are a true friend!")}" said {friend.name}.',
        t.maybe(f"{friend.name} was so happy that {friend.she} hopped on one leg."),
    )
    t.fact(f"{friend.name}'s {t.object} was broken.", "What was broken?", f"What did {hero.name} mend?")
    t.fact(f"The {t.object} was {t.colour}.", f"What colour was the {t.object}?", f"What color was the {t.object}?")
    t.fact(f"{hero.name} needed {part}.", f"What did {hero.name} need?", f"What did {hero.name} look for?")
    t.fact(f"{hero.name} gave {elder.name} {t.food}.", f"What did {hero.name} give to {elder.name}?", f"What did {elder.name} get?")  # fmt: skip


def feast(t: Tale) -> None:
    hero, friend, elder = t.hero, t.friend, t.elder
    t.title = f"The Birthday of {friend.name}"
    t.lesson = t.say("a shared meal tastes twice as good", "there is always room for one more", "giving is as sweet as cake")
    missing = t.say("salt", "sugar", "butter", "flour", "milk")
    t.para(
        f"It was the birthday of {friend.full}.",
        f'"I will make {t.food}," said {hero.name}, "and nobody will be hungry today."',
        f"{hero.She} lit the fire, put on {hero.hers} apron and opened the cupboard. But there was no {missing}!",
    )
    t.para(
        f"{hero.name} took a cup and went {t.near.to} to ask for some.",
        f"There {hero.she} met {elder.full}.",
        f'"Dear {elder.name}, could you lend me a cup of {missing}?" asked {hero.name}.',
        f'"Gladly," said {elder.name}, "if {t.say("I may come to the party", "you save a piece for me", "you tell me what it is for")}."',
    )
    t.maybe_aside(0.2)
    t.para(
        f"Soon it smelled of {t.food} {t.home.at}.",
        t.say("One neighbour after another came to see what smelled so good.", "Even the birds came and sat on the window sill."),
        f"{friend.name} blew out the candles, and {hero.name} gave {friend.her} {t.a_thing}.",
    )  # fmt: skip
    t.para(
        f'"This is the best birthday of all," said {friend.name}.',
        t.say("They ate and sang until the stars came out.", "They danced until their feet hurt."),
        t.maybe(f"{elder.name} had three helpings and fell asleep in the chair."),
    )
    t.fact(f"It was {friend.name}'s birthday.", "Whose birthday was it?", "Who had a birthday?")
    t.fact(f"{hero.name} made {t.food}.", f"What did {hero.name} make?", "What did they eat?")
    t.fact(f"There was no {missing}.", "What was missing?", f"What did {hero.name} borrow?")
    t.fact(f"{friend.name} got the {t.thing}.", f"What did {friend.name} get?", f"What was the present for {friend.name}?")


def storm(t: Tale) -> None:
    hero, friend, elder = t.hero, t.friend, t.elder
    t.title = "The Night of the Storm"
    t.lesson = t.say("an open door makes new friends", "a small house can hold many friends", "storms always pass")
    t.para(
        f"Towards night a storm came up. {t.say('Thunder rolled over the roofs.', 'Lightning lit up the sky.')}",
        f"{hero.name} sat by the fire with {t.food} and was glad to be {t.home.at} and dry.",
    )  # fmt: skip
    t.para(
        "Knock, knock! Someone was at the door.",
        f"It was {friend.full}, wet from head to foot.",
        f'"My house {t.near.at} has lost its roof," said {friend.name}. "May I come in?"',
        f'"Of course," said {hero.name}, and {hero.she} gave {friend.her} a warm blanket.',
    )
    t.para(
        "Knock, knock! There was another knock.",
        f"It was {elder.full}. \"The water is rising {t.far.at},\" said {elder.name}. \"{t.say('Is there room for me too?', 'I am cold and tired.')}\"",
        f'"{t.say("There is always room", "Come in, come in")}," said {hero.name}.',
    )  # fmt: skip
    t.para(
        "So the three of them sat by the fire and told each other stories.",
        t.say("The storm howled, but nobody was afraid.", "When the thunder was loud, they sang louder."),
        f"{elder.name} told of {t.a_thing} that could {t.say('talk', 'fly', 'sing', 'grant wishes')}.",
    )  # fmt: skip
    t.para(
        "In the morning the sun came out.",
        f"They all went {t.near.to} together and built a new roof for {friend.name}.",
        f'"{t.say("Next time there is a storm, come to me", "My door is always open for you")}," {friend.name} said.',
    )
    t.fact(f"{friend.full} came first.", "Who came first?", "Who knocked first?")
    t.fact(f"{friend.name} lives {t.near.at}.", f"Where does {friend.name} live?", f"Where is the house of {friend.name}?")
    t.fact(f"{hero.name} gave {friend.name} a warm blanket.", f"What did {hero.name} give to {friend.name}?")
    t.fact("They built a new roof.", "What did they build?", "What did they do in the morning?")


def afraid(t: Tale) -> None:
    hero, elder = t.hero, t.elder
    fear, place, trick = t.rng.choice([
        ("the dark", "the cellar", "count to ten and listen"),
        ("deep water", "the pond", "put in one toe, and then the next"),
        ("high places", "the tower", "look at the next step only"),
        ("thunder", "the garden", "count until the thunder comes"),
        ("strangers", "the crowd", "say hello and smile"),
    ])  # fmt: skip
    t.title = f"{hero.name} Is Not Afraid"
    t.lesson = t.say("one can be brave and afraid at the same time", "courage comes in small steps", "fear grows small when you look at it")  # fmt: skip
    t.para(
        f"{hero.name} had a secret: {hero.she} was afraid of {fear}.",
        t.say(f"{hero.She} had never told anyone.", f"Nobody knew it, not even {t.friend.name}."),
    )
    t.para(
        f"That {t.time} the {t.thing} of {t.friend.full} was gone, and it could only be in one place: {place}.",
        f'"Will you get it for me?" asked {t.friend.name}. {hero.name} swallowed. "Yes," {hero.she} said in a small voice.',
    )
    t.maybe_aside(0.2)
    t.para(
        f"On the way {hero.she} met {elder.full} {t.near.at}.",
        f'"You look pale," said {elder.name}. "What is the matter?"',
        f'"I am afraid of {fear}," {hero.name} whispered.',
        f'"So was I when I was young," said {elder.name}. "I will tell you my trick: {trick}."',
    )
    t.para(
        f"{hero.name} did as {elder.name} had said.",
        t.say("Her" if hero.girl else "His") + " heart beat fast, but " + f"{hero.she} went on.",
        f"And there was the {t.thing}! {hero.name} took it and ran back into the light.",
    )
    t.para(
        f'"You are so brave!" said {t.friend.name}.',
        f'"{t.say("Only a little", "Not very, but enough")}," said {hero.name}, and they ate {t.food} together.',
    )
    t.fact(f"{hero.name} was afraid of {fear}.", f"What was {hero.name} afraid of?", f"What was the secret of {hero.name}?")
    t.fact(f"{elder.full} told {hero.name} a trick.", f"Who helped {hero.name}?", "Who knew a trick?")
    t.fact(f"The trick was: {trick}.", "What was the trick?")
    t.fact(f"The {t.object} was {t.colour}.", f"What colour was the {t.object}?", f"What color was the {t.object}?")


def newcomer(t: Tale) -> None:
    hero, friend = t.hero, t.friend
    t.title = "The New Neighbour"
    t.lesson = t.say("a stranger is a friend one does not know yet", "it is easier to begin with a small gift", "shy people have good stories")  # fmt: skip
    t.para(
        f"Someone new had moved into the empty house {t.near.at}. It was {friend.described} named {friend.name}.",
        f"{friend.name} never came out, and the curtains were always closed.",
        t.say('"How odd," said the neighbours.', f'"What a strange {friend.kind}," people said.'),
    )  # fmt: skip
    t.para(
        f'"Perhaps {friend.she} is only shy," thought {hero.name}.',
        f"So {hero.she} packed {t.food} and put the basket in front of the door.",
        f"The next day the basket was empty, and beside it lay {t.a_thing}.",
        f"It was a present for {hero.name}!",
    )  # fmt: skip
    t.maybe_aside(0.2)
    t.para(
        f"{hero.name} knocked. Very slowly the door opened.",
        f'"Thank you for the {t.object}," said {hero.name}. "Would you like to go for a walk?"',
        f'"{t.say("I would like that very much", "Nobody has ever asked me")}," said {friend.name} softly.',
    )
    t.para(
        f"They walked {t.far.to}, where {t.far.sight}.",
        f"And there {friend.name} began to talk. {friend.She} had {t.say('sailed around the world', 'lived on an island', 'worked in a circus', 'met a king')}, and {friend.she} knew {t.say('a hundred', 'a thousand')} stories.",
    )  # fmt: skip
    t.fact(f"{friend.full} was the new neighbour.", "Who was the new neighbour?", "Who had moved in?")
    t.fact(f"{friend.name} lives {t.near.at}.", f"Where does {friend.name} live?", "Where was the empty house?")
    t.fact(f"{hero.name} got the {t.thing}.", f"What did {hero.name} get?", f"What was the present for {hero.name}?")
    t.fact(f"They walked {t.far.to}.", "Where did they walk?", "Where did they go?")


def treasure(t: Tale) -> None:
    hero, friend = t.hero, t.friend
    t.title = "The Treasure Map"
    t.lesson = t.say("the best treasure is a friend", "the way is part of the treasure", "not all treasures are made of gold")
    inside = t.say(f"{t.a_thing}")  # fmt: skip
    t.para(
        f"In an old {t.say('book', 'jar', 'coat', 'boot')} {hero.name} found a map with a red cross on it.",
        f'"A treasure!" cried {hero.name}, and {hero.she} ran to show it to {friend.full}.',
        f'"{t.say("Let us go at once", "I will bring the spade")}," said {friend.name}.',
    )
    t.para(
        f"The map said: go {t.say('seven', 'ten', 'twenty')} steps {t.near.at}. So they did. There {t.near.sight}.",
        f"The map said: then turn left and look {t.far.at}. So they did. There {t.far.sight}.",
    )
    t.maybe_aside()
    t.para(
        f"The map said: dig {t.last.at}. So they dug and dug.",
        t.say(f"{friend.name} found a worm, and then a stone, and then another worm.", "The hole grew deeper and deeper."),
        "At last the spade hit something hard. It was a chest!",
    )
    t.para(
        f"{hero.name} opened the lid. Inside lay {inside}.",
        f'"{t.say("Is that all?", "No gold?")}" asked {friend.name}. Then they looked at each other and laughed.',
        f'"{t.say("It was the best day of the year", "I would not sell it for any gold", "We found it together")}," said {hero.name}, and they ate {t.food} on the lid of the chest.',
    )  # fmt: skip
    t.fact(f"{hero.name} found a map.", f"What did {hero.name} find?", "What did they follow?")
    t.fact(f"The treasure was {t.last.at}.", "Where was the treasure?", "Where did they dig?")
    t.fact(f"Inside the chest lay {inside}.", "What was in the chest?", "What was the treasure?")
    t.fact(f"{friend.full} went with {hero.name}.", f"Who went with {hero.name}?", f"Who helped {hero.name}?")


def seed(t: Tale) -> None:
    hero, friend = t.hero, t.friend
    plant = t.say("sunflower", "pumpkin", "apple tree", "bean", "rose")
    t.title = f"The {t.say('Patient', 'Little', 'Slow')} Seed"
    t.lesson = t.say("good things take time", "one must not dig up what should grow", "waiting is also a kind of work")
    t.para(
        f"{friend.full} gave {hero.name} a tiny seed. \"Put it in the earth {t.near.at},\" {friend.she} said, \"and wait.\"",
        f"So {hero.name} made a hole, put in the seed and watered it.",
    )  # fmt: skip
    t.para(
        f"On the first day nothing happened. On the second day nothing happened. On the third day {hero.name} wanted to dig it up.",
        f'"{t.say("Not yet", "Wait a little", "Patience")}," said {friend.name}. "{t.say("It is working where you cannot see it.", "Roots come before leaves.")}"',
    )  # fmt: skip
    t.maybe_aside()
    t.para(
        f"So {hero.name} {t.say('read to it every evening', 'sang to it every morning', 'told it about the weather')}.",
        t.say("The rain came and the sun came.", "The days grew longer."),
        "And one day there was a green tip, no bigger than a fingernail.",
    )
    t.para(
        f"It grew and grew, and in the end it was {'an' if plant[0] in 'aeiou' else 'a'} {plant}, {t.say('taller than the house', 'the finest in the land', 'more beautiful than any other')}.",
        f"Everyone came {t.near.to} to look at it. {hero.name} gave each of them a seed and a piece of advice: wait.",
        t.maybe(f"In its shade they ate {t.food}."),
    )  # fmt: skip
    t.fact(f"{friend.full} gave {hero.name} a seed.", f"Who gave {hero.name} the seed?", "Who gave away the seed?")
    t.fact(f"The seed was planted {t.near.at}.", "Where was the seed planted?", f"Where did {hero.name} plant the seed?")
    t.fact(f"It became {'an' if plant[0] in 'aeiou' else 'a'} {plant}.", "What did the seed become?", "What grew from the seed?")  # fmt: skip


def quarrel(t: Tale) -> None:
    hero, friend, elder = t.hero, t.friend, t.elder
    t.title = "The Quarrel"
    t.lesson = t.say("a friend is worth more than a toy", "saying sorry makes the heart light", "two can share one thing")
    t.para(
        f"{hero.name} and {friend.full} were {t.near.at} when they both saw it: {t.a_thing}!",
        f'"I saw it first!" said {hero.name}. "No, I did!" said {friend.name}.',
        t.say("They pulled at it from both sides.", "They shouted until the birds flew away."),
    )  # fmt: skip
    t.para(
        f'"Then I will never speak to you again," said {friend.name}, and {friend.she} went away {t.far.to}.',
        f"Now {hero.name} had the {t.object} all alone. But it was no fun at all.",
    )
    t.maybe_aside(0.2)
    t.para(
        f"{elder.full} saw {hero.name} sitting there.",
        f'"Why are you so sad?" asked {elder.name}. {hero.name} told {elder.her} everything.',
        f'"{t.say("What is bigger", "What is worth more")}," asked {elder.name}, "{t.an_object} or a friend?"',
    )  # fmt: skip
    t.para(
        f"{hero.name} jumped up and ran to {friend.name}, who was still {t.far.at}.",
        f'"I am sorry," said {hero.name}. "You can have the {t.object}."',
        f'"I am sorry too," said {friend.name}. "Let us share it. {t.say("You have it on even days, and I have it on odd days.", "It is much more fun for two.")}"',
        t.maybe(f"And to make peace they ate {t.food}."),
    )  # fmt: skip
    t.fact(f"They quarrelled about the {t.thing}.", "What did they quarrel about?", "What was the quarrel about?")
    t.fact(f"{hero.name} and {friend.name} quarrelled.", "Who quarrelled?", "Who had a quarrel?")
    t.fact(f"{elder.full} gave advice.", "Who gave advice?", f"Who talked to {hero.name}?")
    t.fact(f"{friend.name} went away {t.far.to}.", f"Where did {friend.name} go?", f"Where was {friend.name}?")


def letter(t: Tale) -> None:
    hero, friend, elder = t.hero, t.friend, t.elder
    t.title = f"A Letter for {elder.name}"
    t.lesson = t.say("words can warm like a fire", "a promise is a promise", "a letter is a small visit")
    words = t.say("I think of you every day", "Come home soon", "You are not alone", "I have kept your chair by the fire")
    t.para(
        f'"Will you carry this letter to {elder.full}?" asked {friend.full}. "It is very important."',
        f'"I promise," said {hero.name}, and {hero.she} put the letter into {hero.hers} pocket.',
    )  # fmt: skip
    t.para(
        f"The way was long. {capitalised(t.near.at)} {t.near.sight}, and {hero.name} would have liked to stay.",
        f'"But a promise is a promise," {hero.she} said, and {hero.she} went on.',
    )
    t.maybe_aside(0.4)
    t.para(
        f"{capitalised(t.far.at)} {hero.she} {t.say('lost the way and had to turn back', 'slipped and got wet up to the knees', 'had to wait until a herd of sheep had passed')}.",
        f"Luckily the letter was still {t.say('dry', 'safe', 'there')}.",
    )  # fmt: skip
    t.para(
        f"It was almost dark when {hero.name} came to {elder.name}, who lived {t.last.at}.",
        f"{elder.name} opened the letter and read it aloud: \"{words}.\"",
        f"For a while {elder.she} said nothing. Then {elder.she} smiled and put {t.food} on the table for {hero.name}.",
    )  # fmt: skip
    t.fact(f"The letter was for {elder.full}.", "Who was the letter for?", "Who got the letter?")
    t.fact(f"The letter was from {friend.full}.", "Who was the letter from?", "Who wrote the letter?")
    t.fact(f'The letter said: "{words}."', "What did the letter say?", "What was in the letter?")
    t.fact(f"{elder.name} lives {t.last.at}.", f"Where does {elder.name} live?", "Where did the letter go?")


def contest(t: Tale) -> None:
    hero, friend, elder = t.hero, t.friend, t.elder
    game = t.say("race", "sack race", "summer race", "winter race", "lantern race")
    t.title = f"The Great {game.title()}"
    t.lesson = t.say("winning is not everything", "it is better to arrive together", "a kind deed is the best prize")
    t.para(
        f"Once a year there was a {game} {t.near.at}, and the prize was {t.a_thing}.",
        f"{hero.name} had practised for {t.say('three', 'four', 'six')} weeks. \"This time I will win,\" {hero.she} said.",
    )  # fmt: skip
    t.para(
        f"But {t.say('shortly before the start', 'halfway through', 'just before the end')} {hero.name} saw {friend.full} sitting at the side of the path.",
        f'"{t.say("I have hurt my foot", "I feel dizzy", "I am so nervous that I cannot go on")}," said {friend.name}.',
        t.say("Everyone else ran past.", "Nobody else stopped."),
    )  # fmt: skip
    t.para(
        f"{hero.name} looked at the others. {hero.She} looked at {friend.name}. Then {hero.she} stopped.",
        f'"Lean on me," {hero.she} said. "We will go together."',
    )
    t.maybe_aside(0.2)
    t.para(
        f"They came in last of all. But {elder.full}, who was the judge, stood up and clapped.",
        f'"The {t.thing} goes to {hero.name}," said {elder.name}, "because {hero.she} has won the most important thing today."',
        t.say("Everybody cheered.", f"{friend.name} cheered the loudest."),
        t.maybe(f"Afterwards there was {t.food} for all."),
    )  # fmt: skip
    t.fact(f"The prize was the {t.thing}.", "What was the prize?", "What could one win?")
    t.fact(f"{hero.name} got the prize.", "Who got the prize?", "Who won the prize?")
    t.fact(f"{elder.full} was the judge.", "Who was the judge?")
    t.fact(f"{hero.name} helped {friend.full}.", f"Who did {hero.name} help?", f"Whom did {hero.name} help?")


# Tales of a few sentences, for those who ask for a short one.


def brief_find(t: Tale) -> None:
    hero, friend = t.hero, t.friend
    t.title, t.lesson = f"The {t.thing.title()}", t.say("giving back feels better than keeping", "honest hands make friends")
    t.para(
        f"{capitalised(t.near.at)} {hero.she} found {t.a_thing}.",
        f'"That is mine!" cried {friend.full}. "I have been looking for it all day."',
        f"{hero.name} gave it back, and {friend.name} {t.say('was very happy', 'shared ' + t.food + ' with ' + hero.her)}.",
    )
    t.fact(f"{hero.name} found {t.a_thing}.", f"What did {hero.name} find?")
    t.fact(f"The {t.object} belonged to {friend.full}.", f"Who did the {t.object} belong to?", f"Whose {t.object} was it?")
    t.fact(f"The {t.object} was {t.colour}.", f"What colour was the {t.object}?", f"What color was the {t.object}?")


def brief_visit(t: Tale) -> None:
    hero, friend = t.hero, t.friend
    t.title, t.lesson = f"A Visit to {friend.name}", t.say("a visit is the best medicine", "small gifts bring great joy")
    t.para(
        f"{friend.full} was ill in bed {t.near.at}.",
        f"So {hero.name} brought {friend.her} {t.food} and {t.a_thing}.",
        f'"{t.say("Now I feel much better", "You are a good friend")}," said {friend.name}.',
    )
    t.fact(f"{friend.full} was ill.", "Who was ill?", "Who was in bed?")
    t.fact(f"{hero.name} brought {t.food} and {t.a_thing}.", f"What did {hero.name} bring?")


def brief_wish(t: Tale) -> None:
    hero, friend = t.hero, t.friend
    t.title, t.lesson = f"The Wish of {hero.name}", t.say("good friends can read wishes", "wishes are better when told")
    t.para(
        f"{hero.She} had only one wish: {t.a_thing}.",
        f"{friend.full} knew it, and worked in secret for many days.",
        f'Then {friend.name} led {hero.name} {t.near.to}. "{t.say("Surprise", "Here you are")}!" {friend.she} said. And there was the {t.thing}!',
    )
    t.fact(f"{hero.name} wished for {t.a_thing}.", f"What did {hero.name} wish for?", f"What was the wish of {hero.name}?")
    t.fact(f"{friend.full} made the wish come true.", "Who made the wish come true?")


BRIEF_PLOTS = [brief_find, brief_visit, brief_wish]
PLOTS = [lost_thing, lost_child, stuck, broken, feast, storm, afraid, newcomer, treasure, seed, quarrel, letter, contest]

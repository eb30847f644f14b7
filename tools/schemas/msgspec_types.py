# Types of msgspec, mostly the examples of its documentation.
import datetime, decimal, enum, typing, uuid
from typing import Annotated, Literal, Optional, Union
import msgspec
from msgspec import Meta, Struct
import library

def add(name, t, valid=(), invalid=()):
    decoder = msgspec.json.Decoder(t)
    library.add('msgspec', name, lambda: msgspec.json.schema(t), decoder.decode, valid, invalid)

add('str', str, ['a']); add('int', int, [1], [1.5]); add('float', float, [1.5]); add('bool', bool, [True]); add('None', None, [None]); add('Any', typing.Any, [[1]])
add('bytes', bytes, ['aGVsbG8='])
add('Literal', Literal['a', 'b', 3], ['a', 3], ['c']); add('Optional Literal', Optional[Literal['a', 'b']], ['a', None], ['c'])
class Fruit(enum.Enum):
    APPLE = 'apple'
    PEAR = 'pear'
class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2
add('Enum', Fruit, ['apple'], ['x']); add('IntEnum', Level, [1], [3])
add('datetime', datetime.datetime, ['2024-02-29T12:00:00Z']); add('date', datetime.date, ['2024-02-29']); add('time', datetime.time, ['12:00:00Z']); add('timedelta', datetime.timedelta, ['P1DT2H'])
add('UUID', uuid.UUID, ['123e4567-e89b-42d3-a456-426614174000']); add('Decimal', decimal.Decimal, ['1.5'])
add('bounds', Annotated[int, Meta(ge=1, lt=10)], [1, 9], [0, 10]); add('multiple_of', Annotated[int, Meta(multiple_of=7)], [14], [8])
add('lengths', Annotated[str, Meta(min_length=2, max_length=4)], ['abc'], ['a', 'abcde']); add('pattern', Annotated[str, Meta(pattern='^[A-Z]{2}$')], ['AB'], ['ab'])
add('pattern and length', Annotated[str, Meta(pattern='^[a-z0-9_]*$', min_length=1, max_length=8)], ['user_1'], ['', 'U'])
add('list', list[int], [[1]], [['a']]); add('list lengths', Annotated[list[int], Meta(min_length=1, max_length=2)], [[1]], [[], [1, 2, 3]])
add('tuple', tuple[str, int], [['a', 1]], [['a']]); add('tuple of any length', tuple[int, ...], [[1, 2]])
add('set', set[Literal['a', 'b']], [['a', 'b']]); add('dict', dict[str, int], [{'a': 1}], [{'a': 'x'}])
add('dict of dates', dict[datetime.date, int], [{'2024-02-29': 1}]); add('dict of integers', dict[int, str], [{'1': 'a'}])
add('Union', Union[int, str, None], [1, 'a', None], [[1]])
class Point(Struct):
    x: float
    y: float = 0.0
class Closed(Struct, forbid_unknown_fields=True):
    a: int
class Renamed(Struct, rename='camel'):
    first_name: str
class Row(Struct, array_like=True):
    name: str
    age: int
class Cat(Struct, tag=True):
    meows: int
class Dog(Struct, tag=True):
    barks: float
class Node(Struct):
    value: int
    children: list['Node'] = []
class Address(Struct):
    zip: Annotated[str, Meta(pattern='^[0-9]{5}$')]
class User(Struct):
    name: Annotated[str, Meta(min_length=1, max_length=20)]
    role: Literal['admin', 'user'] = 'user'
    email: Optional[str] = None
    address: Optional[Address] = None
    groups: set[Literal['a', 'b', 'c']] = set()
class Get(Struct, tag='get', tag_field='op'):
    key: str
class Put(Struct, tag='put', tag_field='op'):
    key: str
    val: str
add('Struct', Point, [{'x': 1.5}, {'x': 1, 'y': 2}], [{}]); add('forbid_unknown_fields', Closed, [{'a': 1}], [{'a': 1, 'b': 2}]); add('rename', Renamed, [{'firstName': 'a'}])
add('array_like', Row, [['a', 1]], [['a']]); add('tagged Union', Union[Cat, Dog], [{'type': 'Cat', 'meows': 1}, {'type': 'Dog', 'barks': 1.5}], [{'type': 'Cat', 'barks': 1.5}])
add('recursive', Node, [{'value': 1, 'children': [{'value': 2, 'children': []}]}]); add('nested', User, [{'name': 'a', 'role': 'admin', 'email': None, 'address': {'zip': '61133'}, 'groups': ['a']}], [{'name': ''}])
add('tag_field', list[Union[Get, Put]], [[{'op': 'get', 'key': 'a'}, {'op': 'put', 'key': 'a', 'val': 'b'}]])
library.run()

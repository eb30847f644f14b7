# Types of pydantic 2, mostly the examples of its documentation.
import sys, json, enum, dataclasses, decimal, datetime, uuid, pathlib, ipaddress, re, typing
from typing import *
from typing_extensions import TypedDict, NotRequired, Required
from pydantic import *
from pydantic import types as T
from pydantic.networks import *
from pydantic.dataclasses import dataclass as pdc
import annotated_types as at
import collections, dataclasses, decimal, datetime, uuid, enum, re
import library
def add(name, t, valid=(), invalid=(), mode='validation', **kw):
    adapter = TypeAdapter(t)
    library.add('pydantic', name, lambda: adapter.json_schema(mode=mode, **kw), adapter.validate_json, valid, invalid)
add('bool', bool, [True]); add('int', int, [1]); add('float', float, [1.5]); add('str', str, ['a'])
add('bytes', bytes, ['a']); add('None', type(None), [None])
add('list[int]', list[int], [[1,2]]); add('list', list, [[1,'a']])
add('tuple[int,str]', tuple[int,str], [[1,'a']], [[1]]); add('tuple[int,...]', tuple[int,...], [[1,2]]); add('tuple[()]', tuple[()], [[]])
add('set[int]', set[int], [[1,2]]); add('frozenset[str]', frozenset[str], [['a']]); add('set[Literal]', set[Literal['a','b','c']], [['a','c'],['c','a']], [['a','a']])
add('deque[int]', collections.deque[int], [[1]]); add('Sequence[int]', Sequence[int], [[1]]); add('Iterable[int]', Iterable[int], [[1]])
add('dict[str,int]', dict[str,int], [{'a':1}]); add('dict[int,str]', dict[int,str], [{}]); add('dict', dict, [{'a':[1]}])
add('Mapping', Mapping[str, list[int]], [{'a':[1]}]); add('Any', Any, [1]); add('Optional[int]', Optional[int], [None,1]); add('Union', Union[int,str,None], [1,'a',None])
add('Literal', Literal['apple','pumpkin'], ['apple'], ['x']); add('Literal mixed', Literal['a',1,True,None], ['a',1,None])
class Fruit(str, enum.Enum):
    pear='pear'; banana='banana'
class Tool(enum.IntEnum):
    spanner=1; wrench=2
add('Enum', Fruit, ['pear'],['x']); add('IntEnum', Tool, [1],[3])
add('datetime', datetime.datetime, ['2032-04-23T10:20:30Z','2032-04-23T10:20:30.123+02:30']); add('date', datetime.date, ['2024-02-29'],['2023-02-29']); add('time', datetime.time, ['10:20:30Z']); add('timedelta', datetime.timedelta, ['P3DT12H30M5S'])
add('timedelta float', Annotated[datetime.timedelta, Field()], ['PT5S'])
add('PastDate', PastDate, ['2000-01-01']); add('FutureDatetime', FutureDatetime, ['2132-04-23T10:20:30Z']); add('AwareDatetime', AwareDatetime, ['2032-04-23T10:20:30Z']); add('NaiveDatetime', NaiveDatetime)
add('Decimal', decimal.Decimal, ['1.5', 1.5]); add('Decimal serialization', decimal.Decimal, ['1.5'], mode='serialization')
add('condecimal', condecimal(max_digits=5, decimal_places=2), ['1.25']); add('Decimal bounds', Annotated[decimal.Decimal, Field(gt=0, le=100, max_digits=5, decimal_places=2)], [1.5])
add('UUID', uuid.UUID, ['123e4567-e89b-12d3-a456-426614174000']); add('UUID4', UUID4, ['123e4567-e89b-42d3-a456-426614174000'])
add('Path', pathlib.Path, ['/tmp/a']); add('FilePath', FilePath); add('Pattern', re.Pattern, ['a+'])
add('IPv4Address', ipaddress.IPv4Address, ['1.2.3.4']); add('IPv6Address', ipaddress.IPv6Address, ['::1']); add('IPvAnyAddress', IPvAnyAddress, ['::1']); add('IPv4Network', ipaddress.IPv4Network, ['10.0.0.0/8']); add('IPv6Interface', ipaddress.IPv6Interface, ['::1/64'])
for n in ['AnyUrl','AnyHttpUrl','HttpUrl','AnyWebsocketUrl','WebsocketUrl','FileUrl','FtpUrl']:
    add(n, globals()[n], {'AnyUrl':['foo://bar'],'AnyHttpUrl':['http://localhost/'],'HttpUrl':['https://example.com/a?b=c'],'AnyWebsocketUrl':['ws://a.b/'],'WebsocketUrl':['wss://a.b/'],'FileUrl':['file:///tmp/a'],'FtpUrl':['ftp://a.b/c']}[n])
for n in ['PostgresDsn','CockroachDsn','AmqpDsn','RedisDsn','MongoDsn','KafkaDsn','NatsDsn','MySQLDsn','MariaDBDsn','ClickHouseDsn','SnowflakeDsn']:
    if n in globals(): add(n, globals()[n], {'RedisDsn':['redis://localhost:6379/1'],'PostgresDsn':['postgres://user:pass@localhost:5432/foobar'],'MongoDsn':['mongodb://mongodb0.example.com:27017']}.get(n,[]))
add('EmailStr', EmailStr, ['a.b@example.com'],['x']); add('NameEmail', NameEmail)
add('HttpUrl max', Annotated[HttpUrl, UrlConstraints(max_length=40)], ['https://example.com/'])
add('SecretStr', SecretStr, ['x']); add('SecretBytes', SecretBytes, ['x']); add('Json', Json, ['1']); add('Json[list]', Json[list[int]], ['[1]'])
add('Base64Bytes', Base64Bytes, ['aGVsbG8=']); add('Base64Str', Base64Str, ['aGVsbG8=']); add('Base64UrlStr', Base64UrlStr)
add('PositiveInt', PositiveInt,[1],[0]); add('NonNegativeInt', NonNegativeInt,[0],[-1]); add('NegativeFloat', NegativeFloat,[-1.5],[0]); add('FiniteFloat', FiniteFloat,[1.5]); add('StrictInt', StrictInt,[1]); add('StrictStr', StrictStr,['a'])
add('conint', conint(gt=1, lt=10, multiple_of=3), [3,9],[10,4]); add('multiple_of', Annotated[int, Field(multiple_of=5)], [10],[11]); add('float multiple_of', Annotated[float, Field(multiple_of=0.5, ge=0, le=10)], [0.5,2],[0.3])
add('int64', Annotated[int, Field(ge=-9223372036854775808, le=9223372036854775807)], [1234567890123456789])
add('constr', constr(pattern=r'^[A-Z]+$', min_length=2, max_length=5), ['ABC'],['A','abc']); add('constr strip', constr(strip_whitespace=True, to_upper=True, max_length=3), ['ABC'])
add('StringConstraints', Annotated[str, StringConstraints(pattern=r'^\d{3}-\d{4}$')], ['123-4567'],['1'])
add('pattern search', Annotated[str, Field(pattern=r'[0-9]{2,}', min_length=3)], ['a12'],['12','abc'])
add('pattern groups', Annotated[str, Field(pattern=r'^(?P<year>\d{4})-(?P<month>0[1-9]|1[0-2])$', max_length=7)], ['2024-01'],['2024-13'])
add('conlist', conlist(int, min_length=1, max_length=3), [[1]],[[],[1,2,3,4]]); add('conset', conset(int, min_length=1, max_length=3), [[1,2]]); add('unique booleans', conset(bool, min_length=2), [[True,False]],[[True,True]])
add('Len', Annotated[list[str], at.Len(2,4)], [['a','b']]); add('Annotated nested', list[Annotated[int, Field(ge=0)]], [[0]],[[-1]])
class Model(BaseModel):
    a: int; b: str = 'x'; c: Optional[float] = None
add('BaseModel', Model, [{'a':1},{'a':1,'b':'y','c':1.5}],[{}]); add('BaseModel serialization', Model, [{'a':1,'b':'y','c':1.5}], mode='serialization')
class Forbid(BaseModel):
    model_config=ConfigDict(extra='forbid'); a:int
class Allow(BaseModel):
    model_config=ConfigDict(extra='allow'); a:int
class AllowTyped(BaseModel):
    model_config=ConfigDict(extra='allow'); __pydantic_extra__: dict[str,int]; a:int
add('extra forbid', Forbid, [{'a':1}],[{'a':1,'b':2}]); add('extra allow', Allow, [{'a':1,'b':2}]); add('extra typed', AllowTyped, [{'a':1,'b':2}],[{'a':1,'b':'x'}])
class Node(BaseModel):
    value:int; children: list['Node']=[]
add('recursive', Node, [{'value':1,'children':[{'value':2,'children':[]}]}])
class FooBar(BaseModel):
    count:int; size: Optional[float]=None
class Gender(str, enum.Enum):
    male='male'; female='female'; other='other'
class MainModel(BaseModel):
    """the main model"""
    model_config=ConfigDict(title='Main')
    foo_bar: FooBar
    gender: Annotated[Union[Gender,None], Field(alias='Gender')] = None
    snap: int = Field(default=42, title='The Snap', description='this is the value of snap', gt=30, lt=50)
add('MainModel', MainModel, [{'foo_bar':{'count':1},'Gender':'male','snap':42}],[{'foo_bar':{'count':1},'snap':50}])
class Cat(BaseModel):
    pet_type: Literal['cat']; meows:int
class Dog(BaseModel):
    pet_type: Literal['dog']; barks:float
class Lizard(BaseModel):
    pet_type: Literal['reptile','lizard']; scales: bool
class Owner(BaseModel):
    pet: Union[Cat,Dog,Lizard]=Field(discriminator='pet_type'); n:int
add('discriminated', Owner, [{'pet':{'pet_type':'dog','barks':3.14},'n':1}],[{'pet':{'pet_type':'dog'},'n':1}])
class CatD(BaseModel):
    kind: Literal['cat']='cat'; x:int
class DogD(BaseModel):
    kind: Literal['dog']='dog'; x:int
add('discriminated with defaults', Annotated[Union[CatD,DogD], Field(discriminator='kind')], [{'kind':'cat','x':1}])
add('smart union', Union[CatD,DogD], [{'kind':'cat','x':1}])
class BlackCat(BaseModel):
    pet_type: Literal['cat']; color: Literal['black']; black_name:str
class WhiteCat(BaseModel):
    pet_type: Literal['cat']; color: Literal['white']; white_name:str
Cats=Annotated[Union[BlackCat,WhiteCat], Field(discriminator='color')]
add('nested discriminated', Annotated[Union[Cats,Dog], Field(discriminator='pet_type')], [{'pet_type':'cat','color':'black','black_name':'f'}])
def disc(v): return 'a'
class PA(BaseModel):
    fruit: Literal['apple']='apple'
class PP(BaseModel):
    fruit: Literal['pumpkin']='pumpkin'; filling:str
add('callable discriminator', Annotated[Union[Annotated[PA,Tag('a')],Annotated[PP,Tag('p')]], Discriminator(disc)], [{'fruit':'apple'}])
@dataclasses.dataclass
class DC:
    id:int; name:str='John'; friends: list[int]=dataclasses.field(default_factory=lambda:[0])
add('dataclass', DC, [{'id':1},{'id':1,'name':'x','friends':[1]}])
@pdc
class Nested:
    dc: DC; when: Optional[datetime.datetime]=None
add('pydantic dataclass', Nested, [{'dc':{'id':1}}])
class TD(TypedDict):
    name:str; age: NotRequired[int]
class TDF(TypedDict, total=False):
    name:str
add('TypedDict', TD, [{'name':'a'}]); add('TypedDict total=False', TDF, [{}])
class NT(NamedTuple):
    x:int; y:int=1
add('NamedTuple', NT, [[1,2]])
Tt=TypeVar('Tt')
class Resp(BaseModel, Generic[Tt]):
    data: Optional[Tt]=None
add('generic', Resp[int], [{'data':1}])
class Root(RootModel):
    root: list[str]
add('RootModel', Root, [['a']])
class Comp(BaseModel):
    w:int
    @computed_field
    @property
    def area(self)->int: return self.w
add('computed_field', Comp, [{'w':1,'area':1}], mode='serialization') if False else add('computed_field', Comp, [], mode='serialization')
class Al(BaseModel):
    model_config=ConfigDict(alias_generator=lambda s: s.upper()); first_name: str
add('alias_generator', Al, [{'FIRST_NAME':'a'}])
class Ex(BaseModel):
    a: str=Field(examples=['x'], json_schema_extra={'deprecated':True}); b: int=Field(default=1, deprecated=True)
add('examples', Ex, [{'a':'x'}])
class Cfg(BaseModel):
    model_config=ConfigDict(json_schema_extra={'examples':[{'a':'Foo'}]}); a:str
add('json_schema_extra', Cfg, [{'a':'Foo'}])
JsonT: TypeAlias = 'Union[dict[str, JsonValue], list[JsonValue], str, int, float, bool, None]'
add('JsonValue', JsonValue, [{'a':[1,None]}])
add('Callable', Callable)
add('ByteSize', ByteSize, [1,'1kb']); add('ImportString', ImportString)
class Big(BaseModel):
    id: uuid.UUID; email: EmailStr; site: Optional[HttpUrl]=None; created: datetime.datetime; tags: set[str]=set(); price: Annotated[decimal.Decimal, Field(max_digits=8, decimal_places=2)]; address: dict[str, Annotated[str, Field(max_length=20)]]; ip: ipaddress.IPv4Address; kind: Fruit; rating: Annotated[float, Field(ge=0, le=5, multiple_of=0.5)]
add('Big', Big, [{'id':'123e4567-e89b-12d3-a456-426614174000','email':'a@example.com','created':'2024-02-29T12:34:56Z','tags':['a'],'price':'1.25','address':{'a':'b'},'ip':'1.2.3.4','kind':'pear','rating':4.5}])
for n in ['Coordinate','Latitude']:
    try:
        import pydantic_extra_types.coordinate as c
        add('extra '+n, getattr(c,n), [45.5] if n=='Latitude' else [])
    except Exception as e: print(e, file=sys.stderr)
for mod,n,v in [('color','Color',['red']),('mac_address','MacAddress',['00:11:22:33:44:55']),('isbn','ISBN',[]),('ulid','ULID',[]),('domain','DomainStr',[]),('payment','PaymentCardNumber',[]),('routing_number','ABARoutingNumber',[]),('phone_numbers','PhoneNumber',[]),('semantic_version','SemanticVersion',[])]:
    try:
        m=__import__('pydantic_extra_types.'+mod, fromlist=[n]); add('extra '+n, getattr(m,n), v)
    except Exception as e: print(mod, str(e)[:60], file=sys.stderr)
library.run()

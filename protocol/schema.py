"""Declaring Kafka's wire messages as typed classes; each (class, version) is compiled once, at first use.

A field's Python type is what the type checker sees; its wire type is in `Annotated`. The versions of a field
are declared with it: `since(5, default=-1)`.
Left to others: the generated code (decoder.py, encoder.py), the frame around it (connection.py).
"""

import dataclasses
import struct as packing
import types
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar, dataclass_transform
from uuid import UUID

from .decoder import compile_decoder
from .encoder import compile_encoder
from .fields import EVERY_VERSION, Decoder, Encoder, Field, Fixed, Variable
from .primitives import Buffer, Malformed, Slices, UnknownTag

T = TypeVar("T")

NOT_GIVEN = object()

Int8 = Annotated[int, Fixed("b")]
Int16 = Annotated[int, Fixed("h")]
Int32 = Annotated[int, Fixed("i")]
Int64 = Annotated[int, Fixed("q")]
UInt16 = Annotated[int, Fixed("H")]
UInt32 = Annotated[int, Fixed("I")]
Float64 = Annotated[float, Fixed("d")]
Bool = Annotated[bool, Fixed("?")]
Uuid = Annotated[UUID, Fixed("16s")]
String = Annotated[str, Variable("str", "h")]
PlainString = Annotated[str, Variable("str", "h", compact=False)]  # its length is never a varint
Bytes = Annotated[bytes, Variable("bytes", "i")]  # copied out of the frame
RECORDS = Variable("view", "i")
Records = Annotated[Buffer | Slices, RECORDS]  # decoded to a view into the frame, encoded without a copy


def since(first: int, *, default: Any, until: int = EVERY_VERSION, nullable: int = 0) -> Any:
    """A field on the wire from version `first` up to `until`; null is allowed from version `nullable`."""
    return _declared(default, first=first, until=until, nullable=nullable)


def tagged(tag: int, *, default: Any, since: int = 0, until: int = EVERY_VERSION) -> Any:
    """A field in the tag buffer, written only if it differs from `default`."""
    return _declared(default, first=since, until=until, tag=tag)


def _declared(default: Any, **facts: int) -> Any:
    if isinstance(default, list):
        assert not default, "the only list that can be a default is the empty one"
        return dataclasses.field(default_factory=list, metadata=facts)
    return dataclasses.field(default=default, metadata=facts)


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(since, tagged))
def struct(cls: type[T]) -> type[T]:
    """A struct inside messages. Only the type checker enforces frozen: the hot path does not pay for it."""
    made: Any = dataclass(slots=True, kw_only=True, init=False, repr=False, eq=False)(cls)
    made.__init__ = _init_at_first_use(made)
    made.__repr__ = _repr  # shared, not compiled for each class
    made.__eq__ = _equal
    made.__hash__ = None
    declared: type[T] = made
    return declared


def _init_at_first_use(cls: Any) -> Callable[..., None]:
    """An `__init__` that compiles the real one when called: a process constructs few kinds of messages."""

    def init(self: Any, **given: Any) -> None:
        cls.__init__ = _compiled_init(cls)
        cls.__init__(self, **given)

    return init


def _compiled_init(cls: type[Any]) -> Callable[..., None]:
    """The `__init__` that `dataclass` would make: fields by name, a new empty list for each object."""
    fields = dataclasses.fields(cls)
    known: dict[str, Any] = {"NOT_GIVEN": NOT_GIVEN}
    parameters, lines = ["self", "*"], []
    for f in fields:
        value, given = f.name, f.name
        if f.default_factory is not dataclasses.MISSING:
            given, value = f"{f.name}=NOT_GIVEN", f"[] if {f.name} is NOT_GIVEN else {f.name}"
        elif f.default is not dataclasses.MISSING:
            known[f"default_{f.name}"] = f.default
            given = f"{f.name}=default_{f.name}"
        parameters.append(given)
        lines.append(f" self.{f.name} = {value}")
    header = f"def __init__({', '.join(parameters if fields else parameters[:1])}):"
    source = "\n".join([header, *(lines or [" pass"])])
    exec(source, known)  # names and defaults of our own declarations
    made: Callable[..., None] = known["__init__"]
    return made


def _repr(self: Any) -> str:
    fields = ", ".join(f"{f.name}={getattr(self, f.name)!r}" for f in dataclasses.fields(self))
    return f"{type(self).__name__}({fields})"


def _equal(self: Any, other: Any) -> Any:
    if type(other) is not type(self):
        return NotImplemented
    return all(getattr(self, f.name) == getattr(other, f.name) for f in dataclasses.fields(self))


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(since, tagged))
def message(*, key: int, versions: tuple[int, int], flexible: int) -> Callable[[type[T]], type[T]]:
    """A request or response body: its key, its versions, and the first flexible version."""

    def declare(cls: type[T]) -> type[T]:
        made = struct(cls)
        SPECS[made] = Spec(made, key, range(versions[0], versions[1] + 1), flexible)
        return made

    return declare


class Spec:
    """One message's key, versions and compiled codecs."""

    __slots__ = ("_decoders", "_encoders", "carries_records", "cls", "flexible", "key", "versions")

    def __init__(self, cls: type[Any], key: int, versions: range, flexible: int) -> None:
        self.cls = cls
        self.key = key
        self.versions = versions
        self.flexible = flexible
        self.carries_records = False  # then encoded parts are not joined; set with the first encoder
        self._decoders: dict[int, Decoder] = {}
        self._encoders: dict[int, Encoder] = {}

    def is_flexible(self, version: int) -> bool:
        """Whether `version` has compact lengths and tag buffers."""
        return version >= self.flexible

    def decoder(self, version: int) -> Decoder:
        """The raw decoder. On damaged bytes it also raises what `DAMAGE` lists; `decode` is the safe one."""
        found = self._decoders.get(version)
        if found is None:
            self._check(version)
            flexible = self.is_flexible(version)
            found = self._decoders[version] = compile_decoder(self.cls, fields_of, version, flexible)
        return found

    def encoder(self, version: int) -> Encoder:
        """A function that appends the parts of a message to a list."""
        found = self._encoders.get(version)
        if found is None:
            self._check(version)
            flexible = self.is_flexible(version)
            found = self._encoders[version] = compile_encoder(self.cls, fields_of, version, flexible)
            self.carries_records = _carries_records(self.cls)
        return found

    def _check(self, version: int) -> None:
        assert version in self.versions, f"{self.cls.__name__} has no version {version}"

    def __repr__(self) -> str:
        return f"Spec({self.cls.__name__}, {self.versions.start}-{self.versions.stop - 1})"


SPECS: dict[type[Any], Spec] = {}
_FIELDS: dict[type[Any], list[Field]] = {}

# What a compiled decoder may raise on damaged bytes, besides `Malformed` itself.
DAMAGE = (IndexError, packing.error, UnicodeDecodeError)


def spec_of(cls: type[Any]) -> Spec:
    """The `Spec` of a declared message."""
    return SPECS[cls]


def encode(message: object, version: int) -> list[Buffer]:
    """The parts of `message` on the wire; records are among them uncopied."""
    parts: list[Buffer] = []
    SPECS[type(message)].encoder(version)(message, parts)
    return parts


def decode(
    cls: type[T], version: int, buf: Buffer, pos: int = 0, unknown: list[UnknownTag] | None = None
) -> tuple[T, int]:
    """The message at `pos` and the position after it. Unknown tagged fields are appended to `unknown`."""
    try:
        found: tuple[T, int] = SPECS[cls].decoder(version)(buf, pos, unknown)
    except DAMAGE as error:
        raise Malformed(f"{cls.__name__} v{version}: {why_damaged(error)}") from error
    return found


def why_damaged(error: Exception) -> str:
    """One of `DAMAGE` in words: what Python says of an index tells a reader nothing."""
    return (
        f"a string is not UTF-8: {error}"
        if isinstance(error, UnicodeDecodeError)
        else "the frame ends too early"
    )


def fields_of(cls: type[Any]) -> list[Field]:
    """The fields of a struct or message in wire order."""
    found = _FIELDS.get(cls)
    if found is None:
        found = _FIELDS[cls] = _read_fields(cls)
    return found


def _read_fields(cls: type[Any]) -> list[Field]:
    hints = typing.get_type_hints(cls, include_extras=True)
    fields = [_field(f, hints[f.name]) for f in dataclasses.fields(cls)]
    tags = [f.tag for f in fields if f.tag is not None]
    assert tags == sorted(set(tags)), f"tags of {cls.__name__} must ascend"
    return fields


def _carries_records(cls: type[Any]) -> bool:
    wires = [f.wire for f in fields_of(cls)]
    return any(_carries_records(w) if isinstance(w, type) else w is RECORDS for w in wires)


def _field(f: "dataclasses.Field[Any]", hint: Any) -> Field:
    """Read one declaration: `list[X] | None`, `X | None`, an annotated wire type or a struct."""
    optional = array = False
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        (hint,) = (a for a in typing.get_args(hint) if a is not types.NoneType)
        optional = True
    if typing.get_origin(hint) is list:
        (hint,), array = typing.get_args(hint), True
    wire = hint.__metadata__[0] if typing.get_origin(hint) is Annotated else hint
    default = None if f.default is dataclasses.MISSING else f.default
    return Field(
        name=f.name,
        wire=wire,
        array=array,
        nullable_from=f.metadata.get("nullable", 0) if optional else None,
        first=f.metadata.get("first", 0),
        until=f.metadata.get("until", EVERY_VERSION),
        tag=f.metadata.get("tag"),
        default=[] if f.default_factory is list else default,
    )

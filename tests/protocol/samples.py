"""Random messages of any declared class and version."""

from random import Random
from typing import Any
from uuid import UUID

from strandline.protocol.fields import Field, Fixed, Variable
from strandline.protocol.schema import fields_of

RANGES = {"b": 7, "h": 15, "i": 31, "q": 63}
WORDS = ("", "t", "orders", "strandline", "é", "名前", "x" * 127, "y" * 200)


def sample(cls: type[Any], version: int, random: Random) -> Any:
    """A message whose fields absent from `version` are at their defaults, so that it survives the trip."""
    fields = [f for f in fields_of(cls) if f.present(version)]
    return cls(**{f.name: _value(f, version, random) for f in fields} | _absent(cls, version))


def _absent(cls: type[Any], version: int) -> dict[str, Any]:
    return {f.name: f.default for f in fields_of(cls) if not f.present(version)}


def _value(field: Field, version: int, random: Random) -> Any:
    if field.tag is not None and random.random() < 0.5:
        return field.default
    never_null_tag = field.tag is not None and isinstance(field.wire, type)
    if field.nullable(version) and not never_null_tag and random.random() < 0.3:
        return None
    if field.array:
        return [_item(field.wire, version, random) for _ in range(random.choice((0, 1, 2, 3, 12)))]
    return _item(field.wire, version, random)


def _item(wire: Fixed | Variable | type[Any], version: int, random: Random) -> Any:
    if isinstance(wire, type):
        return sample(wire, version, random)
    if isinstance(wire, Variable):
        word = random.choice(WORDS)
        return word if wire.kind == "str" else word.encode()
    if wire.is_uuid:
        return UUID(int=random.getrandbits(128))
    if wire.letter == "?":
        return random.random() < 0.5
    bits = RANGES[wire.letter]
    return random.choice((0, -1, 1, 5, (1 << bits) - 1, -(1 << bits), random.getrandbits(bits)))

"""From the notation to messages: choices are made, names are given their values, fields their types.

Left to others: the notation (notation.py), the batches (batches.py), bytes on the wire (sides.py).
"""

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any
from uuid import UUID

from strandline.protocol.apis import APIS, Api
from strandline.protocol.fields import Field, Fixed, Variable
from strandline.protocol.primitives import NO_UUID
from strandline.protocol.schema import fields_of
from tests.conformance.differential.batches import CALLS
from tests.conformance.differential.notation import Call, Choice, Name, NotSo, Step, Word

BITS = {"b": 7, "h": 15, "i": 31, "q": 63}
NOBODYS_ID = UUID(int=99)


def api_of(step: Step) -> Api:
    """The API that a step asks."""
    try:
        return Api[(step.api or "").upper()]
    except KeyError:
        raise NotSo(f"no API is called {step.api}: {step.text}") from None


def choices(fields: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The same fields once for every way to choose."""
    return list(_choose(fields))


def _choose(value: Any) -> Iterator[Any]:
    if isinstance(value, Choice):
        for each in value.values:
            yield from _choose(each)
    elif isinstance(value, Mapping):
        for chosen in product(*map(_choose, value.values())):
            yield dict(zip(value, chosen, strict=True))
    elif isinstance(value, list):
        yield from map(list, product(*map(_choose, value)))
    elif isinstance(value, Call):
        for items in _choose(value.items):
            for options in _choose(value.options):
                yield Call(value.name, items, options)
    else:
        yield value


class Building:
    """Makes messages. `names` has what `$x` stands for."""

    def __init__(self, names: Mapping[str, Any]) -> None:
        self.names = names

    def request(self, api: Api, fields: Mapping[str, Any], version: int) -> Any:
        """The request of that API with these fields."""
        return self._struct(APIS[api].request, fields, version)

    def _struct(self, cls: type[Any], given: Mapping[str, Any], version: int) -> Any:
        fields = fields_of(cls)
        unknown = given.keys() - {f.name for f in fields}
        if unknown:
            raise NotSo(f"{cls.__name__} has no {sorted(unknown)}; it has {[f.name for f in fields]}")
        values = {f.name: self._field(f, given, version) for f in fields}
        return cls(**values)

    def _field(self, field: Field, given: Mapping[str, Any], version: int) -> Any:
        if field.name in given:
            return self._value(field, given[field.name], version)
        if field.name == "topic_id" and isinstance(given.get("topic"), Name | Word):
            return self._id_of(given["topic"])
        if field.default is not None or field.nullable_from is not None:
            return [] if field.default == [] else field.default
        if field.array:
            return []
        return self._nothing(field.wire, version)

    def _nothing(self, wire: Fixed | Variable | type[Any], version: int) -> Any:
        if isinstance(wire, type):
            return self._struct(wire, {}, version)
        if isinstance(wire, Variable):
            return "" if wire.kind == "str" else b""
        return NO_UUID if wire.is_uuid else 0

    def _id_of(self, topic: Name | Word) -> UUID:
        """The id that goes with a topic's name, where a request of a later version has that instead."""
        if isinstance(topic, Name):
            found = self.names.get(f"{topic.name}.id", NOBODYS_ID)
            assert isinstance(found, UUID)
            return found
        return NOBODYS_ID

    def _value(self, field: Field, value: Any, version: int) -> Any:
        if value == Word("null"):
            return None
        if not field.array:
            return self._item(field.wire, value, version)
        if not isinstance(value, list):
            raise NotSo(f"{field.name} is an array")
        return [self._item(field.wire, each, version) for each in value]

    def _item(self, wire: Fixed | Variable | type[Any], value: Any, version: int) -> Any:
        if isinstance(wire, type):
            return self._struct(wire, value, version)
        if isinstance(value, Name):
            value = self.names[value.name]
            return value.encode() if isinstance(wire, Variable) and wire.kind != "str" else value
        if isinstance(value, Call):
            found = self.call(value)
            return found.decode() if isinstance(wire, Variable) and wire.kind == "str" else found
        text = value.text if isinstance(value, Word) else value
        if isinstance(wire, Variable):
            return text if wire.kind == "str" else text.encode()
        return number(wire, text)

    def call(self, call: Call) -> bytes:
        """What a function of batches.py makes of its arguments."""
        return CALLS[call.name]([self._argument(each) for each in call.items], self._options(call))

    def _options(self, call: Call) -> dict[str, Any]:
        return {name: self._argument(value) for name, value in call.options.items()}

    def _argument(self, value: Any) -> Any:
        if isinstance(value, Call):
            return self.call(value)
        if isinstance(value, Name):
            return self.names[value.name]
        return value.text if isinstance(value, Word) else value


def number(wire: Fixed, text: str) -> Any:
    """A number, a boolean or an id; `max` and `min` are the largest and the smallest of that type."""
    if wire.is_uuid:
        return {"zero": NO_UUID, "nobody": NOBODYS_ID}[text]
    if wire.letter == "?":
        return {"true": True, "false": False}[text]
    if text in ("max", "min"):
        bits = BITS[wire.letter]
        return (1 << bits) - 1 if text == "max" else -(1 << bits)
    return int(text)

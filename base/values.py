"""A `dataclass` that loads fast: methods that the standard one compiles for each class are shared here.

The standard decorator writes and compiles the source of every method. For some two hundred classes that is a
fifth of a broker's start. Here only `__init__` is compiled for each class; `==`, `hash` and `repr` are
functions over its fields. Type checkers see the standard decorator. `frozen` is enforced by them only, as
with wire messages (protocol/schema.py), which makes objects cheaper to create.
Why: docs/decisions/0049-value-classes-are-compiled-little.md
"""

import dataclasses
from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Any

__all__ = ["dataclass"]

if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(*, frozen: bool = False, eq: bool = True, **options: Any) -> Callable[[type], type]:
        """As the standard one. Objects of a frozen class can be hashed, others can only be compared."""

        def declare(cls: type) -> type:
            own = frozenset(vars(cls))
            made = dataclasses.dataclass(repr=False, eq=False, **options)(cls)
            if "__repr__" not in own:
                made.__repr__ = _repr
            if eq and "__eq__" not in own:
                _compare_by_fields(made, is_hashed=frozen)
            return made

        return declare


def _repr(self: Any) -> str:
    fields = ", ".join(f"{f.name}={getattr(self, f.name)!r}" for f in dataclasses.fields(self) if f.repr)
    return f"{type(self).__qualname__}({fields})"


def _compare_by_fields(cls: Any, is_hashed: bool) -> None:
    names = [field.name for field in dataclasses.fields(cls) if field.compare]
    values: Callable[[Any], Any] = attrgetter(*names) if names else _nothing

    def equal(self: Any, other: Any) -> Any:
        return values(self) == values(other) if type(other) is type(self) else NotImplemented

    def hashed(self: Any) -> int:
        return hash(values(self))

    cls.__eq__ = equal
    cls.__hash__ = hashed if is_hashed else None


def _nothing(_: Any) -> tuple[()]:
    return ()

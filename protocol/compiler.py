"""Generating the source of a codec, and compiling it into a function.

The function is what you would write by hand: nested structs are loops, runs of fixed-size fields are one
`struct` call, absent fields cost nothing. Its source is kept in `linecache`, so a traceback through it shows
real lines; `source_of(function)` returns it.
Left to others: which lines (decoder.py, encoder.py).
"""

import linecache
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

from .fields import Field
from .primitives import (
    NO_UUID,
    VARINT1,
    Malformed,
    Slices,
    UnknownTag,
    long_varint,
    read_tag,
    skip_tags,
    uuid_of,
    varint,
)

SHORT_ARRAY = 9  # arrays with fewer numbers have their `Struct` in a table

HELPERS: dict[str, Any] = {
    "Malformed": Malformed,
    "NO_UUID": NO_UUID,
    "Slices": Slices,
    "UnknownTag": UnknownTag,
    "VARINT1": VARINT1,
    "long_varint": long_varint,
    "new": object.__new__,
    "pack": struct.pack,
    "read_tag": read_tag,
    "skip_tags": skip_tags,
    "unpack_from": struct.unpack_from,
    "uuid_of": uuid_of,
    "varint": varint,
}


class SourceLines:
    """Lines of a function, and the names that it may use."""

    def __init__(self, header: str) -> None:
        self.lines = [header]
        self.depth = 1
        self.names = dict(HELPERS)
        self.count = 0

    def add(self, line: str) -> None:
        """Add a line at the current depth."""
        self.lines.append("    " * self.depth + line)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Lines added inside belong to `head`."""
        self.add(head)
        self.depth += 1
        yield
        self.depth -= 1

    def fresh(self, stem: str) -> str:
        """A new local name."""
        self.count += 1
        return f"{stem}{self.count}"

    def codec(self, letters: str, verb: str) -> str:
        """The name of `Struct(letters).verb`."""
        name = f"{verb}_{letters.replace('?', 'o')}"
        self.names[name] = getattr(struct.Struct(">" + letters), verb)
        return name

    def short_arrays(self, letter: str, verb: str) -> str:
        """The name of a table: the `verb` of an array of n numbers at place n, for small n."""
        name = f"{verb}_{letter.replace('?', 'o')}_each"
        self.names[name] = [getattr(struct.Struct(f">{n}{letter}"), verb) for n in range(SHORT_ARRAY)]
        return name

    def build(self, name: str) -> Callable[..., Any]:
        """Compile the lines."""
        text, file = "\n".join(self.lines) + "\n", f"<wire {name}>"
        exec(compile(text, file, "exec"), self.names)
        linecache.cache[file] = (len(text), None, text.splitlines(True), file)
        function: Callable[..., Any] = self.names[name]
        return function


def default_of(field: Field) -> str:
    """A default as source text; a list is a new one each time."""
    if isinstance(field.default, UUID):
        assert field.default == NO_UUID, "the only UUID that can be a default is zero"
        return "NO_UUID"
    return repr(field.default)


def source_of(function: Any) -> str:
    """The lines of a compiled codec."""
    return "".join(linecache.getlines(function.__code__.co_filename))

"""Compile a message's fields into one flat encoding function per version.

The function appends parts to a list: one `pack` for each run of fixed-size fields and the length after it,
text as a separate part, records uncopied.
Left to others: joining small parts, and the size in front (connection.py), decoding (decoder.py).
"""

from typing import Any
from uuid import UUID

from .compiler import SHORT_ARRAY, SourceLines, default_of
from .fields import Encoder, Field, FieldsOf, Fixed, Variable, is_compact
from .primitives import varint


def compile_encoder(cls: type[Any], fields_of: FieldsOf, version: int, flexible: bool) -> Encoder:
    """A function (message, list that the parts are appended to)."""
    name = f"encode_{cls.__name__}_v{version}"
    source = SourceLines(f"def {name}(message, out):")
    source.add("put = out.append")
    writing = _Writing(source, fields_of, version, flexible)
    writing.struct("message", cls)
    writing.flush()
    return source.build(name)


class _Writing:
    """Emits the code that writes one message."""

    def __init__(self, source: SourceLines, fields_of: FieldsOf, version: int, flexible: bool) -> None:
        self.source = source
        self.fields_of = fields_of
        self.version = version
        self.flexible = flexible
        self.out = "out"
        self.put = "put"
        self.letters = ""  # pending fixed-size values, to be written together
        self.values: list[str] = []

    def fixed(self, letter: str, value: str) -> None:
        """A value of fixed size, written at the next `flush`."""
        self.letters += letter
        self.values.append(value)

    def flush(self) -> None:
        """Write all pending values with one `pack`."""
        if self.letters:
            self.source.add(f"{self.put}({self.packed(self.letters, self.values)})")
        self.letters, self.values = "", []

    def packed(self, letters: str, values: list[str]) -> str:
        """The call that packs `values` into bytes."""
        if letters == "B":
            return f"VARINT1[{values[0]}]"
        return f"{self.source.codec(letters, 'pack')}({', '.join(values)})"

    def length(self, size: str, letter: str, compact: bool) -> None:
        """A length, -1 for null, together with all pending values."""
        if not compact:
            self.fixed(letter, size)
            self.flush()
            return
        n = self.source.fresh("n")
        self.source.add(f"{n} = 1 + ({size})")
        short = self.packed(self.letters + "B", [*self.values, n])
        long = f"{self.packed(self.letters, self.values)} + varint({n})" if self.letters else f"varint({n})"
        self.source.add(f"{self.put}({short} if {n} < 128 else {long})")
        self.letters, self.values = "", []

    def struct(self, value: str, cls: type[Any]) -> None:
        """The fields of a struct, then its tag buffer."""
        fields = [f for f in self.fields_of(cls) if f.present(self.version)]
        for f in fields:
            if f.tag is None:
                self.value(f, f"{value}.{f.name}")
        if self.flexible:
            self.tags(value, [f for f in fields if f.tag is not None])

    def value(self, field: Field, value: str) -> None:
        """A field that is not tagged, or the data of one that is."""
        nullable = field.nullable(self.version)
        if field.array:
            self.array(field, value, nullable)
        elif isinstance(field.wire, type) and nullable and field.tag is None:
            self.optional_struct(value, field.wire)
        else:
            self.item(field.wire, value, nullable)

    def item(self, wire: Fixed | Variable | type[Any], value: str, nullable: bool = False) -> None:
        """A value that is not an array."""
        if isinstance(wire, Fixed):
            self.fixed(wire.letter, f"{value}.bytes" if wire.is_uuid else value)
        elif isinstance(wire, Variable):
            self.variable(wire, value, nullable)
        else:
            self.struct(value, wire)

    def optional_struct(self, value: str, cls: type[Any]) -> None:
        """A byte says whether the struct follows (1) or is null (-1)."""
        self.flush()
        name = self.source.fresh("o")
        self.source.add(f"{name} = {value}")
        with self.source.block(f"if {name} is None:"):
            self.source.add(f"{self.put}(b'\\xff')")
        with self.source.block("else:"):
            self.fixed("b", "1")
            self.struct(name, cls)
            self.flush()

    def variable(self, wire: Variable, value: str, nullable: bool) -> None:
        """Text, bytes or records, after their length."""
        raw = self.source.fresh("b")
        encoded = ".encode()" if wire.kind == "str" else ""
        if nullable and encoded:
            self.source.add(f"{raw} = {value}")
            self.source.add(f"if {raw} is not None: {raw} = {raw}.encode()")
        else:
            self.source.add(f"{raw} = {value}{encoded}")
        size = f"-1 if {raw} is None else len({raw})" if nullable else f"len({raw})"
        self.length(size, wire.prefix, is_compact(wire, self.flexible))
        if wire.kind != "view":
            self.source.add(f"if {raw}: {self.put}({raw})")
            return
        with self.source.block(f"if {raw}:"):
            self.source.add(f"if type({raw}) is Slices: {self.out}.extend({raw}.parts)")
            self.source.add(f"else: {self.put}({raw})")

    def array(self, field: Field, value: str, nullable: bool) -> None:
        """An array, after its length."""
        items = self.source.fresh("l")
        self.source.add(f"{items} = {value}")
        size = f"-1 if {items} is None else len({items})" if nullable else f"len({items})"
        self.length(size, "i", self.flexible)
        if isinstance(field.wire, Fixed) and not field.wire.is_uuid:
            letter = field.wire.letter
            short = f"{self.source.short_arrays(letter, 'pack')}[len({items})]"
            with self.source.block(f"if {items}:"):
                with self.source.block(f"if len({items}) < {SHORT_ARRAY}:"):
                    self.source.add(f"{self.put}({short}(*{items}))")
                with self.source.block("else:"):
                    self.source.add(f"{self.put}(pack(f'>{{len({items})}}{letter}', *{items}))")
            return
        one = self.source.fresh("e")
        with self.source.block(f"for {one} in {items}{' or ()' if nullable else ''}:"):
            self.item(field.wire, one)
            self.flush()

    def tags(self, owner: str, fields: list[Field]) -> None:
        """The tag buffer: the number of fields that differ from their defaults, then those, by tag."""
        if not fields:
            self.fixed("B", "0")
            return
        names = [self.source.fresh("t") for _ in fields]
        for name, f in zip(names, fields, strict=True):
            self.source.add(f"{name} = {owner}.{f.name}")
        tests = [_differs(name, f) for name, f in zip(names, fields, strict=True)]
        letters, values = self.letters + "B", self.values
        self.letters, self.values = "", []
        with self.source.block(f"if not ({' or '.join(tests)}):"):
            self.source.add(f"{self.put}({self.packed(letters, [*values, '0'])})")
        with self.source.block("else:"):
            count = " + ".join(f"({test})" for test in tests)
            self.source.add(f"{self.put}({self.packed(letters, [*values, count])})")
            for name, test, f in zip(names, tests, fields, strict=True):
                with self.source.block(f"if {test}:"):
                    self.one_tag(name, f)

    def one_tag(self, value: str, field: Field) -> None:
        """One tagged field. Its size comes before it: unless that is fixed, it is first written to a list."""
        if isinstance(field.wire, Fixed) and not field.array:
            self.value(field, value)
            head = varint(field.tag or 0) + varint(field.wire.size)
            self.source.add(f"{self.put}({head!r} + {self.packed(self.letters, self.values)})")
            self.letters, self.values = "", []
            return
        out, put = self.out, self.put
        self.out = self.source.fresh("aside")
        self.put = f"{self.out}.append"
        self.source.add(f"{self.out} = []")
        self.value(field, value)
        self.flush()
        size = f"varint(sum(map(len, {self.out})))"
        self.source.add(f"{put}({varint(field.tag or 0)!r} + {size}); {out}.extend({self.out})")
        self.out, self.put = out, put


def _differs(name: str, field: Field) -> str:
    """The test whether a tagged field must be written."""
    if field.default is None:
        return f"{name} is not None"
    if field.array:
        return f"len({name}) > 0"
    if isinstance(field.default, UUID):  # mostly it is the very same: UUIDs are slow to compare
        return f"({name} is not {default_of(field)} and {name} != {default_of(field)})"
    return f"{name} != {default_of(field)}"

"""Compile a message's fields into one flat decoding function per version.

Input is not trusted: every length is checked against the frame before it is used, an array's before anything
is allocated, and null is refused where it is not allowed. What the emitted code does not check itself (the
end of the frame for fixed-size fields, UTF-8) raises `IndexError`, `struct.error` or `UnicodeDecodeError`.
Left to others: turning those into `Malformed` (schema.decode), encoding (encoder.py).
"""

import struct
from typing import Any

from .compiler import SHORT_ARRAY, SourceLines, default_of
from .fields import Decoder, Field, FieldsOf, Fixed, Variable, is_compact, least_item_bytes

TEXT_MAX = 0x7FFF  # bytes of a string


def compile_decoder(cls: type[Any], fields_of: FieldsOf, version: int, flexible: bool) -> Decoder:
    """A function (buffer, position, list for unknown tags or None) -> (message, position after it)."""
    name = f"decode_{cls.__name__}_v{version}"
    source = SourceLines(f"def {name}(buf, pos, unknown=None):")
    source.add("view = buf if type(buf) is memoryview else memoryview(buf)")
    source.add("end = len(view)")
    value = _Reading(source, fields_of, version, flexible).struct(cls)
    source.add(f"return {value}, pos")
    return source.build(name)


class _Reading:
    """Emits the code that reads one message; each method returns the expression of the value read."""

    def __init__(self, source: SourceLines, fields_of: FieldsOf, version: int, flexible: bool) -> None:
        self.source = source
        self.fields_of = fields_of
        self.version = version
        self.flexible = flexible
        self.letters = ""  # pending fixed-size values, to be read together
        self.targets: list[str] = []

    def take(self, letter: str) -> str:
        """The next value of fixed size; its name is bound at the next `flush`."""
        self.letters += letter
        self.targets.append(self.source.fresh("v"))
        return self.targets[-1]

    def flush(self) -> None:
        """Read all pending values with one `unpack`."""
        if self.letters == "B":
            self.source.add(f"{self.targets[0]} = buf[pos]; pos += 1")
        elif self.letters:
            unpack = self.source.codec(self.letters, "unpack_from")
            size = struct.calcsize(">" + self.letters)
            self.source.add(f"{', '.join(self.targets)}, = {unpack}(buf, pos); pos += {size}")
        self.letters, self.targets = "", []

    def struct(self, cls: type[Any]) -> str:
        """A struct: its fields, its tag buffer, then the object. `new` + slots cost half of `__init__`."""
        fields = [f for f in self.fields_of(cls) if f.present(self.version)]
        values = {f.name: self.value(f) for f in fields if f.tag is None}
        if self.flexible:
            values |= self.tags(cls.__name__, [f for f in fields if f.tag is not None])
        self.flush()
        assert self.source.names.setdefault(cls.__name__, cls) is cls, "names of structs differ in a message"
        out = self.source.fresh("s")
        self.source.add(f"{out} = new({cls.__name__})")
        for f in self.fields_of(cls):
            self.source.add(f"{out}.{f.name} = {values.get(f.name) or default_of(f)}")
        return out

    def value(self, field: Field) -> str:
        """A field that is not tagged, or the data of one that is."""
        nullable = field.nullable(self.version)
        if field.array:
            return self.array(field, nullable)
        if isinstance(field.wire, type) and nullable and field.tag is None:
            return self.optional_struct(field.wire)
        return self.item(field.name, field.wire, nullable)

    def item(self, name: str, wire: Fixed | Variable | type[Any], nullable: bool = False) -> str:
        """A value that is not an array."""
        if isinstance(wire, Fixed):
            value = self.take(wire.letter)
            return f"uuid_of({value})" if wire.is_uuid else value
        if isinstance(wire, Variable):
            return self.variable(name, wire, nullable)
        return self.struct(wire)

    def optional_struct(self, cls: type[Any]) -> str:
        """A byte says whether the struct follows (1) or is null (-1)."""
        there, out = self.take("b"), self.source.fresh("o")
        self.flush()
        self.source.add(f"{out} = None")
        with self.source.block(f"if {there} >= 0:"):
            self.source.add(f"{out} = {self.struct(cls)}")
        return out

    def count(self, letter: str, compact: bool) -> str:
        """A length as on the wire: if compact, that is the length plus one."""
        n = self.take("B" if compact else letter)
        self.flush()
        if compact:
            self.source.add(f"if {n} >= 0x80: {n}, pos = long_varint(buf, pos, {n})")
        return n

    def compact_text(self, name: str) -> str:
        """The length of a compact string. Such a length knows no bound, but Kafka's strings have one: what
        is read here may be stored, or answered, where a length has two bytes. Short ones cost no check.
        """
        n = self.take("B")
        self.flush()
        with self.source.block(f"if {n} >= 0x80:"):
            self.source.add(f"{n}, pos = long_varint(buf, pos, {n})")
            fault = f"raise Malformed('{name} is longer than {TEXT_MAX} bytes')"
            self.source.add(f"if {n} - 1 > {TEXT_MAX}: {fault}")
        return n

    def variable(self, name: str, wire: Variable, nullable: bool) -> str:
        """Text, bytes or records. A null would end before it begins, so one comparison finds both faults."""
        compact = is_compact(wire, self.flexible)
        n = self.compact_text(name) if compact and wire.kind == "str" else self.count(wire.prefix, compact)
        out, stop = self.source.fresh("v"), self.source.fresh("stop")
        copied = {"str": "str(buf[pos:{}], 'utf-8')", "bytes": "bytes(buf[pos:{}])", "view": "view[pos:{}]"}
        lines = (
            f"{stop} = pos + {n}{' - 1' if compact else ''}",
            (f"if not pos <= {stop} <= end: raise Malformed('{name} is null or ends beyond the frame')"),
            f"{out} = {copied[wire.kind].format(stop)}; pos = {stop}",
        )
        if not nullable:
            for line in lines:
                self.source.add(line)
            return out
        with self.source.block(f"if {n} == {0 if compact else -1}:"):
            self.source.add(f"{out} = None")
        with self.source.block("else:"):
            for line in lines:
                self.source.add(line)
        return out

    def array(self, field: Field, nullable: bool) -> str:
        """An array; its claimed length is first checked against the bytes that are left."""
        n, out = self.count("i", self.flexible), self.source.fresh("a")
        if self.flexible:
            self.source.add(f"{n} -= 1")
        if not nullable:
            self.elements(field, n, out)
            return out
        with self.source.block(f"if {n} == -1:"):
            self.source.add(f"{out} = None")
        with self.source.block("else:"):
            self.elements(field, n, out)
        return out

    def elements(self, field: Field, n: str, out: str) -> None:
        """The elements one by one, or all at once if they are numbers."""
        least = least_item_bytes(field.wire, self.fields_of, self.version, self.flexible)
        add = self.source.add
        fault = f"raise Malformed('{field.name} is longer than the frame')"
        add(f"if not 0 <= {n} * {least} <= end - pos: {fault}")
        if isinstance(field.wire, Fixed) and not field.wire.is_uuid:
            letter = field.wire.letter
            short = f"{self.source.short_arrays(letter, 'unpack_from')}[{n}](buf, pos)"
            long = f"unpack_from(f'>{{{n}}}{letter}', buf, pos)"
            add(f"{out} = list({short} if {n} < {SHORT_ARRAY} else {long}); pos += {n} * {least}")
            return
        add(f"{out} = []")
        with self.source.block(f"for _ in range({n}):"):
            value = self.item(field.name, field.wire)
            self.flush()
            add(f"{out}.append({value})")

    def tags(self, owner: str, fields: list[Field]) -> dict[str, str]:
        """The tag buffer: tags must ascend, and each must have the length that it claims."""
        count = self.take("B")
        self.flush()
        add = self.source.add
        if not fields:
            add(f"if {count}: pos = skip_tags(buf, pos, {count}, end, '{owner}', unknown)")
            return {}
        values = {f.name: self.source.fresh("t") for f in fields}
        for f in fields:
            add(f"{values[f.name]} = {default_of(f)}")
        with self.source.block(f"if {count}:"):
            add(f"if {count} >= 0x80: {count}, pos = long_varint(buf, pos, {count})")
            tag, stop = self.source.fresh("tag"), self.source.fresh("stop")
            add(f"{tag} = -1")
            with self.source.block(f"for _ in range({count}):"):
                add(f"{tag}, {stop}, pos = read_tag(buf, pos, {tag}, end)")
                self.one_tag(owner, fields, values, tag, stop)
                add(f"if pos != {stop}: raise Malformed(f'tag {{{tag}}} of {owner} has another length')")
        return values

    def one_tag(self, owner: str, fields: list[Field], values: dict[str, str], tag: str, stop: str) -> None:
        """One tagged field: a known one, or an unknown one that is skipped, or kept if the caller asks."""
        for i, f in enumerate(fields):
            with self.source.block(f"{'el' if i else ''}if {tag} == {f.tag}:"):
                value = self.value(f)
                self.flush()
                self.source.add(f"{values[f.name]} = {value}")
        with self.source.block("else:"):
            kept = f"UnknownTag('{owner}', {tag}, bytes(view[pos:{stop}]))"
            self.source.add(f"if unknown is not None: unknown.append({kept})")
            self.source.add(f"pos = {stop}")

"""Variants of an encoded message: fields replaced, items dropped or doubled; or lengths that lie, and damage.

A whole variant keeps to the schema, because each change brings the lengths and counts that belong to it. A
broken one need not; whether it is still a request says the model (model.py).
Left to others: where fields stand (spans.py), what exists (known.py), what may be sent at all (drawing.py).
"""

import struct
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any
from uuid import UUID

from strandline.protocol.apis import Api
from strandline.protocol.batches import seal
from strandline.protocol.primitives import varint
from tests.fuzzing.known import ALIASES, VICTIM, Known, Met
from tests.fuzzing.spans import Array, Number, Optional, Span, Tags, Text
from tests.fuzzing.values import COUNTS, ODD_NAMES
from tests.protocol.damaged import batch, damaged
from tests.protocol.samples import WORDS

Edit = tuple[int, int, bytes]  # from, to, what stands there instead

BITS = {"b": 7, "h": 15, "i": 31, "q": 63}
EDGES = {
    letter: [
        struct.pack(f">{letter}", value)
        for value in (0, -1, 1, 2, 5, 100, (1 << bits) - 1, -(1 << bits), (1 << bits - 1))
        if -(1 << bits) <= value < 1 << bits
    ]
    for letter, bits in BITS.items()
} | {"?": [b"\0", b"\1", b"\2"], "16s": [bytes(16), b"\xff" * 16, bytes(15) + b"\1"]}
EDGES |= {"H": EDGES["h"], "I": EDGES["i"], "d": EDGES["q"]}
SHORT_MS = {
    "max_wait_ms": 5, "timeout_ms": 200, "rebalance_timeout_ms": 5, "session_timeout_ms": 100,
    "transaction_timeout_ms": 1000,
}  # fmt: skip
"""Nothing waits for longer, else a run does nothing else."""
WRITTEN_MS = 60_000  # a produce must not time out: then nobody knows whether it was written
READ_BYTES = (0, -1, 1, 5, 1 << 16, 1 << 16, -(1 << 31))
CHOSEN = {
    ("ProduceRequest", "acks"): (*[-1] * 6, *[1] * 6, 2, -2),
    ("ProduceRequest", "timeout_ms"): (WRITTEN_MS, (1 << 31) - 1),
    ("CreatableTopic", "num_partitions"): COUNTS,
    ("CreatePartitionsTopic", "count"): COUNTS,
    ("FetchRequest", "max_bytes"): READ_BYTES,
    ("FetchPartition", "partition_max_bytes"): READ_BYTES,
}
"""Fields whose other values would do something that is not to be done."""
LIES = (b"\x00", b"\x7f", b"\x80", b"\xff", b"\xff\xff\xff\xff\x07", b"\xff\xff\xff\xff\x0f", b"\xff" * 6)
FIXED_LIES = (-2, -1, 0, 1, 100, 0x7F, 0xFF, 0x7FFF)
EDGE_BYTES = (0, 0, 1, 2, 3, 5, 0x10, 0x20, 0x40, 0x7F, 0x80, 0xFE, 0xFF, 0xFF)
BATCHES_KEPT = 64
KNOWN_SHARE = 0.5
ODD_WORDS = tuple(word.encode() for word in (*WORDS, *ODD_NAMES))
UNKNOWN_TAG = 30_000
EDITS = (1, 1, 1, 2, 2, 3, 5)
FEW_EDITS = (0, 0, 0, 1, 1, 2)
"""Of what is drawn anew all the time, since its values fit each other."""


class Batches:
    """Batches to produce: some are kept for a while, because making one takes longer than all else."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self._kept = [self._made() for _ in range(BATCHES_KEPT)]

    def any(self) -> bytes:
        """A batch of offsets from 0 on, as a producer sends it; its records may be damaged."""
        place = int(self.random.random() * BATCHES_KEPT)
        if self.random.random() < 0.1:
            self._kept[place] = self._made()
        return self._kept[place]

    def of_producer(self, met: Met) -> bytes:
        """A batch of a producer that was met, perhaps in a transaction."""
        data = bytearray(self.any())
        transactional = 0x10 if "transactional_id" in met else 0
        struct.pack_into(">h", data, 21, transactional)
        sequence = self.random.choice((0, 0, 0, 1, 5, (1 << 31) - 1))
        struct.pack_into(">qhi", data, 43, met["producer_id"], met["producer_epoch"], sequence)
        seal(data, 0, len(data))
        return bytes(data)

    def _made(self) -> bytes:
        return bytes(8) + batch(self.random)[8:]


class Variants:
    """Makes variants of bodies whose spans are known."""

    def __init__(
        self, random: Random, known: Known, batches: Batches, short_ms: Mapping[str, int] = SHORT_MS
    ) -> None:
        self.random, self.known, self.batches, self.short_ms = random, known, batches, short_ms

    def whole(
        self,
        body: bytes,
        spans: Sequence[Span],
        topic: str,
        met: Met | None = None,
        edits_of: Sequence[int] = EDITS,
    ) -> bytes:
        """A message of the schema: some fields differ; those that tell who asks are of `met`. `edits_of`: how
        many, one is drawn.
        """
        random, edits = self.random.random, _Edits()
        if met:
            for span in spans:
                if type(span) in (Number, Text) and (name := _alias(span)) in met:
                    edits.add((span.start, span.end, _encoded(span, met[name])))
        if spans:
            for _ in range(edits_of[int(random() * len(edits_of))]):
                edits.add(*self._edit(spans[int(random() * len(spans))], body, topic))
        return edits.applied(body)

    def broken(self, body: bytes, spans: Sequence[Span]) -> bytes:
        """A length that lies, a cut between two fields, bytes there twice or not at all, or plain damage."""
        way = int(self.random.random() * 10) if spans else 9
        if way >= 8:
            return damaged(body, self.random)
        if way >= 4:
            return self._overwritten(body)
        span = spans[int(self.random.random() * len(spans))]
        start, end = span.start, span.end
        if way == 0:
            return body[:start] if self.random.random() < 0.5 else body[:end]
        if way == 1:
            return body[:end] + body[start:] if self.random.random() < 0.5 else body[:start] + body[end:]
        return self._lied(body, span)

    def _overwritten(self, body: bytes) -> bytes:
        """Some bytes have other values; the fields stand where they stood, if no length was among them."""
        random, out = self.random.random, bytearray(body)
        for _ in range(1 + int(random() * 3)):
            out[int(random() * len(out))] = EDGE_BYTES[int(random() * len(EDGE_BYTES))]
        return bytes(out)

    def _lied(self, body: bytes, span: Span) -> bytes:
        random = self.random
        if isinstance(span, Number | Optional):
            value = random.randbytes(1 + int(random.random() * 9))
            return body[: span.start] + value + body[span.start + 1 :]
        if isinstance(span, Tags):
            return body[: span.start] + random.choice(LIES) + body[span.start + 1 :]
        at = span.content_at if isinstance(span, Text) else span.ends[0]
        if span.compact:
            lie = random.choice(LIES)
        else:
            letter = span.wire.prefix if isinstance(span, Text) else "i"
            lie = random.choice((*(struct.pack(f">{letter}", v) for v in FIXED_LIES), *EDGES[letter]))
        return body[: span.start] + lie + body[at:]

    def _edit(self, span: Span, body: bytes, topic: str) -> tuple[Edit, ...]:
        """A change that keeps to the schema; its edits belong together."""
        if isinstance(span, Number):
            return ((span.start, span.end, self.number(span, topic)),)
        if isinstance(span, Text):
            return ((span.start, span.end, self._text(span, topic)),)
        if isinstance(span, Array):
            return self._array(span, body)
        if isinstance(span, Tags):
            return self._tags(span, body)
        return ((span.start, span.end, b"\xff"),)

    def number(self, span: Number, topic: str) -> bytes:
        """Another value of a field of fixed size."""
        random, letter = self.random, span.letter
        chosen = CHOSEN.get((span.owner, span.name))
        if chosen is not None:
            return struct.pack(f">{letter}", random.choice(chosen))
        if (limit := self.short_ms.get(span.name)) is not None:
            return struct.pack(f">{letter}", random.choice((0, 1, limit, limit, -1, -(1 << 31))))
        if random.random() < KNOWN_SHARE:
            value = self.known.value(span.owner, span.name, topic)
            if value is not None:
                return _encoded(span, value)
        if random.random() < 0.3:
            return random.randbytes(span.end - span.start)
        edges = EDGES[letter]
        return edges[int(random.random() * len(edges))]

    def _text(self, span: Text, topic: str) -> bytes:
        random = self.random.random
        if span.nullable and random() < 0.15:
            return span.sized(None)
        if span.wire.kind == "view":
            return span.sized(self.records(topic))
        if random() < KNOWN_SHARE:
            value = self.known.value(span.owner, span.name, topic)
            if value is not None:
                return _encoded(span, value)
        return span.sized(ODD_WORDS[int(random() * len(ODD_WORDS))])

    def records(self, topic: str) -> bytes:
        """A batch that may go to that topic, or damage."""
        way = self.random.random()
        if way < 0.1:
            return damaged(self.batches.any(), self.random)
        met = self.known.somebody(Api.PRODUCE) if way < 0.4 and topic == VICTIM else None
        if met:
            return self.batches.of_producer(met)
        return self.batches.any()

    def _array(self, span: Array, body: bytes) -> tuple[Edit, ...]:
        count, first = len(span.ends) - 1, span.ends[0]
        way = self.random.random()
        if span.nullable and way < 0.1:
            return ((span.start, span.end, span.counted(-1)),)
        if not count or way < 0.15:
            return ((span.start, span.end, span.counted(0)),)
        nth = int(self.random.random() * count)
        start, end = span.ends[nth], span.ends[nth + 1]
        if way < 0.5:
            return ((span.start, first, span.counted(count - 1)), (start, end, b""))
        at = span.ends[int(self.random.random() * count)]
        return ((span.start, first, span.counted(count + 1)), (at, at, body[start:end]))

    def _tags(self, span: Tags, body: bytes) -> tuple[Edit, ...]:
        if span.count and self.random.random() < 0.3:
            return ((span.start, span.end, b"\0"),)
        data = self.random.randbytes(int(self.random.random() * 20))
        more = varint(UNKNOWN_TAG) + varint(len(data)) + data
        return ((span.start, span.end, varint(span.count + 1) + body[span.start + 1 : span.end] + more),)


class _Edits:
    """Edits that do not touch each other."""

    def __init__(self) -> None:
        self.kept: list[Edit] = []

    def add(self, *edits: Edit) -> None:
        """All of them, or none if one would touch what has been changed already."""
        for start, end, _ in edits:
            for other_start, other_end, _ in self.kept:
                if start < other_end and other_start < end:
                    return
        self.kept += edits

    def applied(self, body: bytes) -> bytes:
        if not self.kept:
            return body
        parts, pos = [], 0
        for start, end, instead in sorted(self.kept, key=_place):
            parts.append(body[pos:start])
            parts.append(instead)
            pos = end
        parts.append(body[pos:])
        return b"".join(parts)


def _place(edit: Edit) -> tuple[int, int]:
    return edit[0], edit[1]


def _alias(span: Any) -> str:
    return ALIASES.get(span.name, span.name)


def _encoded(span: Number | Text, value: Any) -> bytes:
    """A value as the field has it."""
    if isinstance(span, Text):
        return span.sized(value.encode() if isinstance(value, str) else value)
    if isinstance(value, UUID):
        return value.bytes
    bits = BITS.get(span.letter, 0)
    return struct.pack(f">{span.letter}", value if -(1 << bits) <= value < 1 << bits else -1)

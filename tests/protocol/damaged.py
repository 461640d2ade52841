"""Damaged bytes of any kind, and batches whose one fault is chosen: a length beyond the end, a number without
one, a count that lies.

Nearly all else of a batch is as it should be, so that no other check hides the one that is meant. The CRC is
right.
"""

import struct
from random import Random

from strandline.protocol.batches import HEADER, LENGTH_END, seal
from strandline.protocol.primitives import varint, zigzag

FAULTS = (
    "none", "none", "none", "none", "length", "elapsed", "delta", "key", "value", "headers", "name", "pair",
    "too long", "count", "last delta", "cut", "tail", "bytes",
)  # fmt: skip
LENGTHS = (b"\x00", b"\x7f", b"\x80", b"\xff", b"\xff\xff", b"\x7f\xff", b"\x7f\xff\xff\xff", b"\xff" * 4)
EDGES = (-1, -2, -64, -(2**31), -(2**33), 0, 1, 6, 7, 2**31 - 1, 2**31, 2**33, 2**34 - 1)


def damaged(frame: bytes, random: Random) -> bytes:
    """One of the ways in which bytes go wrong: flipped, cut, doubled, or a length that lies."""
    out = bytearray(frame)
    for _ in range(random.choice((1, 1, 2, 4))):
        at = random.randrange(len(out) + 1)
        way = random.randrange(5)
        if way == 0 and at < len(out):
            out[at] ^= 1 << random.randrange(8)
        elif way == 1:
            del out[at:]
        elif way == 2:
            out[at:at] = out[at : at + random.randrange(1, 9)]
        elif way == 3:
            del out[at : at + random.randrange(1, 5)]
        else:
            lie = random.choice(LENGTHS)
            out[at : at + len(lie)] = lie
    return bytes(out)


def batch(source: Random, fault: str | None = None, records_max: int = 12) -> bytes:
    """A sealed batch of offsets from 7 on; one of its records has the fault, any one if None is named."""
    fault = source.choice(FAULTS) if fault is None else fault
    count = source.randint(1, records_max)
    bad = source.randrange(count)
    shape = Shape(source)
    section = b"".join(shape.record(nth, fault if nth == bad else "none") for nth in range(count))
    last_delta = count - 1 + source.choice([0, 0, 3])
    if fault == "count":
        count = max(0, count + source.choice([-count, -1, 1, 2]))
    elif fault == "last delta":
        last_delta = source.randint(0, last_delta)
    elif fault == "cut":
        section = section[: source.randrange(len(section))]
    elif fault == "tail":
        section += source.randbytes(source.randint(1, 9))
    elif fault == "bytes":
        damaged = bytearray(section)
        for _ in range(source.randint(1, 3)):
            damaged[source.randrange(len(damaged))] = source.choice([0, 1, 2, 127, 128, 255])
        section = bytes(damaged)
    append_time = 8 * (source.random() < 0.2)
    base = source.choice([10_000, -1, 2**63 - 2])
    data = bytearray(HEADER.size + len(section))
    length = len(data) - LENGTH_END
    HEADER.pack_into(
        data, 0, 7, length, 1, 2, 0, append_time, last_delta, base, base + 1, -1, -1, -1, count
    )  # fmt: skip
    data[HEADER.size :] = section
    seal(data, 0, len(data))
    return bytes(data)


class Shape:
    """How the records of a batch look: constant or not, plainly encoded or not."""

    def __init__(self, source: Random) -> None:
        self.source = source
        self.even = source.random() < 0.3
        self.padded = source.random() < 0.2  # numbers take more bytes than they need

    def record(self, nth: int, fault: str) -> bytes:
        """The record of that offset delta."""
        source = self.source
        key = self._content([None, b"", b"key", b"k" * 70])
        value = self._content([None, b"", b"value", b"v" * 64, b"v" * 200])
        pairs = source.choice([0, 0, 1, 2, 5])
        elapsed = source.choice([0, 1, -1, 1000, 2**40, 2**63 - 1, -(2**63)])
        inner = source.choice([b"\0", b"\xff"])
        inner += self._number(elapsed, fault == "elapsed", bytes_max=10)
        inner += self._number(nth, fault == "delta")
        inner += self._sized(key, fault == "key")
        inner += self._sized(value, fault == "value")
        inner += self._number(pairs, fault == "headers")
        for pair in range(pairs):
            last = pair == pairs - 1
            inner += self._sized(source.choice([b"", b"name"]), last and fault == "name")
            inner += self._sized(source.choice([None, b"", b"x" * 80]), last and fault == "pair")
        if fault == "too long":
            at = source.randrange(1, len(inner))
            inner = inner[:at] + b"\x80" * source.choice([5, 10, 11]) + inner[at:]
        return self._number(len(inner), fault == "length") + inner

    def _content(self, choices: list[bytes | None]) -> bytes | None:
        return choices[-1] if self.even else self.source.choice(choices)

    def _sized(self, content: bytes | None, bad: bool) -> bytes:
        return self._number(-1 if content is None else len(content), bad) + (content or b"")

    def _number(self, value: int, bad: bool, bytes_max: int = 5) -> bytes:
        if bad:
            near = (value - 1, value + 1, value + 2, value + 64)
            value = self.source.choice([*EDGES, *near])
        raw = varint(zigzag(value) & (2**64 - 1))
        room = bytes_max - len(raw)
        if bad and self.source.random() < 0.2:
            room += 2
        if room > 0 and (self.padded or bad) and self.source.random() < 0.3:
            more = self.source.randint(1, room)
            raw = bytes((*raw[:-1], raw[-1] | 128)) + b"\x80" * (more - 1) + b"\0"
        return raw


def with_count(data: bytes, count: int) -> bytes:
    """The same batch with another record count."""
    changed = bytearray(data)
    struct.pack_into(">i", changed, 57, count)
    seal(changed, 0, len(changed))
    return bytes(changed)

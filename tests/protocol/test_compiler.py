"""Declarations become codecs: every kind of field, and every way in which bytes can lie."""

import struct as packing
import traceback
import tracemalloc
from uuid import UUID

import pytest

from strandline.protocol.compiler import source_of
from strandline.protocol.primitives import (
    NO_UUID,
    Malformed,
    Slices,
    UnknownTag,
    read_varint,
    unzigzag,
    varint,
    zigzag,
)
from strandline.protocol.schema import (
    Bool,
    Bytes,
    Float64,
    Int8,
    Int16,
    Int32,
    Int64,
    Records,
    String,
    UInt16,
    UInt32,
    Uuid,
    decode,
    encode,
    message,
    since,
    spec_of,
    struct,
    tagged,
)


@struct
class Point:
    """A nested struct."""

    x: Int32
    y: Int32 = since(1, default=0)
    name: String = tagged(3, since=2, default="")


@message(key=-1, versions=(0, 3), flexible=2)
class Zoo:
    """One of each kind."""

    tiny: Int8 = 0
    word: UInt16 = 0
    long: UInt32 = 0
    ratio: Float64 = 0.0
    on: Bool = False
    id: Uuid = NO_UUID
    label: String | None = since(0, default="", nullable=1)
    blob: Bytes = b""
    numbers: list[Int64] = since(0, default=[])
    words: list[String] = since(0, default=[])
    ids: list[Uuid] = since(0, default=[])
    points: list[Point] | None = since(0, default=[])
    where: Point | None = since(1, default=None)
    old: Int16 = since(0, default=7, until=1)
    marks: list[Point] = tagged(0, since=2, default=[])
    spot: Point | None = tagged(1, since=2, default=None)
    note: String | None = tagged(2, since=3, default=None)
    token: Uuid = tagged(5, since=3, default=NO_UUID)
    records: Records | None = None


def wire(value: object, version: int) -> bytes:
    return b"".join(encode(value, version))


def busy(version: int) -> Zoo:
    """Every field that `version` has, with something in it."""
    point = Point(x=1, y=2 if version >= 1 else 0, name="p" if version >= 2 else "")
    return Zoo(
        tiny=-1,
        word=65535,
        long=4294967295,
        ratio=0.5,
        on=True,
        id=UUID(int=5),
        label="é" * 100,
        blob=b"\0\1",
        numbers=list(range(20)),
        words=["", "a"],
        ids=[UUID(int=1), UUID(int=2)],
        points=[point, point],
        where=point if version >= 1 else None,
        old=9 if version < 2 else 7,
        marks=[point] if version >= 2 else [],
        spot=point if version >= 2 else None,
        note="n" if version >= 3 else None,
        token=UUID(int=9) if version >= 3 else NO_UUID,
        records=b"r" * 300,
    )


@pytest.mark.parametrize("version", range(4))
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_every_kind_of_field_comes_back_from_every_kind_of_buffer(version: int, kind: type) -> None:
    data = kind(b"??" + wire(busy(version), version) + b"!!")
    found, end = decode(Zoo, version, data, 2)
    assert found == busy(version)
    assert end == len(data) - 2


def test_the_bytes_are_those_of_the_protocol() -> None:
    @message(key=-1, versions=(0, 1), flexible=1)
    class Small:
        """A number, a text that may be null, numbers, and a tagged number."""

        a: Int16
        b: String | None
        c: list[Int32]
        d: Int8 = tagged(200, since=1, default=0)

    small = Small(a=258, b="hi", c=[1], d=7)
    assert wire(small, 0) == b"\x01\x02\x00\x02hi\x00\x00\x00\x01\x00\x00\x00\x01"
    assert wire(small, 1) == b"\x01\x02\x03hi\x02\x00\x00\x00\x01\x01\xc8\x01\x01\x07"
    assert wire(Small(a=0, b=None, c=[]), 0) == b"\0\0\xff\xff\0\0\0\0"
    assert wire(Small(a=0, b=None, c=[]), 1) == b"\0\0\0\1\0"


def test_a_null_struct_is_one_byte() -> None:
    @message(key=-1, versions=(0, 0), flexible=9)
    class Holder:
        """Perhaps a point."""

        point: Point | None

    assert wire(Holder(point=None), 0) == b"\xff"
    assert wire(Holder(point=Point(x=1)), 0) == b"\x01\x00\x00\x00\x01"
    assert decode(Holder, 0, b"\xff") == (Holder(point=None), 1)
    assert decode(Holder, 0, b"\x01\x00\x00\x00\x01") == (Holder(point=Point(x=1)), 5)


def test_null_is_refused_by_the_versions_that_do_not_know_it() -> None:
    assert decode(Zoo, 1, wire(Zoo(label=None), 1))[0].label is None
    forbidden = wire(Zoo(id=UUID(int=7)), 0).replace(b"\7\0\0", b"\7\xff\xff", 1)
    with pytest.raises(Malformed, match="label"):
        decode(Zoo, 0, forbidden)


def test_records_are_borrowed_and_bytes_are_owned() -> None:
    frame = bytearray(wire(Zoo(blob=b"own", records=b"lent"), 2))
    found, _ = decode(Zoo, 2, memoryview(frame))
    frame[:] = bytes(len(frame))
    assert found.blob == b"own"
    assert bytes(found.records or b"") == b"\0\0\0\0"


def test_records_are_sent_as_they_lie() -> None:
    first, second = bytearray(b"a" * 500), memoryview(b"b" * 500)
    parts = encode(Zoo(records=Slices([first, second])), 3)
    assert any(part is first for part in parts)
    assert any(part is second for part in parts)
    assert decode(Zoo, 3, b"".join(parts))[0].records == b"a" * 500 + b"b" * 500


def test_lists_that_were_absent_are_not_shared() -> None:
    one, two = (decode(Zoo, 0, wire(Zoo(), 0))[0] for _ in range(2))
    one.marks.append(Point(x=1))
    assert two.marks == []


def test_unknown_tags_are_skipped_and_kept_if_asked() -> None:
    newer = wire(Zoo(note="n"), 3)
    known_end = newer.index(b"\x01\x02\x02\x02n")
    frame = newer[:known_end] + b"\x03\x02\x02\x02n" + b"\x09\x03abc" + b"\xc8\x01\x00"
    assert decode(Zoo, 3, frame) == (Zoo(note="n"), len(frame))
    kept: list[UnknownTag] = []
    decode(Zoo, 3, frame, 0, kept)
    assert kept == [UnknownTag("Zoo", 9, b"abc"), UnknownTag("Zoo", 200, b"")]


@pytest.mark.parametrize(
    ("tags", "why"),
    [
        (b"\x02\x02\x02\x02n\x02\x02\x02n", "follows"),  # the same twice
        (b"\x02\x09\x00\x02\x02\x02n", "follows"),  # descending
        (b"\x01\x02\x03\x02nn", "another length"),  # longer than its value
        (b"\x01\x02\x01\x02n", "another length"),  # shorter than its value
        (b"\x01\x09\x7f", "beyond the frame"),  # longer than the frame
        (b"\x01\xff\xff\xff\xff\xff\x01\x00", "five bytes"),  # a tag without an end
        (b"\xff\xff\xff\xff\x0f", "exceeds"),  # four milliard tags
        (b"\x05\x09\x00", "Zoo v3"),  # fewer than promised
    ],
)
def test_a_damaged_tag_buffer_is_malformed(tags: bytes, why: str) -> None:
    whole = wire(Zoo(), 3)
    with pytest.raises(Malformed, match=why):
        decode(Zoo, 3, whole[:-1] + tags)


@pytest.mark.parametrize("version", [0, 3])
def test_a_claimed_length_allocates_nothing(version: int) -> None:
    """The spot where `numbers` begins claims two milliard numbers, points or words."""
    huge = b"\xff\xff\xff\xff\x07" if version >= 2 else b"\x7f\xff\xff\xff"
    empty = wire(Zoo(), version)
    spec_of(Zoo).decoder(version)
    for position in range(len(empty)):
        tracemalloc.start()
        try:
            decode(Zoo, version, empty[:position] + huge + empty[position + 1 :])
        except Malformed:
            pass
        finally:
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        assert peak < 50_000, f"{peak} bytes for a length claimed at {position}"


@pytest.mark.parametrize(("version", "least"), [(0, 4), (1, 8), (2, 9)])
def test_an_array_is_held_against_the_least_its_elements_need(version: int, least: int) -> None:
    """Refused before the first element is made, not after the last that fits."""

    @message(key=-1, versions=(0, 2), flexible=2)
    class Line:
        """Points."""

        points: list[Point]

    count = b"\4" if version >= 2 else b"\0\0\0\3"
    fits = count + bytes(3 * least) + b"\0" * (version >= 2)
    assert len(decode(Line, version, fits)[0].points) == 3
    with pytest.raises(Malformed, match="points is longer than the frame"):
        decode(Line, version, (count + bytes(3 * least))[:-1])


@pytest.mark.parametrize("version", range(4))
def test_a_frame_cut_anywhere_is_malformed(version: int) -> None:
    whole = wire(busy(version), version)
    for end in range(len(whole)):
        with pytest.raises(Malformed, match="the frame"):  # not what Python says of an index
            decode(Zoo, version, whole[:end])
        with pytest.raises(Malformed):  # what lies behind a view is not read
            decode(Zoo, version, memoryview(whole)[:end])


def test_text_is_no_longer_than_kafkas_strings_though_its_length_could_be() -> None:
    """What is read in a flexible version may be stored in one whose lengths have two bytes."""
    longest = "a" * 32_767
    assert decode(Zoo, 3, wire(Zoo(label=longest), 3))[0].label == longest
    with pytest.raises(Malformed, match="label is longer than 32767 bytes"):
        decode(Zoo, 3, wire(Zoo(label=longest + "a"), 3))
    blob = bytes(40_000)
    assert decode(Zoo, 3, wire(Zoo(blob=blob), 3))[0].blob == blob


def test_text_that_is_no_utf8_is_malformed() -> None:
    with pytest.raises(Malformed, match="a string is not UTF-8"):
        decode(Zoo, 2, wire(Zoo(label="ab"), 2).replace(b"ab", b"\xff\xfe"))


def test_a_version_that_was_never_declared_is_a_fault_of_ours() -> None:
    with pytest.raises(AssertionError, match="no version 4"):
        encode(Zoo(), 4)


def test_a_traceback_shows_the_emitted_line() -> None:
    try:
        spec_of(Zoo).decoder(0)(b"", 0, None)
    except packing.error as error:
        assert "unpack_from_" in "".join(traceback.format_exception(error))
    assert "def decode_Zoo_v0(" in source_of(spec_of(Zoo).decoder(0))


VARINTS = [
    (0, b"\0"),
    (127, b"\x7f"),
    (128, b"\x80\1"),
    (300, b"\xac\2"),
    (16_383, b"\xff\x7f"),
    (16_384, b"\x80\x80\1"),
    (2_097_151, b"\xff\xff\x7f"),
    (2_097_152, b"\x80\x80\x80\1"),
    (2**31 - 1, b"\xff\xff\xff\xff\7"),
]


@pytest.mark.parametrize(("value", "raw"), VARINTS)
def test_varints(value: int, raw: bytes) -> None:
    assert varint(value) == raw
    assert read_varint(raw, 0) == (value, len(raw))


def test_zigzag_keeps_small_numbers_small() -> None:
    assert [zigzag(n) for n in (0, -1, 1, -2, 2)] == [0, 1, 2, 3, 4]
    for n in (0, -1, 1, 2**63 - 1, -(2**63)):
        assert unzigzag(zigzag(n)) == n

"""Pure parts of `produce` and `consume`: times, where to begin, templates, lines, pieces of input."""

import json
import time
from typing import Any

import pytest

from strandline.base.types import TopicPartition
from strandline.cli.console import Failure, WrongUsage
from strandline.cli.records.input import Outgoing, Shape, record
from strandline.cli.records.output import Part, Style, lines, rows, template
from strandline.cli.records.positions import Kind, Start, offsets, start
from strandline.cli.records.text import Format, as_text, from_text, unescaped
from strandline.cli.times import duration_ms, instant_ms, shown
from strandline.client.results import ConsumerRecord, TimestampType

HOUR_MS = 3_600_000
NOW_MS = 1_800_000_000_000
P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("90s", 90_000),
        ("1h30m", 5_400_000),
        ("500ms", 500),
        ("2d", 48 * HOUR_MS),
        ("1w", 168 * HOUR_MS),
        ("PT1H30M", 5_400_000),
        ("P1DT0.5S", 24 * HOUR_MS + 500),
        ("P2W", 336 * HOUR_MS),
        *((wrong, None) for wrong in ("", "1", "h", "1x", "P", "PT", "-1h", "1h 2m")),
    ],
)
def test_durations(text: str, ms: int | None) -> None:
    assert duration_ms(text) == ms


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("1700000000000", 1_700_000_000_000),
        ("2026-01-01", 1_767_225_600_000),
        ("2026-01-01T00:00:00", 1_767_225_600_000),
        ("2026-01-01T00:00:00.250Z", 1_767_225_600_250),
        ("2026-01-01 01:00:00+01:00", 1_767_225_600_000),
        *((wrong, None) for wrong in ("", "now", "2026-13-01", "-5", "1h")),
    ],
)
def test_times_are_utc_where_nothing_else_is_said(
    text: str, ms: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as there:
        there.setenv("TZ", "Asia/Tokyo")
        time.tzset()
        assert instant_ms(text) == ms
    time.tzset()


def test_a_time_is_shown_in_utc() -> None:
    assert shown(1_767_225_600_250) == "2026-01-01T00:00:00.250Z"
    assert shown(1 << 62) == str(1 << 62)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("earliest", Start(Kind.EARLIEST)),
        ("end", Start(Kind.LATEST)),
        ("17", Start(Kind.OFFSET, 17)),
        ("-10", Start(Kind.FROM_END, 10)),
        ("-1h", Start(Kind.TIME, NOW_MS - HOUR_MS)),
        ("@1700000000000", Start(Kind.TIME, 1_700_000_000_000)),
        ("@2026-01-01", Start(Kind.TIME, 1_767_225_600_000)),
        ("-9999w", Start(Kind.TIME, 0)),
    ],
)
def test_where_to_begin(text: str, meant: Start) -> None:
    assert start(text, NOW_MS) == meant


@pytest.mark.parametrize("text", ["", "-", "@", "@soon", "first", "1h", "--1", "9" * 19])
def test_where_nobody_can_begin(text: str) -> None:
    with pytest.raises(WrongUsage, match="expected an offset; -10 for"):
        start(text, NOW_MS)


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (Start(Kind.EARLIEST), {P0: 5, P1: 0}),
        (Start(Kind.LATEST), {P0: 20, P1: 3}),
        (Start(Kind.OFFSET, 7), {P0: 7, P1: 7}),
        (Start(Kind.FROM_END, 4), {P0: 16, P1: 0}),
        (Start(Kind.FROM_END, 100), {P0: 5, P1: 0}),
        (Start(Kind.TIME, 9), {P0: 12, P1: 3}),
    ],
)
def test_first_offsets(where: Start, expected: dict[TopicPartition, int]) -> None:
    assert offsets(where, {P0: 5, P1: 0}, {P0: 20, P1: 3}, {P0: 12, P1: None}) == expected


def taken(**other: Any) -> ConsumerRecord:
    given = {"key": b"k", "value": b"v", "headers": (("a", b"1"), ("b", None)), **other}
    return ConsumerRecord("t", 3, 42, 1_767_225_600_250, **given)


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        (r"%k=%s\n", b"k=v\n"),
        (r"%t-%p@%o %T %D", b"t-3@42 1767225600250 2026-01-01T00:00:00.250Z"),
        (r"%h %K %V %%\x00\t", b"a=1,b=NULL 1 1 %\0\t"),
        ("", b""),
    ],
)
def test_templates(text: str, printed: bytes) -> None:
    assert template(text, b"NULL")(taken()) == printed


def test_a_template_passes_bytes_on_and_tells_none_from_empty() -> None:
    every = bytes(range(256))
    show = template("%s|%k|%S|%K", b"none")
    assert show(taken(value=every, key=None)) == every + b"|none|256|-1"
    assert show(taken(value=None, key=b"")) == b"none||-1|0"


@pytest.mark.parametrize("text", ["%", "%x", r"\q", "a\\"])
def test_templates_that_are_wrong(text: str) -> None:
    with pytest.raises(WrongUsage, match="is unknown: expected"):
        template(text, b"")


def test_lines() -> None:
    assert lines(Style())(taken()) == b"v\n"
    assert lines(Style())(taken(value=b"\xff")) == b"base64:/w==\n"
    assert lines(Style(Format.bytes, delimiter=b""))(taken(value=b"\xff\r\n")) == b"\xff\r\n"
    assert lines(Style(null=b"(none)"))(taken(value=None)) == b"(none)\n"
    every = Style(parts=frozenset(Part), separator=b"|")
    assert lines(every)(taken()) == b"CreateTime:1767225600250|Partition:3|Offset:42|a:1,b:null|k|v\n"
    appended = taken(timestamp_type=TimestampType.LOG_APPEND_TIME, headers=(), key=None)
    assert lines(every)(appended).startswith(b"LogAppendTime:") and b"|NO_HEADERS|null|" in lines(every)(
        appended
    )
    assert lines(Style(Format.json))(taken(value=b'{"a": [1]}')) == b'{"a": [1]}\n'
    with pytest.raises(Failure, match="t-3, offset 42 is not msgpack"):
        lines(Style(Format.msgpack))(taken(value=b"\xc1"))


@pytest.mark.parametrize("data", [b"", b"text", b"\xff\0", "ü".encode(), b"base64:AAAA", None])
def test_what_is_printed_as_json_is_read_back(data: bytes | None) -> None:
    before = taken(key=data, value=data, headers=(("h", data),))
    line = rows(Format.text)(before)
    shape = Shape(as_rows=True, same_partitions=True)
    after = record(line, shape, 1)
    assert after == Outgoing(data, data, (("h", data),), before.timestamp, before.partition)
    assert record(line, shape._replace(same_partitions=False), 1).partition is None


def test_text_that_only_looks_like_base64_survives() -> None:
    shown = as_text(b"base64:?")
    assert shown is not None and from_text(shown, "here") == b"base64:?"
    with pytest.raises(WrongUsage, match="here: expected base64"):
        from_text("base64:?", "here")


@pytest.mark.parametrize(
    ("piece", "shape", "key", "value"),
    [
        (b"v", Shape(), None, b"v"),
        (b"v", Shape(key=b"k"), b"k", b"v"),
        (b"a:b:c", Shape(key_separator=b":"), b"a", b"b:c"),
        (b"abc", Shape(key_separator=b":", key=b"k"), b"k", b"abc"),
        (b"k:NULL", Shape(key_separator=b":", null=b"NULL"), b"k", None),
        (b"NULL:v", Shape(key_separator=b":", null=b"NULL"), None, b"v"),
        (b"NULL", Shape(null=b"NULL", format=Format.json), None, None),
        (b'{"a": 1}', Shape(format=Format.json), None, b'{"a":1}'),
    ],
)
def test_keys_values_and_tombstones(
    piece: bytes, shape: Shape, key: bytes | None, value: bytes | None
) -> None:
    made = record(piece, shape, 1)
    assert (made.key, made.value) == (key, value)


def test_options_go_before_what_a_row_says() -> None:
    row = json.dumps(
        {"key": None, "value": {"a": 1}, "timestamp": 5, "partition": 2, "headers": [["x", "y"]]}
    )
    shape = Shape(Format.json, as_rows=True, same_partitions=True, headers=(("z", b"1"),), key=b"k")
    assert record(row.encode(), shape, 1) == Outgoing(b"k", b'{"a":1}', (("x", b"y"), ("z", b"1")), 5, 2)
    assert record(row.encode(), shape._replace(timestamp_ms=9, partition=0), 1)[3:] == (9, 0)


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ("{", "input line 7 is not JSON"),
        ("[]", "input line 7: expected an object with `value`"),
        ('{"value": 1}', "input line 7, value is 1: expected text or null"),
        ('{"value": "v", "timestamp": "now"}', "timestamp is 'now': expected a number"),
        ('{"value": "v", "partition": true}', "partition is True: expected a number"),
        ('{"value": "v", "headers": [1]}', "headers are"),
    ],
)
def test_rows_that_are_wrong(row: str, why: str) -> None:
    with pytest.raises(WrongUsage, match=why):
        record(row.encode(), Shape(as_rows=True), 7)


def test_escapes() -> None:
    assert unescaped(r"a\n\t\0\\\xff", "-x") == b"a\n\t\0\\\xff"
    with pytest.raises(WrongUsage, match=r"-x: \\x is unknown"):
        unescaped(r"\xgg", "-x")

"""Records one by one: what a builder writes anybody reads, and damage is noticed."""

import contextlib
import random
import struct
import warnings

import pytest
from aiokafka.record._crecords import DefaultRecordBatchBuilder as AioBuilder
from aiokafka.record._crecords import MemoryRecords as AioRecords
from aiokafka.record.default_records import _DefaultRecordBatchBuilderPy as AioPythonBuilder
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.protocol.batches import HEADER_SIZE, read_header, seal, stamp
from strandline.protocol.compression import Codec
from strandline.protocol.errors import ApiError, CorruptMessage
from strandline.protocol.primitives import Malformed
from strandline.protocol.records import BatchBuilder, Record, first_without_key, iterate

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python's way to load its schemas
    from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaBuilder
    from kafka.record.memory_records import MemoryRecords as KafkaRecords

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
binaries = st.none() | st.binary(max_size=300)
record_values = st.tuples(
    st.integers(-(2**40), 2**45), binaries, binaries, st.lists(st.tuples(texts, binaries), max_size=4)
)
record_lists = st.lists(record_values, min_size=1, max_size=30)
Values = list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]]


def build(values: Values, codec: Codec = Codec.NONE, base_offset: int = 0) -> bytes:
    builder = BatchBuilder(codec)
    for timestamp, key, value, headers in values:
        builder.append(timestamp, key, value, headers)
    data = bytearray(builder.build())
    stamp(data, 0, base_offset, 3)
    return bytes(data)


def expected(values: Values, base_offset: int = 0) -> list[Record]:
    return [
        Record(base_offset + index, timestamp, key, value, tuple(headers))
        for index, (timestamp, key, value, headers) in enumerate(values)
    ]


@settings(deadline=None)
@given(record_lists, st.sampled_from(list(Codec)), st.integers(0, 2**50))
def test_records_come_back(values: Values, codec: Codec, base_offset: int) -> None:
    data = build(values, codec, base_offset)
    assert list(iterate(data)) == expected(values, base_offset)
    assert list(iterate(memoryview(data + data[:-1]))) == expected(values, base_offset)


def test_long_batches_and_long_fields_leave_the_table_of_varints() -> None:
    values: Values = [(1000 + 7 * index, b"k" * (index % 3), b"v", []) for index in range(9000)]
    values[5] = (1000, b"k" * 70_000, b"v" * (1 << 21), [("h" * 300, b"x" * 5000)])
    assert list(iterate(build(values))) == expected(values)


def test_the_size_is_known_while_building() -> None:
    builder = BatchBuilder(producer_id=1, producer_epoch=2, base_sequence=3)
    for index in range(200):
        assert builder.append(index, None if index % 2 else b"key", b"x" * index, [("a", None)]) == index
        assert builder.size == len(builder.build())
    assert read_header(builder.build()).max_timestamp == 199


def test_a_codec_that_does_not_help_is_left_out() -> None:
    builder = BatchBuilder(Codec.ZSTD)
    builder.append(1, None, random.Random(1).randbytes(1000))
    assert read_header(builder.build()).codec == Codec.NONE
    builder.append(1, None, bytes(1000))
    assert read_header(builder.build()).codec == Codec.ZSTD


def peer_rows(reader: object) -> list[Record]:
    rows = []
    while reader.has_next():  # type: ignore[attr-defined]
        batch = reader.next_batch()  # type: ignore[attr-defined]
        assert batch.validate_crc()
        rows += [Record(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in batch]
    return rows


STORY: Values = [
    (1_700_000_000_000, b"first", b"value", []),
    (1_700_000_000_005, None, b"x" * 500, [("trace", b"abc"), ("none", None)]),
    (1_699_999_999_000, b"", None, []),
    (1_700_000_900_000, b"k" * 200, b"", [("ключ", b"\x00\xff")]),
] * 20


@pytest.mark.parametrize("codec", list(Codec))
def test_aiokafka_reads_ours(codec: Codec) -> None:
    assert peer_rows(AioRecords(build(STORY, codec, 70))) == expected(STORY, 70)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_kafka_python_reads_ours(codec: Codec) -> None:
    assert peer_rows(KafkaRecords(build(STORY, codec, 70))) == expected(STORY, 70)


@pytest.mark.parametrize(
    ("builder_class", "codec"),
    [
        *((builder, codec) for builder in (AioBuilder, AioPythonBuilder) for codec in Codec),
        (KafkaBuilder, Codec.NONE),
        (KafkaBuilder, Codec.GZIP),  # for the others kafka-python wants libraries of its own
    ],
)
def test_we_read_theirs(builder_class: type, codec: Codec) -> None:
    builder = builder_class(
        magic=2,
        compression_type=int(codec),
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 24,
    )
    for index, (timestamp, key, value, headers) in enumerate(STORY):
        assert builder.append(index, timestamp=timestamp, key=key, value=value, headers=headers) is not None
    theirs = bytes(builder.build())
    assert read_header(theirs).codec == codec
    assert list(iterate(theirs)) == expected(STORY)
    if codec == Codec.NONE:
        assert theirs[HEADER_SIZE:] == build(STORY)[HEADER_SIZE:]


def test_a_flipped_bit_is_found_unless_nobody_looks() -> None:
    data = bytearray(build(STORY))
    data[-2] ^= 1
    with pytest.raises(CorruptMessage):
        list(iterate(data))
    assert len(list(iterate(data, verify=False))) == len(STORY)


@pytest.mark.parametrize("count", [2**31 - 1, len(STORY) + 1, len(STORY) - 1, 0])
def test_a_lying_count_is_malformed_even_with_a_good_seal(count: int) -> None:
    for codec in Codec:
        data = bytearray(build(STORY, codec))
        struct.pack_into(">i", data, 57, count)
        seal(data, 0, len(data))
        with pytest.raises(Malformed):
            list(iterate(data))


def test_a_bomb_is_stopped_at_the_cap() -> None:
    data = build([(1, None, bytes(1 << 22), [])], Codec.ZSTD)
    assert len(data) < 1000
    with pytest.raises(Malformed):
        list(iterate(data, cap=1 << 20))


def test_a_record_without_a_key_is_found() -> None:
    assert first_without_key(build(STORY)) == 1
    assert first_without_key(build(STORY[:1])) is None


@settings(max_examples=300, deadline=None)
@given(record_lists, st.sampled_from(list(Codec)), st.data())
def test_damage_is_malformed_or_decodes(values: Values, codec: Codec, data: st.DataObject) -> None:
    batch = bytearray(build(values[:6], codec))
    for _ in range(data.draw(st.integers(1, 4))):
        batch[data.draw(st.integers(0, len(batch) - 1))] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        seal(batch, 0, len(batch))
    with contextlib.suppress(Malformed, ApiError):
        list(iterate(batch, cap=1 << 20))

"""The offline reader against the plain reader of batches: on logs of ours, of Kafka's, and on damage."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from strandline.base.types import TopicPartition
from strandline.protocol.batches import read_header, stamp
from strandline.protocol.records import BatchBuilder, Record, iterate
from strandline.storage import reader
from strandline.storage.config import StorageConfig, TopicConfig
from strandline.storage.directories.log_manager import Logs
from strandline.storage.disk import RealDisk
from strandline.storage.reader import Damaged, Reader, read_partition
from strandline.storage.segment.file_names import file_name
from strandline.storage.segment_files import SegmentFile, base_offsets, floor_of

ROOT = Path(__file__).resolve().parents[2]
KAFKA = ROOT / "tests" / "fixtures" / "kafka"
T0 = TopicPartition("t", 0)
START_MS = 1_700_000_000_000


def batch_of(records: int, base: int, *, codec: int = 0, control: bool = False, size: int = 10) -> bytes:
    """A batch with some nulls and headers in it; control batches have records, too."""
    builder = BatchBuilder(codec=codec, control=control)
    for number in range(records):
        key = None if number % 3 == 0 else b"k" * (number % 5)
        value = None if number % 4 == 1 else b"%d" % (base + number) * size
        builder.append(START_MS + base + number, key, value, [("h", None), ("i", b"v")][: number % 3])
    batch = bytearray(builder.build())
    stamp(batch, 0, base, 0)
    return bytes(batch)


def write(directory: Path, segments: Sequence[tuple[int, Sequence[bytes]]]) -> list[Record]:
    """Segments of batches as files without indexes; what a reader has to find in them."""
    directory.mkdir(parents=True, exist_ok=True)
    for old in directory.iterdir():
        old.unlink()
    wanted: list[Record] = []
    for base, batches in segments:
        (directory / file_name(base, ".log")).write_bytes(b"".join(batches))
        wanted += [r for b in batches if not read_header(b).is_control for r in iterate(b)]
    return wanted


@st.composite
def logs(draw: st.DrawFn) -> list[tuple[int, list[bytes]]]:
    """Segments with batches of all codecs, gaps between and within them, and control batches."""
    offset, segments = draw(st.integers(0, 5)), []
    for _ in range(draw(st.integers(1, 3))):
        base, batches = offset, []
        for _ in range(draw(st.integers(0, 4))):
            offset += draw(st.sampled_from([0, 0, 0, 7]))
            count = draw(st.integers(1, 12))
            batches.append(
                batch_of(count, offset, codec=draw(st.integers(0, 4)), control=draw(st.integers(0, 5)) == 0)
            )
            offset += count
        segments.append((base, batches))
        offset += draw(st.integers(1, 3))
    return segments


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(logs(), st.integers(0, 60), st.integers(0, 60), st.integers(70, 500))
def test_reads_what_the_plain_reader_reads(
    tmp_path: Path, segments: list[tuple[int, list[bytes]]], start: int, end: int, window: int
) -> None:
    wanted = write(tmp_path / "t-0", segments)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SegmentFile, "window_bytes", window)
        assert list(read_partition(tmp_path / "t-0")) == wanted
        some = [record for record in wanted if start <= record.offset < end]
        assert list(read_partition(tmp_path / "t-0", start=start, end=end)) == some
        assert list(read_partition(tmp_path / "t-0", start=start, high_watermark=start)) == []
        table = Reader(tmp_path).to_arrow(T0, start=start, end=end)
        assert table["offset"].to_pylist() == [record.offset for record in some]
        assert table["value"].to_pylist() == [record.value for record in some]


class Stopped:
    """A wall clock that stands still."""

    def wall_ms(self) -> int:
        return START_MS


def written(root: Path, count: int, **config: int) -> Logs:
    """A log of ours with a batch of ten for each ten offsets, over several segments."""
    storage = StorageConfig(segment_bytes=2000, index_interval_bytes=200, **config)
    opened = Logs.open(
        [str(root)], RealDisk(), storage, Stopped(), clean=True, before_loss=lambda _p, _r: None
    )
    log = opened.create(T0, None, TopicConfig.of(storage))
    for base in range(0, count, 10):
        batch = bytearray(batch_of(10, 0, codec=base // 10 % 5, size=3))
        log.append(memoryview(batch), read_header(batch), 0, START_MS)
    return opened


def offsets(records: Any) -> list[int]:
    return [record.offset for record in records]


def test_a_log_of_ours_between_its_checkpoints(tmp_path: Path) -> None:
    opened = written(tmp_path, 200)
    opened.logs[T0].move_start(35)
    opened.checkpoint_high_watermarks(lambda: {T0: 170})
    opened.checkpoint_recovery_points()
    logs = Reader(tmp_path)
    assert logs.partitions() == [T0]
    assert offsets(logs.records(T0)) == list(range(35, 170)), "of a running broker, to the high watermark"
    opened.close()
    assert offsets(logs.records(T0)) == list(range(35, 170))
    assert offsets(logs.records(T0, committed_only=False)) == list(range(35, 200))
    assert offsets(logs.records(T0, start=3, end=40)) == list(range(35, 40))
    assert offsets(read_partition(tmp_path / "t-0", high_watermark=50)) == list(range(35, 50))
    assert logs.to_arrow(T0)["offset"].to_pylist() == list(range(35, 170))
    elsewhere = tmp_path / "copy" / "t-0"
    elsewhere.parent.mkdir()
    (tmp_path / "t-0").rename(elsewhere)
    first = base_offsets(elsewhere)[0]
    assert offsets(read_partition(elsewhere)) == list(range(first, 200)), "no checkpoint knows a copy"


def test_an_index_shortens_the_way_and_is_not_believed_blindly(tmp_path: Path) -> None:
    written(tmp_path, 40).close()
    log = tmp_path / "t-0" / file_name(base_offsets(tmp_path / "t-0")[0], ".log")
    with SegmentFile(log) as segment:
        floor = floor_of(segment, 0, 39)
        assert floor.position > 0 and floor.entry is not None and floor.entry[0] <= 39
    index = log.with_suffix(".index")
    index.write_bytes(b"".join(b"\0\0\0\1" + bytes([0, 0, 0, at]) for at in (1, 2, 3)))
    with SegmentFile(log) as segment:
        assert floor_of(segment, 0, 39).position == 0
    assert offsets(read_partition(log.parent, start=25)) == list(range(25, 40))


def test_batches_of_arrow_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "ROWS_MAX", 20)
    written(tmp_path, 100).close()
    batches = list(Reader(tmp_path).arrow_batches(T0, names=["offset"], committed_only=False))
    assert sum(batch.num_rows for batch in batches) == 100
    assert max(batch.num_rows for batch in batches) <= 20
    table = Reader(tmp_path).to_arrow(T0, start=100, committed_only=False, include_headers=True)
    assert table.num_rows == 0 and "headers" in table.schema.names


def test_damage_is_told_after_all_that_is_good(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    batches = [batch_of(5, base) for base in (0, 5, 10)]
    write(directory, [(0, batches), (15, [batch_of(5, 15)])])
    path = directory / file_name(0, ".log")
    whole = path.read_bytes()
    at = len(batches[0]) + len(batches[1])

    def read(data: bytes) -> tuple[list[int], Damaged]:
        path.write_bytes(data)
        seen: list[int] = []
        with pytest.raises(Damaged) as caught:
            seen.extend(record.offset for record in _stepwise(directory, seen))
        return seen, caught.value

    seen, error = read(whole[:-1] + bytes([whole[-1] ^ 1]))
    assert seen == list(range(10)) and error.position == at and "checksum" in str(error)
    assert str(path) in str(error)
    assert offsets(read_partition(directory, end=10)) == list(range(10)), "nobody asked for the bad one"
    seen, error = read(whole[:-9])
    assert seen == list(range(10)) and "another segment follows" in str(error)
    seen, error = read(whole[:at] + bytes(200))
    assert seen == list(range(10)) and (error.position, "magic 0" in str(error)) == (at, True)
    seen, error = read(batches[1] + batches[0])
    assert "expected" in str(error)
    with pytest.raises(FileNotFoundError):
        list(read_partition(tmp_path))


def _stepwise(directory: Path, seen: list[int]) -> Any:
    for record in read_partition(directory):
        seen.append(record.offset)
    return ()


def test_a_torn_tail_ends_the_log_unless_more_was_committed(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    write(directory, [(0, [batch_of(5, 0), batch_of(5, 5)[:-1]])])
    assert offsets(read_partition(directory)) == list(range(5))
    assert offsets(read_partition(directory, high_watermark=5)) == list(range(5))
    with pytest.raises(Damaged, match="below its high watermark 7"):
        list(read_partition(directory, high_watermark=7))
    (tmp_path / "replication-offset-checkpoint").write_text("0\nx\n")
    with pytest.raises(ValueError, match="replication-offset-checkpoint"):
        list(read_partition(directory))


def test_segments_come_and_go_while_they_are_read(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    write(directory, [(base, [batch_of(5, base)]) for base in (0, 5, 10, 15)])
    records = read_partition(directory)
    assert next(records).offset == 0
    (directory / file_name(5, ".log")).unlink()
    merged = batch_of(5, 0) + batch_of(2, 5) + batch_of(5, 10)  # compacted into one
    (directory / file_name(10, ".log")).unlink()
    (directory / file_name(0, ".log")).write_bytes(merged)
    assert offsets(records) == [1, 2, 3, 4, 5, 6, *range(10, 20)]
    records = read_partition(directory)
    assert next(records).offset == 0
    (directory / file_name(20, ".log")).write_bytes(batch_of(3, 20))
    assert offsets(records)[-1] == 22, "a segment rolled meanwhile is read, too"


def as_told(record: Record) -> list[Any]:
    """A record in the form of records.json."""
    texts = [None if data is None else data.decode(errors="replace") for data in (record.key, record.value)]
    headers = [[name, None if value is None else value.decode()] for name, value in record.headers]
    return [record.offset, record.timestamp, *texts, headers]


def test_a_cleaned_segment_counts_before_it_has_its_name(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    write(directory, [(base, [batch_of(5, base)]) for base in (0, 5, 10)])
    swap = directory / f"{file_name(0, '.log')}.swap"
    swap.write_bytes(batch_of(3, 0) + batch_of(5, 5))
    (directory / file_name(0, ".log")).rename(directory / f"{file_name(0, '.log')}.deleted")
    wanted = [0, 1, 2, *range(5, 15)]
    assert offsets(read_partition(directory)) == wanted, "the old segment at 5 is still there"
    (directory / file_name(5, ".log")).unlink()
    assert offsets(read_partition(directory)) == wanted
    records = read_partition(directory)
    assert next(records).offset == 0
    swap.rename(directory / file_name(0, ".log"))
    assert offsets(records) == wanted[1:]
    write(directory, [(0, [batch_of(5, 0)])])
    for name in (f"{file_name(0, '.log')}.swap", f"{file_name(0, '.index')}.cleaned"):
        (directory / name).write_bytes(b"")  # not finished: it does not count
    assert offsets(read_partition(directory)) == list(range(5))


def test_what_kafka_wrote() -> None:
    wanted: dict[str, list[list[Any]]] = json.loads((KAFKA / "records.json").read_text())
    logs = Reader(KAFKA / "clean")
    told = {str(partition): list(map(as_told, logs.records(partition))) for partition in logs.partitions()}
    shown = {name: rows for name, rows in wanted.items() if name in told}
    assert len(shown) > 5
    committed = shown.pop("transactions-0")  # its consumer saw no more than these
    assert {name: told[name] for name in shown} == shown
    assert all(row in told["transactions-0"] for row in committed)
    for partition in logs.partitions():
        assert isinstance(logs.to_arrow(partition), pa.Table)


def test_the_documented_example(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    opened = written(tmp_path, 300)
    opened.checkpoint_high_watermarks(lambda: {T0: 250})
    opened.close()
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "reading.md").read_text(), re.DOTALL)
    code = code.replace("/var/lib/strandline/logs", str(tmp_path)).replace("orders", "t")
    exec(compile(code, "reading.md", "exec"), {})
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == repr([T0]) and lines[1].startswith("100 ")
    assert sum(map(int, lines[101:-1])) == 250 and lines[-1] == "300"

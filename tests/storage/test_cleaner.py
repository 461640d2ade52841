"""The cleaner against a plain model: what stays, byte for byte and offset for offset."""

from collections.abc import Sequence
from typing import Any, cast

from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.protocol.batches import headers
from strandline.protocol.compression import Codec
from strandline.protocol.records import Record
from strandline.storage.cleaning.clean import clean
from strandline.storage.cleaning.job import Cleaned, Done, Job, Report
from strandline.storage.cleaning.offset_map import SLOT_BYTES
from strandline.storage.disk import Disk
from strandline.storage.segment.file_names import CLEANED, INDEX, LOG, TIME_INDEX, file_name
from strandline.storage.segment.index import OffsetIndex, TimeIndex
from tests.storage.cleaner_model import (
    ABORT,
    APPEND_TIME,
    COMMIT,
    CONTROL,
    HORIZON,
    MARKER,
    TRANSACTIONAL,
    Batch,
    Task,
    committed_view,
    compacted,
    decode,
    encode,
)
from tests.storage.memory_disk import MemoryDisk

NOW_MS = 1_700_000_000_000
SECRET = bytes(range(16)).hex()
GIB = 1 << 30


def log_of(segments: Sequence[list[Batch]]) -> MemoryDisk:
    return MemoryDisk({path_of(s): b"".join(map(encode, s)) for s in segments})


def path_of(segment: list[Batch], suffix: str = LOG) -> str:
    return f"/log/{file_name(segment[0].base_offset, suffix)}"


def job_of(disk: MemoryDisk, task: Task, **changed: Any) -> Job:
    told: dict[str, Any] = {
        "directory": "/log",
        "sources": [(s[0].base_offset, len(disk.files[path_of(s)])) for s in task.segments],
        "first_dirty": task.first_dirty,
        "later": [(s[0].base_offset, len(disk.files[path_of(s)])) for s in task.later],
        "upper": task.upper,
        "committed": task.committed,
        "now_ms": task.now_ms,
        "delete_retention_ms": task.retention_ms,
        "segment_bytes": GIB,
        "index_bytes_max": 1 << 20,
        "index_interval_bytes": 200,
        "map_bytes": 1 << 14,
        "load_factor": 0.9,
        "bytes_per_second": 1e300,
        "producers": [(producer, *last) for producer, last in task.producers.items()],
        "secret": SECRET,
    }
    return Job(**{**told, **changed})


def run(disk: MemoryDisk, job: Job) -> list[Report]:
    return list(clean(cast(Disk, disk), job, lambda nbytes: None))


def result(disk: MemoryDisk, task: Task, reports: list[Report]) -> list[bytes]:
    """The log's segments as they stand after the swap, in order."""
    paths = {s[0].base_offset: path_of(s) for s in task.segments}
    for report in reports:
        if isinstance(report, Cleaned):
            for base in report.bases[1:]:
                del paths[base]
            paths[report.bases[0]] += CLEANED
    return [bytes(disk.files[paths[base]]) for base in sorted(paths)]


# -- any log

KEYS = [b"", b"a", b"key-b", b"a key of more than sixteen bytes", b"k" * 70, None]
record_specs = st.tuples(
    st.sampled_from(KEYS),
    st.sampled_from([None, b"", b"v", b"w" * 300]),
    st.integers(-5, 5),
    st.sampled_from([(), (("h", b"x"), ("n", None))]),
    st.booleans(),  # compacted away before
)
batch_specs = st.fixed_dictionaries(
    {
        "kind": st.sampled_from(["data"] * 6 + ["commit", "abort", "empty", "spent marker", "other control"]),
        "producer": st.sampled_from([-1, 1, 2]),
        "transactional": st.booleans(),
        "codec": st.sampled_from(list(Codec)),
        "append_time": st.booleans(),
        "horizon": st.sampled_from([None, NOW_MS - 5, NOW_MS, NOW_MS + 5]),
        "records": st.lists(record_specs, min_size=1, max_size=5),
    }
)


def build(specs: list[list[dict[str, Any]]]) -> list[list[Batch]]:
    offset, segments = 0, []
    for spec_list in specs:
        segment = []
        for spec in spec_list:
            segment.append(batch_of(spec, offset))
            offset = segment[-1].last_offset + 1
        segments.append(segment)
    return segments


def batch_of(spec: dict[str, Any], base: int) -> Batch:
    producer = spec["producer"]
    control = spec["kind"] not in ("data", "empty")
    if control and producer < 0:
        producer = 1
    attributes = (TRANSACTIONAL if (spec["transactional"] and producer >= 0) or control else 0) | int(
        spec["codec"]
    )
    batch = Batch(base, base + len(spec["records"]) - 1, attributes, producer=producer)
    if producer >= 0:
        batch.epoch, batch.sequence = 0, -1 if control else base
    if control:
        kind = {"commit": COMMIT, "abort": ABORT}.get(spec["kind"], 2)
        key = MARKER.pack(0, kind)
        batch.last_offset, batch.attributes = base, (attributes & ~7) | CONTROL
        batch.records = [] if spec["kind"] == "spent marker" else [Record(base, NOW_MS, key, b"\0" * 6, ())]
        batch.base_timestamp = batch.max_timestamp = NOW_MS
    else:
        time = NOW_MS - 100 if spec["append_time"] else None
        batch.records = [
            Record(base + place, NOW_MS + at if time is None else time, key, value, heads)
            for place, (key, value, at, heads, gone) in enumerate(spec["records"])
            if not gone
        ]
        if spec["kind"] == "empty" or not batch.records:
            batch.records, batch.max_timestamp = [], NOW_MS
            batch.attributes &= ~7
            return batch
        batch.attributes |= APPEND_TIME if spec["append_time"] else 0
        batch.base_timestamp = batch.records[0].timestamp
        batch.max_timestamp = max(record.timestamp for record in batch.records)
    if spec["horizon"] is not None and batch.records:
        batch.attributes |= HORIZON
        batch.base_timestamp = spec["horizon"]
    return batch


@st.composite
def tasks(draw: st.DrawFn) -> Task:
    every = build(draw(st.lists(st.lists(batch_specs, min_size=1, max_size=5), min_size=1, max_size=6)))
    count = draw(st.integers(1, len(every)))
    segments, later = every[:count], every[count:]
    upper = segments[-1][-1].last_offset + 1
    ends = [upper, *(batch.last_offset + 1 for segment in later for batch in segment)]
    producers = draw(
        st.dictionaries(
            st.sampled_from([1, 2]),
            st.tuples(st.sampled_from([-1, *(b.last_offset for s in segments for b in s)]), st.just(0)),
        )
    )
    return Task(
        segments,
        draw(st.integers(0, upper)),
        upper,
        NOW_MS,
        later,
        draw(st.sampled_from(ends)),
        draw(st.sampled_from([0, 7, 10**9])),
        producers=producers,
    )


def test_an_abort_tells_nothing_of_what_was_committed_before() -> None:
    """The first marker of the producer stands in the clean part: it is not asked again."""
    data = {"kind": "data", "producer": 1, "transactional": True, "codec": Codec.NONE, "append_time": False}
    data |= {"horizon": None, "records": [(b"a", b"kept", 0, (), False)]}
    taken_back = data | {"records": [(b"b", b"taken back", 0, (), False)]}
    segments = build([[data, data | {"kind": "commit"}], [taken_back, data | {"kind": "abort"}]])
    task = Task(segments, first_dirty=2, upper=4, now_ms=NOW_MS)
    disk = log_of(segments)
    reports = run(disk, job_of(disk, task))
    found = [batch for part in result(disk, task, reports) for batch in decode(part)]
    assert found == compacted(task)[0]
    assert [record.value for batch in found for record in batch.records] == [b"kept", b"\0" * 6, b"\0" * 6]


# -- transactions, as Kafka writes them

PLAIN = {"kind": "data", "transactional": False, "codec": Codec.NONE, "append_time": False, "horizon": None}


def wrote(value: bytes, producer: int = -1, key: bytes = b"k") -> dict[str, Any]:
    """A batch with one record; with a producer, within its transaction."""
    records = [(key, value, 0, (), False)]
    return PLAIN | {"producer": producer, "transactional": producer >= 0, "records": records}


def ended(kind: str, producer: int = 1) -> dict[str, Any]:
    return wrote(b"", producer) | {"kind": kind}


def cleaned(task: Task) -> tuple[Done, list[list[Batch]]]:
    """How a cleaning went, and the segments after it, the later ones too."""
    disk = log_of([*task.segments, *task.later])
    reports = run(disk, job_of(disk, task))
    assert isinstance(reports[-1], Done), reports
    return reports[-1], [*(decode(part) for part in result(disk, task, reports)), *task.later]


def values(segments: Sequence[list[Batch]]) -> list[bytes | None]:
    return [r.value for s in segments for b in s if not b.attributes & CONTROL for r in b.records]


def test_an_abort_in_the_segment_that_grows_counts() -> None:
    """Its marker comes when the records it takes back are in a closed segment already."""
    log = build([[wrote(b"committed")], [wrote(b"aborted", 1), wrote(b"x", key=b"o")], [ended("abort")]])
    done, after = cleaned(Task(log[:2], 0, 3, NOW_MS, log[2:], committed=4))
    assert (done.end_offset, done.undecided_from) == (3, -1)
    assert values(after) == [b"committed", b"x"]


def test_what_is_undecided_displaces_nothing() -> None:
    """A cleaning ends before the segment in which the transaction begins, and says so."""
    begun = [wrote(b"newest"), wrote(b"undecided", 1)]
    log = build([[wrote(b"old"), wrote(b"new")], begun, [wrote(b"x", 2)]])
    done, after = cleaned(Task(log[:2], 0, 4, NOW_MS, log[2:], committed=5))
    assert (done.end_offset, done.undecided_from, done.undecided_producer) == (2, 3, 1)
    assert values(after) == [b"new", b"newest", b"undecided", b"x"]


def test_a_marker_that_is_not_committed_decides_nothing() -> None:
    log = build([[wrote(b"committed")], [wrote(b"undecided", 1)], [ended("commit")]])
    task = Task(log[:2], 0, 2, NOW_MS, log[2:], committed=2)
    done, after = cleaned(task)
    assert (done.end_offset, done.undecided_from) == (1, 1)
    assert values(after) == [b"committed", b"undecided"]
    task.committed = 3
    done, after = cleaned(task)
    assert (done.end_offset, values(after)) == (2, [b"undecided"])


transaction_specs = st.builds(
    lambda kind, producer, key, value: (
        PLAIN
        | {"kind": kind, "producer": producer, "transactional": producer >= 0}
        | {"records": [(key, value, 0, (), False)]}
    ),
    st.sampled_from(["data"] * 4 + ["commit", "abort"]),
    st.sampled_from([-1, 1, 2]),
    st.sampled_from([b"a", b"b"]),
    st.sampled_from([None, b"v", b"w", b"x"]),
)


@settings(max_examples=100, deadline=None)
@given(
    specs=st.lists(st.lists(transaction_specs, min_size=1, max_size=4), min_size=2, max_size=5),
    rooms=st.lists(st.sampled_from([1, 2, 1 << 30]), min_size=5, max_size=5),
    data=st.data(),
)
def test_a_consumer_of_committed_records_sees_the_same_after_each_cleaning(
    specs: list[list[dict[str, Any]]], rooms: list[int], data: st.DataObject
) -> None:
    """Wherever a cleaning comes by, and however the transactions that were open then end later."""
    log, begin, upper, committed = build(specs), 0, 0, 0
    truth = committed_view(log)
    ends = [segment[-1].last_offset + 1 for segment in log]
    for room in rooms:
        upper = data.draw(st.sampled_from([end for end in ends if end >= upper and end > begin] or [0]))
        committed = data.draw(st.sampled_from([end for end in ends if end >= max(upper, committed)]))
        split = [[s for s in log if s and s[0].base_offset < upper]]
        split.append([s for s in log if s and s[0].base_offset >= upper])
        if not split[0] or upper <= begin:
            continue
        task = Task(*split[:1], begin, upper, NOW_MS, split[1], committed, retention_ms=0)
        disk = log_of(log)
        small = {"map_bytes": 5 * SLOT_BYTES, "load_factor": room / 5 + 0.01} if room < 5 else {}
        reports = run(disk, job_of(disk, task, **small))
        done = reports[-1]
        assert isinstance(done, Done), done
        begin = done.end_offset
        log = [s for s in [*(decode(p) for p in result(disk, task, reports)), *split[1]] if s]
        assert committed_view(log) == truth


# -- room


def test_a_log_with_more_keys_than_room_is_cleaned_in_rounds() -> None:
    """Each round takes so many keys as fit its memory and no more; in the end all is clean."""
    keys = 40
    specs = [
        {
            "kind": "data",
            "producer": -1,
            "transactional": False,
            "codec": Codec.LZ4,
            "append_time": False,
            "horizon": None,
            "records": [(b"%d" % (number % keys), b"%d" % number, 0, (), False)],
        }
        for number in range(120)
    ]
    segments = build([specs])
    rounds, begin = 0, 0
    while begin < 120:
        task = Task(segments, begin, 120, NOW_MS, room=7)
        disk = log_of(segments)
        small = {"map_bytes": 11 * SLOT_BYTES, "load_factor": 7 / 11 + 0.01}
        reports = run(disk, job_of(disk, task, **small))
        done = reports[-1]
        assert isinstance(done, Done)
        assert done.keys <= 7
        assert done.end_offset > begin
        segments = [decode(part) for part in result(disk, task, reports)]
        rounds, begin = rounds + 1, done.end_offset
    assert rounds > 5
    left = [record.offset for batch in segments[0] for record in batch.records]
    assert left == list(range(80, 120))


def test_the_new_segments_indexes_lead_to_its_batches() -> None:
    spec = {"kind": "data", "producer": -1, "transactional": False, "codec": Codec.NONE, "append_time": False}
    specs = [
        spec | {"horizon": None, "records": [(b"%d" % (n % 30), b"v" * 50, n, (), False)]} for n in range(90)
    ]
    segments = build([specs])
    task = Task(segments, 0, 90, NOW_MS)
    disk = log_of(segments)
    run(disk, job_of(disk, task))
    stem = path_of(segments[0])[: -len(LOG)]
    data = bytes(disk.files[stem + LOG + CLEANED])
    ends = {at: header.last_offset for at, header in headers(data)}
    index = OffsetIndex.load(bytes(disk.files[stem + INDEX + CLEANED]))
    assert len(index) > 5
    assert [ends[at] for at in index.positions] == list(index.offsets)
    times = TimeIndex.load(bytes(disk.files[stem + TIME_INDEX + CLEANED]))
    assert times.last()[0] == max(header.max_timestamp for _, header in headers(data))


@settings(max_examples=300, deadline=None)
@given(task=tasks(), room=st.sampled_from([1, 2, 3, 1 << 30]), segment_bytes=st.sampled_from([1, 700, GIB]))
def test_it_keeps_what_the_model_keeps(task: Task, room: int, segment_bytes: int) -> None:
    disk = log_of([*task.segments, *task.later])
    before = {data for s in task.segments for data in map(encode, s)}
    task.room = room
    small = {"map_bytes": 5 * SLOT_BYTES, "load_factor": room / 5 + 0.01} if room < 5 else {}
    reports = run(disk, job_of(disk, task, segment_bytes=segment_bytes, **small))
    expected, end = compacted(task)
    done = reports[-1]
    assert isinstance(done, Done), done
    assert done.end_offset == end
    found = result(disk, task, reports)
    untouched = [b for s in task.segments if s[0].base_offset >= end for b in s]
    assert [batch for data in found for batch in decode(data)] == expected + untouched
    originals = {batch.base_offset: batch for s in task.segments for batch in s}
    for data in found:  # what loses nothing is copied byte for byte
        for at, header in headers(data):
            raw = data[at : at + header.size]
            assert raw in before or decode(raw) != [originals[header.base_offset]]

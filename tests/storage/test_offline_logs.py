"""Closed logs of replicas: what is read of them together, through damage, and what is said of the rest."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from uuid import UUID

import pytest

from strandline.base.types import TopicPartition
from strandline.protocol.batches import headers
from strandline.protocol.records import iterate
from strandline.storage.directory_lock import RealLock, is_held
from strandline.storage.log import checkpoints
from strandline.storage.offline.directories import ClosedDirectories, Unusable, _has_preallocated_index
from strandline.storage.offline.identity import NotSeen, owned, stamp
from strandline.storage.offline.proof import FAR
from strandline.storage.offline.reading import NoReplica, RangeReader, Source, first_at
from strandline.storage.offline.replica_log import ReplicaLog
from strandline.storage.offline.transactions import ANYONE, Markers, Outcomes
from strandline.storage.segment.file_names import INDEX, LOG, TIME_INDEX, file_name
from strandline.storage.segment.index import OFFSET_ENTRY, TIME_ENTRY
from strandline.storage.segment_files import Damaged
from tests.storage.closed_dirs import DISK, START_MS, T0, ClosedBroker, Facts, batch, marker, write_segment

TWO_SEGMENTS = [(0, [batch(0), batch(2), batch(4)]), (6, [batch(6), batch(8, epoch=1), batch(10, epoch=1)])]
END = 12


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 0x55
    path.write_bytes(data)


def source(folder: Path, broker: int = 1, **facts: object) -> Source:
    given = {
        "start": 0, "limit": FAR, "epochs": ((0, 0), (1, 8)), "high_watermark": END, "gaps": False,
        "stamp": stamp(folder, owned(folder.parent)), **facts
    }  # fmt: skip
    return Source(broker=broker, directory=str(folder), **given)  # type: ignore[arg-type]


class Read:
    """What a range's reader has found, and what it has told."""

    def __init__(self, sources: Sequence[Source], start: int = 0, end: int = END) -> None:
        self.told: list[str] = []
        self.offsets: list[int] = []
        self.served: dict[int, int] = {}
        self.lost: list[tuple[int, int]] = []
        reader = RangeReader(sources, start, end, lambda source, trouble: self.told.append(str(trouble)))
        while reader.position < end:
            try:
                for piece in reader:
                    for record in iterate(piece.run.records):
                        if piece.start <= record.offset < piece.end:
                            self.offsets.append(record.offset)
                            self.served[record.offset] = piece.source.broker
            except NoReplica as gone:
                resume = reader.next_good()
                self.lost.append((gone.position, resume))
                reader.skip_to(resume)


def folder(tmp_path: Path, broker: int = 1, segments: Sequence[tuple[int, Sequence[bytes]]] = ()) -> Path:
    where = tmp_path / str(broker) / str(T0)
    where.mkdir(parents=True)
    for base, batches in segments or TWO_SEGMENTS:
        write_segment(where, base, batches)
    return where


# ------------------------------------------------------------ one log


@pytest.mark.parametrize("start", range(END + 1))
def test_any_range_of_a_log_is_read(tmp_path: Path, start: int) -> None:
    log = folder(tmp_path)
    for end in range(start, END + 1):
        assert Read([source(log)], start, end).offsets == list(range(start, end))


@pytest.mark.parametrize("harm", ["missing", "garbage", "of another log"])
def test_indexes_are_hints(tmp_path: Path, harm: str) -> None:
    log = folder(tmp_path)
    for path in (*log.glob("*" + INDEX), *log.glob("*" + TIME_INDEX)):
        if harm == "missing":
            path.unlink()
        elif harm == "garbage":
            path.write_bytes(os.urandom(48))
        else:
            path.write_bytes(path.read_bytes()[::-1])
    assert Read([source(log)], 3, 11).offsets == list(range(3, 11))
    assert ReplicaLog(log).tail().end == END
    for offset in range(END):
        assert first_at([source(log)], START_MS + offset, 0, END, told) == offset


def told(source: Source, trouble: Exception) -> None:
    raise AssertionError(f"nothing is wrong with {source}: {trouble}")


def test_a_torn_tail_is_no_part_of_the_log(tmp_path: Path) -> None:
    log = folder(tmp_path)
    last = log / file_name(6, LOG)
    for tail in (batch(12)[:70], batch(12)[:30], b"\0" * 300, os.urandom(200)):
        whole = last.read_bytes()
        last.write_bytes(whole + tail)
        assert ReplicaLog(log).tail() == (END, 11, 1)
        assert Read([source(log)]).offsets == list(range(END))
        last.write_bytes(whole)


def test_an_index_that_points_into_a_record_misleads_nobody(tmp_path: Path) -> None:
    """The value of offset 2 looks like a batch that ends with offset 3; its checksum is wrong."""
    inner = bytearray(batch(2))
    inner[-1] ^= 1
    outer = batch(0, 4, text=inner.decode("latin-1"))
    log = folder(tmp_path, segments=[(0, [outer, batch(4)])])
    at = (log / file_name(0, LOG)).read_bytes().index(inner[:12], 61)
    (log / file_name(0, INDEX)).write_bytes(OFFSET_ENTRY.pack(3, at))
    assert Read([source(log, epochs=())], 3, 6).offsets == [3, 4, 5]


def test_a_time_index_with_times_that_are_too_early_hides_nothing(tmp_path: Path) -> None:
    log = folder(tmp_path)
    (log / file_name(0, TIME_INDEX)).write_bytes(TIME_ENTRY.pack(START_MS + 1, 5))
    assert first_at([source(log)], START_MS + 3, 0, END, told) == 3


def test_a_time_index_that_lost_its_end_hides_nothing(tmp_path: Path) -> None:
    log = folder(tmp_path)
    times = log / file_name(0, TIME_INDEX)
    times.write_bytes(times.read_bytes()[:12])
    assert first_at([source(log)], START_MS + 5, 0, END, told) == 5
    assert first_at([source(log)], START_MS + 99, 0, END, told) is None
    assert first_at([source(log)], START_MS + 5, 0, 4, told) is None, "what is not committed has no time"


def test_the_log_of_a_broker_that_made_a_segment_last_ends_there(tmp_path: Path) -> None:
    log = folder(tmp_path, segments=[*TWO_SEGMENTS, (12, [])])
    assert ReplicaLog(log).tail() == (12, 11, 1)


def test_the_batches_tell_their_epochs(tmp_path: Path) -> None:
    assert ReplicaLog(folder(tmp_path)).epochs() == ((0, 0), (1, 8))


# ------------------------------------------------------------ damage


@pytest.mark.parametrize("position", [75, 16, 8, 2])
def test_damage_is_read_from_another_replica(tmp_path: Path, position: int) -> None:
    """In the records, the magic, the length, the base offset."""
    first, second = folder(tmp_path, 1), folder(tmp_path, 2)
    size = len(TWO_SEGMENTS[0][1][0])
    flip(first / file_name(0, LOG), size + position)
    read = Read([source(first, 1), source(second, 2)])
    assert read.offsets == list(range(END)) and read.lost == []
    assert read.served[2] == 2 and read.served[0] == 1
    assert any(f"{first / file_name(0, LOG)}, position {size}" in each for each in read.told)


@pytest.mark.parametrize("indexed", [True, False])
def test_damage_that_nobody_can_make_good_has_a_range(tmp_path: Path, indexed: bool) -> None:
    log = folder(tmp_path)
    size = len(TWO_SEGMENTS[0][1][0])
    flip(log / file_name(0, LOG), size + 75)
    if not indexed:
        for path in log.glob("*index"):
            path.unlink()
    read = Read([source(log)])
    assert read.lost == [(2, 4)] and read.offsets == [0, 1, *range(4, END)]
    assert Read([source(log)], 4).offsets == list(range(4, END)), "what comes behind is not concerned"


def test_where_the_length_is_damaged_the_index_finds_the_next_batch(tmp_path: Path) -> None:
    log = folder(tmp_path)
    size = len(TWO_SEGMENTS[0][1][0])
    flip(log / file_name(0, LOG), size + 9)
    read = Read([source(log)])
    assert read.lost == [(2, 4)] and read.offsets == [0, 1, *range(4, END)]
    (log / file_name(0, INDEX)).unlink()
    assert Read([source(log)]).lost == [(2, 6)]


def test_a_segment_that_is_gone_is_a_gap_only_where_gaps_may_be(tmp_path: Path) -> None:
    segments = [(0, [batch(0)]), (2, [batch(2)]), (4, [batch(4, 8)])]
    first, second = folder(tmp_path, 1, segments), folder(tmp_path, 2, segments)
    (first / file_name(2, LOG)).unlink()
    facts: dict[str, object] = {"epochs": ()}
    read = Read([source(first, **facts)])
    assert read.lost == [(2, 4)] and "records [2, 4) are missing" in read.told[0]
    assert Read([source(first, **facts), source(second, 2, **facts)]).served[3] == 2
    compacted = Read([source(first, gaps=True, **facts)])
    assert compacted.lost == [] and compacted.offsets == [0, 1, *range(4, END)]


@pytest.mark.parametrize(
    ("batches", "gaps", "before", "problem"),
    [
        ([batch(0), batch(4, 2)], False, [0, 1, 4, 5], r"records \[2, 4\) are missing"),
        ([batch(0), batch(4, 2)], True, [0, 1, 4, 5], ""),
        ([batch(0, 4), batch(2, 2)], True, [0, 1, 2, 3], "has base offset 2: expected 4 or more"),
        ([batch(0, 4), batch(50, 2)], True, [0, 1, 2, 3], "offset 50: the next segment begins at 6"),
    ],
)
def test_a_batch_that_cannot_be_where_it_is_is_damage(
    tmp_path: Path, batches: list[bytes], gaps: bool, before: list[int], problem: str
) -> None:
    log = folder(tmp_path, segments=[(0, batches), (6, [batch(6, 6)])])
    read = Read([source(log, gaps=gaps, epochs=())])
    assert read.offsets == [*before, *range(6, END)]
    assert re.search(problem, "".join(read.told)) and bool(problem) is bool(read.told)


def test_a_log_that_begins_later_has_nothing_before(tmp_path: Path) -> None:
    log = ReplicaLog(folder(tmp_path, segments=[TWO_SEGMENTS[1]]))
    with pytest.raises(Damaged, match="the log begins at offset 6"):
        list(log.runs(0, END))


def test_a_compacted_log_has_gaps_everywhere(tmp_path: Path) -> None:
    segments = [(0, [batch(3), batch(7)]), (20, [batch(24)]), (40, [])]
    log = folder(tmp_path, segments=segments)
    for start in range(40):
        read = Read([source(log, gaps=True, epochs=((0, 0),), high_watermark=40)], start, 40)
        assert read.offsets == [each for each in (3, 4, 7, 8, 24, 25) if each >= start] and read.lost == []


def test_a_log_that_ends_below_its_high_watermark_has_lost_something(tmp_path: Path) -> None:
    first, second = folder(tmp_path, 1), folder(tmp_path, 2)
    last = first / file_name(6, LOG)
    last.write_bytes(last.read_bytes()[:-5])
    read = Read([source(first, 1), source(second, 2)])
    assert read.offsets == list(range(END)) and read.served[10] == 2
    assert read.told == [f"{first}, position 0: the log ends at offset 10, below its high watermark 12"]
    assert Read([source(first)]).lost == [(10, 12)]
    behind = Read([source(first, high_watermark=4), source(second, 2)])
    assert behind.told == [], "a replica that only lags is not damaged"


def test_a_batch_of_an_epoch_that_its_history_does_not_have_is_not_served(tmp_path: Path) -> None:
    first, second = folder(tmp_path, 1), folder(tmp_path, 2)
    read = Read([source(first, 1, epochs=((0, 0), (1, 6))), source(second, 2)])
    assert read.served[6] == 2 and read.offsets == list(range(END))
    assert "has leader epoch 0: expected 1, by leader-epoch-checkpoint" in read.told[0]


def test_a_replica_serves_no_further_than_it_agrees(tmp_path: Path) -> None:
    first = folder(tmp_path, 1, [(0, [batch(0, 8), batch(8, 4, text=" cut")])])
    second = folder(tmp_path, 2)
    read = Read([source(first, 1, limit=8, epochs=((0, 0),)), source(second, 2)])
    assert read.served == {**dict.fromkeys(range(8), 1), **dict.fromkeys(range(8, 12), 2)}
    assert read.told == []


@pytest.mark.parametrize("indexed", [True, False])
def test_the_last_epoch_of_a_damaged_log_is_known_without_its_history(tmp_path: Path, indexed: bool) -> None:
    """Else it would lend its high watermark to a history that has cut its records."""
    broker = ClosedBroker(tmp_path, 1)
    late = [batch(4, epoch=1), batch(6, epoch=1)]
    log = broker.put([(0, [batch(0), batch(2), *late])], Facts(high_watermark=8, indexed=indexed))
    (log / checkpoints.EPOCHS).write_text("junk")
    flip(log / file_name(0, LOG), 2 * len(batch(0)) + 80)
    assert ReplicaLog(log).tail() == (8, 7, 1)
    (found,) = ClosedDirectories([str(broker.path)]).replicas(T0)
    assert found.facts.epochs == ((0, 0), (1, 4))
    flip(log / file_name(0, LOG), len(batch(0)) + 80)
    (found,) = ClosedDirectories([str(broker.path)]).replicas(T0)
    assert found.facts.epochs == ((0, 0), (1, 2)), "it may have begun where the damage begins"


def test_a_log_goes_on_behind_damage_that_no_index_leads_over(tmp_path: Path) -> None:
    log = folder(tmp_path, segments=[(0, [batch(0), batch(2), batch(4)])])
    (log / file_name(0, INDEX)).unlink()
    flip(log / file_name(0, LOG), 80)
    assert ReplicaLog(log).tail() == (6, 5, 0)
    assert [run.next_offset for run in ReplicaLog(log).good_runs(0, FAR) if run.records] == [6]


def test_a_time_is_looked_for_on_both_sides_of_damage(tmp_path: Path) -> None:
    first, second = folder(tmp_path, 1), folder(tmp_path, 2)
    size = len(batch(0))
    flip(first / file_name(0, LOG), size + 75)
    flip(second / file_name(0, LOG), 2 * size + 75)
    heard: list[str] = []
    sources = [source(first, 1), source(second, 2)]

    def look(ms: int, *among: Source) -> int | None:
        return first_at(among, ms, 0, END, lambda source, trouble: heard.append(str(trouble)))

    for each in (first, second):
        for index in each.glob("*index"):
            index.unlink()
    assert look(START_MS + 5, *sources) == 5, "2 and 3 by the second one, and the rest by the first again"
    assert heard[0].startswith(f"{first / file_name(0, LOG)}, position {size}")
    with pytest.raises(NoReplica) as error:
        look(START_MS + 5, sources[1])
    assert error.value.position == 4, "it says where it is, not where the search began"
    first.rename(first.with_name("hidden"))
    with pytest.raises(NoReplica) as error:
        look(START_MS + 5, *sources)
    assert error.value.position == 4 and {type(each) for each in error.value.troubles} == {Damaged, NotSeen}


# ------------------------------------------------------------ transactions


def outcomes(log: ReplicaLog, start: int, end: int) -> Outcomes:
    markers = Markers()
    for run in log.runs(start, end):
        markers.see(run)
    return markers.outcomes(end)


def test_markers_tell_what_was_aborted_and_what_is_open(tmp_path: Path) -> None:
    def sent(base: int, producer: int) -> bytes:
        return batch(base, producer_id=producer, producer_epoch=0, base_sequence=base, transactional=True)

    batches = [sent(0, 7), sent(2, 8), marker(4, 7, commit=False), sent(5, 7), marker(7, 7, commit=True)]
    batches += [batch(8), marker(10, 8, commit=False), sent(11, 7), batch(13)]
    log = ReplicaLog(folder(tmp_path, segments=[(0, batches)]))
    assert outcomes(log, 0, 15) == (11, ((7, 0, 4), (8, 2, 10)))
    assert outcomes(log, 0, 10) == (2, ((7, 0, 4),))
    assert outcomes(log, 8, 10) == (10, ())


def test_what_was_open_before_a_loss_stays_undecided(tmp_path: Path) -> None:
    sent = [batch(n, producer_id=7, producer_epoch=0, base_sequence=n, transactional=True) for n in (0, 5)]
    batches = [sent[0], batch(2), sent[1], marker(7, 7, commit=True)]
    log = ReplicaLog(folder(tmp_path, segments=[(0, batches)]))
    markers = Markers()
    for start, end in ((0, 4), (5, 8)):
        for run in log.runs(start, end):
            markers.see(run)
        if not start:
            assert markers.lose(4, 5) == 1
    assert markers.outcomes(8) == (8, ((7, 0, 4), (ANYONE, 4, 4)))


# ------------------------------------------------------------ directories


def facts_of(*brokers: ClosedBroker, tp: TopicPartition = T0) -> list[tuple[int, object, int]]:
    found = ClosedDirectories([str(each.path) for each in brokers]).replicas(tp)
    return [(each.broker, each.facts.epochs, each.facts.high_watermark) for each in found]


def test_what_directories_say_of_a_replica(tmp_path: Path) -> None:
    one, two = ClosedBroker(tmp_path, 1), ClosedBroker(tmp_path, 2)
    one.put(TWO_SEGMENTS, Facts(high_watermark=9, start=3))
    two.put([(6, TWO_SEGMENTS[1][1])], Facts())
    found = ClosedDirectories([str(two.path), str(one.path)])
    assert found.brokers == [1, 2] and found.partitions == {T0: [1, 2]}
    first, second = found.replicas(T0)
    assert (first.facts.start, second.facts.start) == (3, 6)
    assert (first.facts.high_watermark, second.facts.high_watermark) == (9, -1)
    assert first.facts.epochs == ((0, 0), (1, 8)) and not first.gaps


@pytest.mark.parametrize("kept", ["none", "damaged", "old"])
def test_a_history_that_the_log_contradicts_is_made_anew(tmp_path: Path, kept: str) -> None:
    """An old one would let the log agree with one that it was cut from."""
    broker = ClosedBroker(tmp_path, 1)
    path = broker.put(TWO_SEGMENTS, Facts(high_watermark=12, epochs=[(0, 0)])) / checkpoints.EPOCHS
    if kept != "old":
        path.write_text("x") if kept == "damaged" else path.unlink()
    assert facts_of(broker) == [(1, ((0, 0), (1, 8)), 12)]


def test_an_epoch_that_has_just_begun_is_known(tmp_path: Path) -> None:
    broker = ClosedBroker(tmp_path, 1)
    broker.put(TWO_SEGMENTS, Facts(epochs=[(0, 0), (1, 8), (4, 12)]))
    other = ClosedBroker(tmp_path, 2)
    other.put(TWO_SEGMENTS, Facts(epochs=[(0, 0), (4, 12)]))
    assert [epochs for _, epochs, _ in facts_of(broker, other)] == [((0, 0), (1, 8), (4, 12))] * 2


@pytest.mark.parametrize(
    ("kafka", "clean", "newer", "end", "believed"),
    [
        (True, False, "high watermarks", 12, True),
        (True, False, "epochs", 12, False),
        (True, False, "high watermarks", 13, False),
        (True, True, "epochs", 12, True),
        (False, False, "epochs", 12, True),
        (False, False, "epochs", 13, True),
    ],
)
def test_a_killed_kafkas_high_watermark_is_believed_if_nothing_was_cut_since(
    tmp_path: Path, kafka: bool, clean: bool, newer: str, end: int, believed: bool
) -> None:
    broker = ClosedBroker(tmp_path, 1, kafka=kafka)
    log = broker.put(TWO_SEGMENTS, Facts(high_watermark=end))
    if clean:
        broker.close_cleanly()
    os.utime(log / checkpoints.EPOCHS, (1000, 1000 + (newer == "epochs")))
    os.utime(broker.path / checkpoints.HIGH_WATERMARKS, (1000, 1000))
    (found,) = ClosedDirectories([str(broker.path)]).replicas(T0)
    assert found.facts.high_watermark == (end if believed else -1)
    assert bool(found.doubt) is not believed and found.high_watermark == end


@pytest.mark.parametrize("trace", ["a preallocated index", "an unsorted checkpoint"])
def test_a_kafka_that_was_killed_after_strandline_is_not_taken_for_it(tmp_path: Path, trace: str) -> None:
    """It leaves `incarnation.json` where it is; and what was cut since, its high watermark still tells of."""
    broker = ClosedBroker(tmp_path, 1)
    log = broker.put(TWO_SEGMENTS, Facts(high_watermark=13))

    def believed() -> bool:
        (found,) = ClosedDirectories([str(broker.path)]).replicas(T0)
        return not found.doubt

    assert believed(), "a killed Strandline has lowered it before it cut"
    if trace == "a preallocated index":
        with (log / file_name(6, INDEX)).open("ab") as file:
            file.write(bytes(OFFSET_ENTRY.size * 100))
    else:
        (broker.path / checkpoints.HIGH_WATERMARKS).write_text("0\n2\nu 0 1\nt 0 13\n")
    assert not believed()
    broker.close_cleanly()
    assert believed()


def test_a_killed_kafkas_own_directory_has_those_traces() -> None:
    killed = Path(__file__).resolve().parents[1] / "fixtures" / "kafka" / "killed"
    assert _has_preallocated_index(killed / "times-0")
    assert not _has_preallocated_index(killed.parent / "clean" / "times-0")
    found = list(checkpoints.read_offsets(DISK, str(killed / checkpoints.HIGH_WATERMARKS)))
    assert found != sorted(found)


def test_a_compacted_log_is_known_by_its_settings_or_its_cleaners_mark(tmp_path: Path) -> None:
    ours, kafkas, plain = (ClosedBroker(tmp_path, n, kafka=n > 1) for n in (1, 2, 3))
    for each in (ours, kafkas, plain):
        each.put(TWO_SEGMENTS, Facts(gaps=True))
    assert [r.gaps for r in ClosedDirectories([str(kafkas.path), str(plain.path)]).replicas(T0)] == [
        False
    ] * 2
    assert [r.gaps for r in ClosedDirectories([str(ours.path)]).replicas(T0)] == [True]
    (plain.path / "cleaner-offset-checkpoint").write_text("0\n1\nt 0 4\n")
    found = ClosedDirectories([str(kafkas.path), str(plain.path)]).replicas(T0)
    assert [each.gaps for each in found] == [True, True], "one of them was: the other has its records"


def refusal(*paths: Path) -> str:
    with pytest.raises(Unusable) as error:
        found = ClosedDirectories([str(path) for path in paths])
        for partition in found.partitions:
            found.replicas(partition)
    return str(error.value)


def test_a_copy_without_segments_is_refused_if_there_were_records(tmp_path: Path) -> None:
    """A backup that leaves `*.log` out would else be a topic without records."""
    one = ClosedBroker(tmp_path, 1)
    log = one.put(TWO_SEGMENTS, Facts(high_watermark=9))
    for segment in log.glob("*.log"):
        segment.unlink()
    assert "t-0 has no .log file, but replication-offset-checkpoint says" in refusal(one.path)
    one.high_watermarks[T0] = 0
    one.checkpoint()
    assert ClosedDirectories([str(one.path)]).replicas(T0) == []


def test_a_living_brokers_directory_is_refused(tmp_path: Path) -> None:
    broker = ClosedBroker(tmp_path, 1)
    lock = RealLock(str(broker.path / ".lock"))
    try:
        assert f"a living broker holds {broker.path}/.lock: stop it" in refusal(broker.path)
    finally:
        lock.release()
    assert ClosedDirectories([str(broker.path)]).brokers == [1]
    assert not is_held(str(tmp_path / "none"))


def test_kafkas_lock_counts_too(tmp_path: Path) -> None:
    """It is a record lock of the process, not of the file."""
    broker = ClosedBroker(tmp_path, 1)
    holding = (
        "import fcntl, sys; file = open(sys.argv[1], 'w'); fcntl.lockf(file, fcntl.LOCK_EX); "
        "print(flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", holding, str(broker.path / ".lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as kafka:
        assert kafka.stdout is not None and kafka.stdout.readline()
        assert "a living broker holds" in refusal(broker.path)
        kafka.kill()
    assert ClosedDirectories([str(broker.path)]).brokers == [1]


def test_what_cannot_be_read_is_refused_in_a_sentence(tmp_path: Path) -> None:
    one, two = ClosedBroker(tmp_path, 1), ClosedBroker(tmp_path, 2, cluster="another")
    log = one.put(TWO_SEGMENTS)
    assert "is no directory" in refusal(tmp_path / "nowhere")
    assert "no meta.properties, so it is no broker's log directory" in refusal(log)
    assert "of different clusters:" in refusal(one.path, two.path)
    assert "is given twice" in refusal(one.path, tmp_path / "data-2" / ".." / "data-1")
    (two.path / checkpoints.META_PROPERTIES).write_text("version=0\n")
    assert "names no broker" in refusal(two.path)
    copied = Path(shutil.copytree(one.path, tmp_path / "copy"))
    assert refusal(one.path, copied).endswith(
        f"broker 1 has t-0 in {one.path} and in {copied}: give one of them"
    )
    (copied / str(T0) / checkpoints.PARTITION_METADATA).unlink()
    checkpoints.write_partition_metadata(
        DISK, str(copied / str(T0) / checkpoints.PARTITION_METADATA), UUID(int=8)
    )
    assert f"with topic ids {UUID(int=7)} and {UUID(int=8)}" in refusal(one.path, copied)
    (one.path / checkpoints.HIGH_WATERMARKS).write_text("junk")
    assert "expected a checkpoint of version 0" in refusal(one.path)


def test_kafka_without_zookeeper_calls_its_brokers_nodes(tmp_path: Path) -> None:
    broker = ClosedBroker(tmp_path, 1)
    (broker.path / checkpoints.META_PROPERTIES).write_text("version=1\nnode.id=4\ncluster.id=c\n")
    assert ClosedDirectories([str(broker.path)]).brokers == [4]


def test_damage_says_which_file(tmp_path: Path) -> None:
    log = folder(tmp_path)
    flip(log / file_name(6, LOG), 80)
    with pytest.raises(Damaged) as error:
        list(ReplicaLog(log, gaps=False).runs(0, END))
    assert error.value.path == str(log / file_name(6, LOG)) and error.value.position == 0
    assert sum(1 for run in ReplicaLog(log).runs(0, 6) for _ in headers(run.records)) == 3

"""A small log directory with every kind of file in it, as a dictionary of bytes, and a broker's start on it.

One log of three segments and two epochs, an idempotent producer among others, batches of several records
with and without a codec. It can be left in three ways: by a crash before anything was checkpointed, by a
crash after everything was, and by a clean stop.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from uuid import UUID

from strandline.base.types import TopicPartition
from strandline.protocol.batches import BatchHeader, headers, read_header, stamp
from strandline.protocol.compression import Codec
from strandline.protocol.errors import CorruptMessage
from strandline.protocol.primitives import Malformed
from strandline.protocol.records import BatchBuilder, iterate
from strandline.simulation.environment.disk import SimDisk
from strandline.storage.config import StorageConfig, TopicConfig
from strandline.storage.directories.incarnation import Incarnations
from strandline.storage.directories.intact import Intactness
from strandline.storage.directories.log_manager import Logs
from strandline.storage.disk import DiskError
from strandline.storage.log.checkpoints import kafka_uuid
from strandline.storage.log.log import Log
from tests.storage.conftest import START_MS, T0, FixedClock

ROOT = "/data"
LOG_DIR = f"{ROOT}/{T0}"
BOOT = "b0075"
CLUSTER = "abcdefghijklmnopqrstuw"
DIR_ID = UUID(int=5)
TOPIC_ID = UUID(int=0x1234567890ABCDEF1234567890ABCDEF)
PRODUCER = 7
START = 1  # the first record has been deleted
FIRST_RECORD = (0, START_MS, b"k0", b"v0")  # this one
CONFIG = StorageConfig(segment_bytes=1 << 20, index_interval_bytes=90, tail_cache_bytes=0)
END = 24

Files = dict[str, bytes]


class Stop(Enum):
    """How the process ended."""

    CRASH = "crash, recovery point 0"
    CRASH_FLUSHED = "crash, recovery point at the end"
    CLEAN = "clean stop"


def _batch(log: Log, count: int, at: int, codec: Codec, sequence: int) -> bytearray:
    mine = sequence >= 0
    builder = BatchBuilder(
        codec=codec,
        producer_id=PRODUCER if mine else -1,
        producer_epoch=0 if mine else -1,
        base_sequence=sequence,
    )
    for place in range(count):
        offset = log.end_offset + place
        builder.append(START_MS + at + place, b"k%d" % (offset % 3), b"v%d" % offset, ())
    batch = bytearray(builder.build())
    stamp(batch, 0, 0, 0)
    return batch


# records, milliseconds after the start, codec, epoch; None: a new segment. Times do not rise everywhere.
HISTORY = [
    (2, 0, Codec.NONE, 1), (3, 10, Codec.GZIP, 1), (2, 5, Codec.NONE, 1), (1, 20, Codec.NONE, 1), None,
    (2, 30, Codec.NONE, 1), (3, 40, Codec.NONE, 3), (2, 38, Codec.NONE, 3), None,
    (2, 65, Codec.NONE, 3), (3, 50, Codec.NONE, 3), (2, 60, Codec.NONE, 3), (2, 55, Codec.NONE, 3),
]  # fmt: skip


def build(stop: Stop) -> Files:
    """The files of a broker that has ended so."""
    disk = SimDisk()
    disk.mkdir(ROOT)
    incarnations = Incarnations.load(disk, [ROOT], BOOT)
    incarnations.identify(1, CLUSTER, lambda: DIR_ID)
    incarnations.write(Intactness(3, 1, {"u-0": 2}), flush_mode=False)
    incarnations.save_session(77, b"secret")
    logs = Logs.open([ROOT], disk, CONFIG, FixedClock(), clean=False, before_loss=_no_loss)
    log = logs.create(T0, TOPIC_ID, TopicConfig.of(CONFIG))
    if stop is Stop.CRASH:
        logs.checkpoint_recovery_points()
    sequence = 0
    for step in HISTORY:
        if step is None:
            log.roll(START_MS)
            continue
        count, at, codec, epoch = step
        mine = at % 20 == 0
        batch = _batch(log, count, at, codec, sequence if mine else -1)
        sequence += count * mine
        log.append(memoryview(batch), read_header(batch), epoch, START_MS + at)
    assert log.end_offset == END
    log.move_start(START)
    logs.cleaned.note(TopicPartition("u", 0), 3, 0)
    disk.replace(f"{ROOT}/cleaner-offset-checkpoint", b"0\n1\nu 0 3\n")
    logs.checkpoint_high_watermarks(lambda: {T0: 20})
    logs.checkpoint_start_offsets()
    if stop is Stop.CRASH_FLUSHED:
        log.flush()
        logs.checkpoint_recovery_points()
    logs.close(clean=stop is Stop.CLEAN)
    if stop is Stop.CLEAN:
        incarnations.mark_clean()
    return {path: bytes(content.data) for path, content in disk.files.items()}


def _no_loss(partition: TopicPartition, reason: str) -> None:
    raise AssertionError(f"{partition}: {reason}")


def disk_of(files: Files) -> SimDisk:
    """A disk with these files."""
    disk = SimDisk()
    disk.mkdir(LOG_DIR)
    for path, data in files.items():
        disk.replace(path, data)
    return disk


@dataclass
class Started:
    """What a start has come to, before anything was asked of it."""

    logs: Logs
    verdict: Intactness
    noted: list[str] = field(default_factory=list)

    @property
    def log(self) -> Log | None:
        return self.logs.logs.get(T0)

    @property
    def doubted(self) -> bool:
        """Whether this replica does not claim to hold what it held."""
        return bool(self.noted) or not self.verdict.intact or str(T0) in self.verdict.intact_since_of

    @property
    def repaired(self) -> bool:
        return any(cost.repairs or cost.torn_bytes for cost in self.logs.recovered)


def start(files: Files) -> Started:
    """As a broker starts, by ZooKeeper's record in its fourth incarnation. Raises what keeps it from that."""
    disk, noted = disk_of(files), []
    incarnations = Incarnations.load(disk, [ROOT], BOOT)
    incarnations.identify(1, CLUSTER, lambda: UUID(int=6))

    def note(partition: TopicPartition, reason: str) -> None:
        noted.append(reason)
        incarnations.note_doubt(partition, reason)

    logs = Logs.open(
        [ROOT], disk, CONFIG, FixedClock(), clean=incarnations.clean, before_loss=note,
        same_boot=incarnations.same_boot, doubts=incarnations.remembered().doubts,
    )  # fmt: skip
    incarnations.previous_session()
    return Started(logs, incarnations.verdict(3, [kafka_uuid(DIR_ID)]), noted)


REFUSED = "refused"
CHECKSUM = "checksum"  # the consumer finds it
TIMES = (-1, 1, 2, 5, 6, 7, 11, 13, 21, 31, 32, 39, 41, 43, 51, 53, 56, 61, 62, 66, 67)

Observed = dict[str, object]


def observe(started: Started) -> Observed:
    """What the broker says about its log; REFUSED where it says that it cannot."""
    log = started.log
    if log is None:
        return {"log": None}
    asked: dict[str, Callable[[], object]] = {
        "bounds": lambda: (log.start_offset, log.end_offset),
        "records": lambda: records_of(log),
        "places": lambda: places_of(log),
        "times": lambda: [log.find_timestamp(START_MS + ms, log.end_offset) for ms in TIMES],
        "newest": lambda: log.latest_timestamp(log.end_offset),
        "epochs": lambda: (list(log.epochs.entries), [log.end_offset_for(epoch) for epoch in range(5)]),
        "producers": lambda: producers_of(log),
        "high watermark": lambda: started.logs.high_watermarks[T0],
        "topic id": lambda: log.topic_id,
        "settings": lambda: log.config,
        "gaps": lambda: log.gaps_allowed,
        "cleaned": lambda: started.logs.cleaned.get(T0),
        "intact": lambda: (started.verdict.intact_since, started.verdict.intact_since_of),
        "appended": lambda: appended(log),
    }
    return {name: _answer(question) for name, question in asked.items()}


def _answer(question: Callable[[], object]) -> object:
    try:
        return question()
    except DiskError:
        return REFUSED


def records_of(log: Log) -> object:
    """All records as a consumer sees them who checks the batches' checksums, or CHECKSUM."""
    found, offset = [], log.start_offset
    while offset < log.end_offset:
        data = bytes(log.read(offset, 200, log.end_offset))
        try:
            found += [r for r in iterate(data) if r.offset >= offset]
        except (Malformed, CorruptMessage):
            return CHECKSUM
        offset = last_header(data).next_offset
    return [(r.offset, r.timestamp, r.key, r.value) for r in found]


def last_header(data: bytes) -> BatchHeader:
    return list(headers(data))[-1][1]


def places_of(log: Log) -> object:
    """For each offset, the batch that is read when it is asked for."""
    places = []
    for offset in range(log.start_offset, log.end_offset):
        header = read_header(bytes(log.read(offset, 1, log.end_offset)))
        places.append((header.base_offset, header.next_offset, header.leader_epoch, header.size))
    return places


def producers_of(log: Log) -> object:
    return {
        producer: (known.epoch, list(known.batches))
        for producer, known in sorted(log.producers._producers.items())
    }


def appended(log: Log) -> object:
    """What is read back when a record is added."""
    batch = _batch(log, 1, 99, Codec.NONE, -1)
    base = log.append(memoryview(batch), read_header(batch), 4, START_MS)
    return base, bytes(log.read(base, 1, log.end_offset))

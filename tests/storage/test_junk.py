"""Anything at all may lie in a log's directory, or stand in its files: a start serves all other logs, and
this one is mended, or offline with its reason. What it serves was written so.
"""

import errno
from collections.abc import Iterator
from random import Random
from uuid import UUID

import pytest
import structlog

from strandline.base.types import TopicPartition
from strandline.protocol.batches import headers
from strandline.protocol.errors import CorruptMessage
from strandline.protocol.primitives import Malformed
from strandline.protocol.records import iterate
from strandline.simulation.environment.disk import SimDisk
from strandline.storage.config import StorageConfig, TopicConfig
from strandline.storage.directories.log_manager import Logs
from strandline.storage.disk import DiskError, ReplicaElsewhere
from tests.storage.compaction_harness import compact
from tests.storage.conftest import START_MS, T0, FixedClock, put
from tests.storage.faulty_disk import FaultyDisk

ROOT, LOG_DIR = "/data", f"/data/{T0}"
OTHER = TopicPartition("t", 1)
COUNT = 30
SEEDS = 60
NAMES = [
    *(f"{stem}{suffix}{mark}"
      for stem in (f"{5:020d}", f"{0:020d}", "9" * 20, "junk", "٣" * 20, "²" * 20, "1" * 300, "-5", "")
      for suffix in (".log", ".index", ".timeindex", ".snapshot", ".txnindex", "")
      for mark in ("", ".swap", ".cleaned", ".deleted", ".gone.deleted", ".tmp", ".thread.tmp")),
    "leader-epoch-checkpoint", "partition.metadata", "topic-config.json", "leader-epoch-checkpoint.tmp",
    "notes.txt", "\udcff\udcfe", ".hidden", "a b-0",
]  # fmt: skip


@pytest.fixture(autouse=True)
def silent() -> Iterator[None]:
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    yield
    structlog.configure(**before)


class Spoiler:
    """Two logs, one of which is going to be spoilt."""

    def __init__(self, disk: SimDisk, policy: str = "delete") -> None:
        self.disk = disk
        self.config = StorageConfig(segment_bytes=700, index_interval_bytes=100, cleanup_policy=policy)
        self.told: list[str] = []

    def open(self, clean: bool, same_boot: bool = True) -> Logs:
        self.disk.mkdir(ROOT)
        self.logs = Logs.open(
            [ROOT], self.disk, self.config, FixedClock(), clean=clean, same_boot=same_boot,
            before_loss=lambda partition, why: self.told.append(f"{partition}: {why}"),
        )  # fmt: skip
        return self.logs


def value(offset: int) -> bytes:
    return b"%d " % offset * 9


def filled(policy: str, clean: bool) -> SimDisk:
    """Both logs with times that rise and fall, producers, epochs and snapshots; stopped."""
    disk = SimDisk()
    spoiler = Spoiler(disk, policy)
    logs = spoiler.open(clean=False)
    for partition in (T0, OTHER):
        log = logs.create(partition, None, TopicConfig.of(spoiler.config))
        for n in range(COUNT):
            at = START_MS + (10**7 if n % 11 == 2 else n)
            put(log, value(n), at=at, epoch=n // 8, pid=n % 2 + 1, seq=n // 2)
        log.flush()
    if policy == "compact":
        compact(logs)
    logs.checkpoint_recovery_points()
    logs.checkpoint_high_watermarks(lambda: {T0: COUNT, OTHER: COUNT})
    logs.close(clean)
    return disk


def copy_of(disk: SimDisk) -> SimDisk:
    made = SimDisk()
    made.mkdir(LOG_DIR)
    made.mkdir(f"{ROOT}/{OTHER}")
    for path, content in disk.files.items():
        made.replace(path, bytes(content.data))
    return made


def spoil(disk: SimDisk, random: Random) -> str:
    """Do something to the directory of one log; what."""
    paths = sorted(path for path in disk.files if path.startswith(LOG_DIR))
    path = random.choice(paths)
    data = bytearray(disk.files[path].data)
    kind = random.randrange(7)
    if kind == 0 and data:
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)
    elif kind == 1:
        del data[random.randint(0, len(data)) :]
    elif kind == 2:
        start = random.randint(0, len(data))
        data[start : start + 40] = random.randbytes(40)
    elif kind == 3:
        path, data = (
            f"{LOG_DIR}/{random.choice(NAMES)}",
            bytearray(random.randbytes(random.choice((0, 5, 90, 4000)))),
        )
    elif kind == 4:
        path = f"{LOG_DIR}/{random.choice(NAMES)}"  # the bytes of a real file under another name
    elif kind == 5:
        disk.mkdir(f"{LOG_DIR}/{random.choice(NAMES) or 'x'}".replace(f"{LOG_DIR}/.", f"{LOG_DIR}/x."))
        return f"a directory in {LOG_DIR}"
    else:
        disk.unlink(path)
        return f"{path} is gone"
    if path not in disk.folders:
        disk.replace(path, bytes(data))
    return f"{path}, {kind}"


@pytest.mark.parametrize("clean", [True, False], ids=["clean stop", "kill"])
@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_no_file_of_one_log_ends_a_start(policy: str, clean: bool) -> None:
    before = filled(policy, clean)
    shut = 0
    for seed in range(SEEDS):
        random, disk = Random(seed), copy_of(before)
        deeds = [spoil(disk, random) for _ in range(random.choice((1, 1, 1, 3)))]
        spoiler = Spoiler(disk, policy)
        logs = spoiler.open(clean, same_boot=random.random() < 0.7)
        where = f"seed {seed}: {deeds}"
        other = logs.logs[OTHER]
        assert other.end_offset == COUNT and not any(str(OTHER) in told for told in spoiler.told), where
        if T0 not in logs.logs:
            assert logs.spoilt[T0] and spoiler.told and not logs.close(), where
            with pytest.raises(ReplicaElsewhere):
                logs.create(T0, None, TopicConfig.of(spoiler.config), is_new=False)
            shut += 1
        else:
            serve(logs, where)
    assert shut < SEEDS // 4, "most can be mended"


def serve(logs: Logs, where: str) -> None:
    log = logs.logs[T0]
    at = log.start_offset
    try:
        while data := bytes(log.read(at, 1 << 20, log.end_offset)):
            for record in iterate(data):
                assert record.value == value(record.offset), where
            *_, (_, last) = headers(data)
            at = last.next_offset
        put(log, b"more", epoch=9)
    except (DiskError, Malformed, CorruptMessage):
        return  # it is found when it is read
    logs.close()


def test_one_wrong_entry_of_an_index_is_no_more_than_a_scan() -> None:
    """The newest time stands early in the segment, so that looking for it leads through the index."""
    disk = SimDisk()
    spoiler = Spoiler(disk)
    spoiler.config = StorageConfig(index_interval_bytes=100)
    log = spoiler.open(clean=False).create(T0, None, TopicConfig.of(spoiler.config))
    for n in range(40):
        put(log, b"v" * 50, at=START_MS + (10**8 if n == 10 else n))
    assert spoiler.logs.close()
    index = f"{LOG_DIR}/{0:020d}.index"
    whole = bytes(disk.files[index].data)
    for position in range(len(whole)):
        wrong = bytearray(whole)
        wrong[position] ^= 1
        disk.replace(index, bytes(wrong))
        log = spoiler.open(clean=True).logs[T0]
        assert (log.end_offset, spoiler.told) == (40, []), position
        assert log.latest_timestamp(40) == (START_MS + 10**8, 10, 0)
        spoiler.logs.close(clean=False)


@pytest.mark.parametrize(
    ("error", "concerns"),
    [(errno.EACCES, "log"), (errno.EIO, "directory"), (errno.EMFILE, "later"), (errno.ENOSPC, "later")],
    ids=lambda each: errno.errorcode.get(each, each),
)
@pytest.mark.parametrize("path", [f"*/{T0}", f"*/{T0}/*.log", f"*/{T0}/leader-epoch-checkpoint"])
def test_whom_an_error_concerns(path: str, error: int, concerns: str) -> None:
    disk = FaultyDisk(copy_of(filled("delete", clean=False)))
    disk.fail("listdir open read", path, error)
    spoiler = Spoiler(disk)  # type: ignore[arg-type]
    if concerns == "directory":
        with pytest.raises(OSError):
            spoiler.open(clean=False)
        return
    logs = spoiler.open(clean=False)
    assert list(logs.logs) == [OTHER]
    assert (T0 in logs.spoilt, T0 in logs.closed) == (concerns == "log", concerns == "later")
    disk.heal()
    logs.take_again(logs.open_again(ROOT))
    assert (T0 in logs.logs) == (concerns == "later")


def test_a_shut_log_may_be_deleted_and_made_again() -> None:
    disk = filled("delete", clean=True)
    disk.mkdir(f"{LOG_DIR}/{1:020d}.log")
    spoiler = Spoiler(disk)
    logs = spoiler.open(clean=True)
    assert T0 in logs.spoilt
    logs.remove(T0, UUID(int=1))
    assert T0 not in logs.spoilt
    assert logs.create(T0, None, TopicConfig.of(spoiler.config)).end_offset == 0
    spoiler.told.clear()
    again = spoiler.open(clean=False)
    assert sorted(again.logs) == [T0, OTHER] and not spoiler.told

"""A log directory of Kafka's from before 0.11, or of one that was: the start says so and changes nothing."""

from struct import Struct
from zlib import crc32

import pytest

from strandline.base.types import TopicPartition
from strandline.simulation.environment.disk import SimDisk
from strandline.storage.config import StorageConfig, TopicConfig
from strandline.storage.directories.incarnation import CLEAN_MARKER, Incarnations
from strandline.storage.directories.intact import Intactness
from strandline.storage.directories.log_manager import Logs, OldFormat
from tests.storage.conftest import T0, FixedClock, make_batch, put

ROOT, LOG_DIR = "/data", f"/data/{T0}"
SEGMENT = f"{LOG_DIR}/{0:020d}.log"
OTHER = TopicPartition("a", 0)


def message(offset: int, magic: int, value: bytes = b"v") -> bytes:
    """One as Kafka 0.9 (v0) or 0.10 (v1) wrote it."""
    body = bytes([magic, 0]) + (b"\0" * 8 if magic else b"") + Struct(">i").pack(-1)
    body += Struct(">i").pack(len(value)) + value
    return Struct(">qiI").pack(offset, len(body) + 4, crc32(body)) + body


def opened(disk: SimDisk, clean: bool, told: list[str]) -> Logs:
    disk.mkdir(ROOT)
    return Logs.open(
        [ROOT], disk, StorageConfig(), FixedClock(), clean=clean, before_loss=lambda _, why: told.append(why)
    )


def kafkas(*batches: bytes) -> SimDisk:
    """A directory with one log of Kafka's, which keeps no settings, and one of ours that needs mending."""
    disk = SimDisk()
    logs = opened(disk, False, [])
    put(logs.create(OTHER, None, TopicConfig()), b"x")
    logs.close(clean=False)
    disk.open(f"{ROOT}/{OTHER}/{0:020d}.log").append([b"torn"])
    disk.mkdir(LOG_DIR)
    disk.replace(SEGMENT, b"".join(batches))
    disk.replace(f"{LOG_DIR}/{7:020d}.index", b"")  # an orphan, which a start removes
    return disk


def contents(disk: SimDisk) -> dict[str, bytes]:
    return {path: bytes(content.data) for path, content in disk.files.items()}


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("magic", [0, 1])
def test_a_start_on_old_messages_is_refused_with_path_and_remedy(magic: int, clean: bool) -> None:
    disk, told = kafkas(*(message(n, magic) for n in range(50)), make_batch(b"new", base=50)), list[str]()
    before = contents(disk)
    with pytest.raises(OldFormat, match=f"{SEGMENT} holds messages of format v{magic}.*Copy the topic"):
        opened(disk, clean, told)
    assert (contents(disk), told) == (before, []), "nothing has been touched, nothing is lost"


def test_in_a_file_that_is_being_swapped_in_too() -> None:
    disk = kafkas(make_batch(b"new", base=0))
    disk.replace(f"{SEGMENT}.swap", message(0, 1))
    with pytest.raises(OldFormat, match="swap"):
        opened(disk, False, [])


def test_old_messages_behind_new_batches_keep_their_log_shut_and_as_it_is() -> None:
    disk, told = kafkas(make_batch(b"new", base=0), *(message(n, 1) for n in range(1, 9))), list[str]()
    before = disk.read(SEGMENT)
    logs = opened(disk, False, told)
    assert "format v1" in logs.spoilt[T0] and told
    assert disk.read(SEGMENT) == before and not disk.exists(f"{ROOT}.aside")
    assert logs.logs[OTHER].end_offset == 1


@pytest.mark.parametrize("magic", [0, 1])
def test_a_batch_whose_magic_is_wrong_is_damage(magic: int) -> None:
    batch = make_batch(b"x", base=0)
    batch[16] = magic
    told: list[str] = []
    logs = opened(kafkas(batch, make_batch(b"y", base=1)), False, told)
    assert told and logs.logs[T0].end_offset == 0


@pytest.mark.parametrize("marker", [b'{"version":0,"brokerEpoch":3}', b'{"version":0,"brokerEpoch":77}'])
def test_a_refused_start_puts_the_clean_marker_back(marker: bytes) -> None:
    """Ours, or Kafka's: whoever starts next finds the directory as clean as it was."""
    disk = SimDisk()
    disk.mkdir(ROOT)
    before = Incarnations.load(disk, [ROOT], "boot")
    before.write(Intactness(3, 1, {}), flush_mode=False)
    before.release()
    disk.replace(f"{ROOT}/{CLEAN_MARKER}", marker)
    state = Incarnations.load(disk, [ROOT], "boot")
    assert not disk.exists(f"{ROOT}/{CLEAN_MARKER}")
    assert state.clean == (b"3" in marker)
    state.put_markers_back()
    assert disk.read(f"{ROOT}/{CLEAN_MARKER}") == marker

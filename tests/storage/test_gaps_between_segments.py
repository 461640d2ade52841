"""What is missing between two segments: compacted away, lost with the power, or never there."""

import pytest

from strandline.base.types import TopicPartition
from strandline.protocol.batches import headers
from strandline.simulation.environment.disk import SimDisk
from strandline.storage.config import StorageConfig, TopicConfig
from strandline.storage.directories.log_manager import Logs
from strandline.storage.disk import DiskFull
from strandline.storage.log.log import Log
from strandline.storage.log.segments import Segments
from tests.storage.compaction_harness import compact
from tests.storage.conftest import START_MS, T0, FixedClock, make_batch, put

ROOT, LOG_DIR = "/data", "/data/t-0"


class Box:
    """A log on a disk that loses its power."""

    def __init__(self, policy: str) -> None:
        self.disk = SimDisk()
        self.disk.mkdir(ROOT)
        self.config = StorageConfig(segment_bytes=1000, index_interval_bytes=100, cleanup_policy=policy)
        self.told: list[str] = []
        self.open(same_boot=True)
        self.logs.create(T0, None, TopicConfig.of(self.config))
        self.disk.sync_all(ROOT)

    def open(self, same_boot: bool = False, clean: bool = False) -> Log | None:
        self.told.clear()
        self.logs = Logs.open(
            [ROOT], self.disk, self.config, FixedClock(), clean=clean, same_boot=same_boot,
            before_loss=self.note,
        )  # fmt: skip
        return self.logs.get(T0)

    def note(self, partition: TopicPartition, why: str) -> None:
        self.told.append(why)

    @property
    def log(self) -> Log:
        return self.logs.logs[T0]

    def bases(self) -> list[int]:
        return [segment.base_offset for segment in self.log.segments]

    def held(self) -> list[int]:
        found, at = list[int](), self.log.start_offset
        while at < self.log.end_offset:
            for _, header in headers(bytes(self.log.read(at, 1 << 20, self.log.end_offset))):
                found.append(header.base_offset)
                at = header.next_offset
        return found

    def forget(self, base: int, batches: int) -> None:
        """The power goes: of one segment the last batches had not come to the medium, all else had."""
        self.disk.sync_all(ROOT)
        content = self.disk.files[f"{LOG_DIR}/{base:020d}.log"]
        sizes = [header.size for _, header in headers(bytes(content.data))]
        content.synced = len(content.data) - sum(sizes[len(sizes) - batches :])
        self.disk.lose_power(0.0)


@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_a_lost_end_of_a_closed_segment_is_a_loss_under_any_policy(policy: str) -> None:
    box = Box(policy)
    for _ in range(14):
        put(box.log, b"x" * 60)
    assert box.bases() == [0, 7]
    box.forget(0, batches=3)
    box.open()
    assert box.told == ["found segment 7: expected 4"]
    assert box.held() == list(range(box.log.end_offset)) == [0, 1, 2, 3]


@pytest.mark.parametrize("points", ["as they were", "unreadable"])
def test_what_was_compacted_away_is_no_loss(points: str) -> None:
    box = Box("compact")
    for _ in range(30):
        put(box.log, b"x" * 60)
    compact(box.logs)
    held, bases = box.held(), box.bases()
    assert len(bases) > 2 and held != list(range(30)), "something has gone"
    if points == "unreadable":
        box.logs.cleaned.note(T0, bases[-1], box.logs.cleaned.cuts(T0))
        box.disk.replace(f"{ROOT}/recovery-point-offset-checkpoint", b"?")
    box.disk.sync_all(ROOT)
    box.disk.lose_power(0.0)
    box.open()
    assert (box.told, box.held()) == ([], held)


def test_a_follower_of_a_compacted_leader_has_no_gap_between_segments() -> None:
    """So one that is there after a power loss has another reason."""
    box, at = Box("compact"), 0
    for _ in range(20):
        box.log.append_replicated(make_batch(b"x" * 60, base=at), now_ms=START_MS)
        at += 3
    assert box.log.end_offset == 58
    for before, after in zip(box.log.segments, box.log.segments[1:], strict=False):
        assert [h.next_offset for _, h in before.headers()][-1] == after.base_offset
    box.disk.sync_all(ROOT)
    box.disk.lose_power(0.0)
    box.open()
    assert (box.told, box.log.end_offset) == ([], 58)
    box.forget(box.bases()[0], batches=1)
    box.open()
    assert box.told


def test_a_gap_wider_than_a_segment_moves_the_end_before_the_batch_is_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As the next start would read it from the name of the new segment."""
    box, far = Box("compact"), 1 << 33
    put(box.log, b"a")
    with monkeypatch.context() as broken, pytest.raises(DiskFull):
        broken.setattr(Segments, "write", _refuse)
        box.log.append_replicated(make_batch(b"b", base=far), now_ms=START_MS)
    end = box.log.end_offset
    assert 1 < end <= far
    box.open(same_boot=True)
    assert (box.told, box.log.end_offset) == ([], end)
    put(box.log, b"c")
    assert box.held() == [0, end]


def _refuse(*_: object) -> None:
    raise DiskFull(LOG_DIR, OSError("no room"))


def empty(box: Box, *bases: int) -> None:
    """Files such as a roll has left that failed after the first of them."""
    for base in bases:
        box.disk.open(f"{LOG_DIR}/{base:020d}.log", create=True)


@pytest.mark.parametrize("policy", ["delete", "compact"])
@pytest.mark.parametrize("clean", [True, False], ids=["clean stop", "kill"])
@pytest.mark.parametrize("bases", [(2,), (2, 9), (13,)], ids=str)
def test_an_empty_segment_within_others_is_nothing(bases: tuple[int, ...], clean: bool, policy: str) -> None:
    box = Box(policy)
    for _ in range(14):
        put(box.log, b"x" * 60)
    box.logs.close(clean)
    empty(box, *bases)
    box.open(same_boot=True, clean=clean)
    assert (box.told, box.held(), box.bases()) == ([], list(range(14)), [0, 7])
    assert not [name for name in box.disk.listdir(LOG_DIR) if name[:20] in {f"{base:020d}" for base in bases}]
    put(box.log, b"more")


def test_one_beyond_the_end_is_nothing_on_the_same_boot_and_a_loss_on_another() -> None:
    box = Box("delete")
    put(box.log, b"x")
    box.disk.sync_all(ROOT)
    empty(box, 5)
    box.open(same_boot=True)
    assert (box.told, box.log.end_offset, box.bases()) == ([], 1, [0])
    empty(box, 5)
    box.open(same_boot=False)
    assert box.told == ["found segment 5: expected 1"]
    assert box.held() == [0]


def test_a_torn_end_before_an_empty_segment_is_no_loss() -> None:
    box = Box("delete")
    put(box.log, b"x")
    box.disk.open(f"{LOG_DIR}/{0:020d}.log").append([make_batch(b"torn", base=1)[:50]])
    empty(box, 1)
    box.open(same_boot=True)
    assert (box.told, box.held(), box.log.end_offset) == ([], [0], 1)

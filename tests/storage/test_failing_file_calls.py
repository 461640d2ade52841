"""Any file call fails, once, in the middle of what makes, cuts or replaces segments; the log goes on where it
may, stops in either way, and is opened again: nothing that was acknowledged is gone, and offsets are right.
"""

import errno
from collections.abc import Callable, Iterator
from uuid import UUID

import pytest
import structlog

from strandline.protocol.batches import headers
from strandline.protocol.records import iterate
from strandline.simulation.environment.disk import SimDisk
from strandline.storage.cleaning.job import Cleaned
from strandline.storage.config import StorageConfig, TopicConfig
from strandline.storage.directories.log_manager import Logs
from strandline.storage.disk import DiskError
from strandline.storage.log.log import Log
from tests.storage.compaction_harness import cleaning, compact
from tests.storage.conftest import START_MS, T0, FixedClock, make_batch, put
from tests.storage.faulty_disk import Fault, FaultyDisk

ROOT = "/data"
COUNT = 12
MORE = 8
CALLS_MAX = 400

Values = dict[int, bytes]
Act = Callable[[Logs], None]


class OneFails(FaultyDisk):
    """The call after so many fails, whatever it is; then all goes well again."""

    def __init__(self, inner: SimDisk) -> None:
        super().__init__(inner)
        self.left = -1
        self.error = errno.EIO
        self.broke: tuple[str, str] | None = None

    def struck(self, call: str, path: str) -> Fault | None:
        self.left -= 1
        if self.left == -1:
            self.broke = (call, path)
            return Fault((call,), path, self.error, keep=20)
        return super().struck(call, path)

    def arm(self, left: int, error: int) -> None:
        self.left, self.error = left, error

    def disarm(self) -> None:
        self.left = -1


def value(offset: int) -> bytes:
    return b"%d " % offset * 12


def small(offset: int) -> bytes:
    return b"%d" % offset


class Story:
    """A log, what was acknowledged of it, and a disk that fails at one call."""

    def __init__(self, files: dict[str, bytes], policy: str) -> None:
        self.disk = OneFails(disk_of(files))
        self.config = StorageConfig(segment_bytes=400, index_interval_bytes=100, cleanup_policy=policy)
        self.lost: list[str] = []
        self.open(clean=False)

    def open(self, clean: bool) -> None:
        self.logs = Logs.open(
            [ROOT], self.disk, self.config, FixedClock(), clean=clean,
            before_loss=lambda partition, why: self.lost.append(why),
        )  # fmt: skip

    @property
    def log(self) -> Log:
        return self.logs.logs[T0]

    def files(self) -> dict[str, bytes]:
        return {path: bytes(content.data) for path, content in self.disk.inner.files.items()}


def disk_of(files: dict[str, bytes]) -> SimDisk:
    disk = SimDisk()
    disk.mkdir(f"{ROOT}/t-0")
    for path, data in files.items():
        disk.replace(path, data)
    return disk


def filled(policy: str) -> dict[str, bytes]:
    """A log of several segments, in which every second key is old, with a producer among others."""
    story = Story({}, policy)
    log = story.logs.create(T0, UUID(int=5), TopicConfig.of(story.config))
    for number in range(COUNT):
        put(log, value(number), pid=7 if number % 3 == 0 else -1, seq=number // 3 if number % 3 == 0 else -1)
    log.flush()
    story.logs.checkpoint_recovery_points()
    story.logs.checkpoint_high_watermarks(lambda: {T0: COUNT - 2})
    story.logs.close(clean=False)
    return story.files()


def values(log: Log) -> Values:
    """Every offset's value; reading from each gives the batch that reaches it."""
    found: Values = {}
    for offset in range(log.start_offset, log.end_offset):
        data = bytes(log.read(offset, 1, log.end_offset))
        (_, header), *_ = headers(data)
        assert header.base_offset <= offset < header.next_offset or log.gaps_allowed
        found |= {record.offset: record.value or b"" for record in iterate(data)}
    return found


# -- what is done


def append(logs: Logs) -> None:
    """As leader, with a roll."""
    log = logs.logs[T0]
    rolled = len(log.segments) + 2
    while len(log.segments) < rolled:
        put(log, value(log.end_offset))


def replicate(logs: Logs) -> None:
    """As follower: one run that needs several segments."""
    log, run = logs.logs[T0], bytearray()
    for offset in range(log.end_offset, log.end_offset + 8):
        run += make_batch(value(offset), base=offset)
    log.append_replicated(memoryview(run), now_ms=START_MS)


def restart(logs: Logs) -> None:
    logs.logs[T0].restart_at(1000, START_MS)


def restart_within(logs: Logs) -> None:
    log = logs.logs[T0]
    log.restart_at(log.segments[1].base_offset, START_MS)


GROWING = (append, replicate, compact)


def steps(act: Act, error: int) -> Iterator[tuple[Story, DiskError | None]]:
    """The story again and again, each time with another call that fails."""
    policy = "compact" if act is compact else "delete"
    before = filled("delete")
    for step in range(CALLS_MAX):
        story = Story(before, policy)
        story.disk.arm(step, error)
        trouble = None
        try:
            act(story.logs)
        except DiskError as raised:
            trouble = raised
        story.disk.disarm()
        yield story, trouble
        if story.disk.broke is None:
            assert step > 10, "the calls of this deed are seen"
            return
    raise AssertionError("it makes too many calls")


@pytest.fixture(autouse=True)
def silent() -> Iterator[None]:
    """Thousands of starts with something to report."""
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    yield
    structlog.configure(**before)


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EMFILE, errno.EIO], ids=errno.errorcode.get)
@pytest.mark.parametrize(
    "act", [append, replicate, compact, restart, restart_within], ids=lambda a: a.__name__
)
def test_nothing_is_lost_whatever_fails(act: Act, error: int) -> None:
    for story, trouble in steps(act, error):
        where = f"after {story.disk.broke}: {trouble}"
        if story.log.failed:
            judge_failed(story, act, where)
        else:
            judge(story, act, trouble, where)


def judge(story: Story, act: Act, trouble: DiskError | None, where: str) -> None:
    """The log goes on, and both ways to stop leave the same of it."""
    log, has_gaps = story.log, act is compact
    if act not in GROWING:
        begun = log.start_offset == log.end_offset == len(log.segments) * log.segments[0].base_offset
        assert begun or (trouble and (log.start_offset, log.end_offset) == (0, COUNT)), (
            f"all or nothing {where}"
        )
    for _ in range(MORE):
        put(log, small(log.end_offset))  # there may be room for it where a larger one needed a new segment
    served, bounds = values(log), (log.start_offset, log.end_offset)
    assert all(held in (value(offset), small(offset)) for offset, held in served.items()), where
    assert has_gaps or list(served) == list(range(*bounds)), where
    crashed = Story(story.files(), "compact" if has_gaps else "delete")
    assert story.logs.close(), where
    story.open(clean=True)
    for each in (crashed, story):
        assert not each.lost, f"{each.lost} {where}"
        assert (each.log.start_offset, each.log.end_offset) == bounds, where
        assert values(each.log) == served, where
        put(each.log, b"more")


def judge_failed(story: Story, act: Act, where: str) -> None:
    """It takes no more. What it held is there at the next start, or has been taken away as was wanted."""
    log, (call, _) = story.log, story.disk.broke or ("", "")
    never_again = story.disk.error == errno.EIO or call == "sync"
    assert log.damaged or never_again, f"the directory is well {where}"
    with pytest.raises(DiskError):
        put(log, b"no")
    held = log.end_offset
    story.logs.close(clean=False)
    story.open(clean=False)
    assert not story.lost, f"{story.lost} {where}"
    log = story.log
    served = values(log)
    assert all(held in (value(offset), small(offset)) for offset, held in served.items()), where
    assert act is compact or list(served) == list(range(log.start_offset, log.end_offset)), where
    assert act not in GROWING or log.end_offset >= held, where
    put(log, b"more")


def test_a_swap_that_finds_no_descriptor_has_not_begun() -> None:
    """The replica goes on as it was; it would be offline until the next start if a file lacked afterwards."""
    story = Story(filled("compact"), "compact")
    log, before = story.log, values(story.log)
    for report in cleaning(story.logs):
        if isinstance(report, Cleaned):
            missing = story.disk.fail("open", "*.log*", errno.EMFILE)
            with pytest.raises(DiskError):
                log.replace(report.bases)
            story.disk.heal(missing)
            assert values(log) == before
            put(log, value(log.end_offset))
            before = values(log)
            break
    compact(story.logs)
    assert not log.failed
    assert values(log).items() <= before.items()

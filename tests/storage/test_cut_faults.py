"""A file call fails in the middle of what takes records out of a log, at each call and in each way.

Then either nothing has changed, and the same works a moment later; or the log is closed for appends, and what
the next start finds is the beginning of the log that was there. Never does a log go on whose epochs say one
thing while its records say another: its follower would keep records that its leader does not have.
"""

import errno
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any
from uuid import UUID

import pytest

from strandline.base.types import BrokerId, Epoch, Offset
from strandline.protocol.batches import headers
from strandline.protocol.records import iterate
from strandline.replication.effects import Truncate
from strandline.replication.follower import AskEpochEnd, AskRecords, Follower
from strandline.simulation.environment.disk import SimDisk
from strandline.storage.config import StorageConfig, TopicConfig
from strandline.storage.directories.log_manager import Logs
from strandline.storage.disk import DiskError, DiskFailed, LogDamaged
from strandline.storage.log.log import Log
from tests.storage.conftest import START_MS, T0, FixedClock, make_batch, put
from tests.storage.faulty_disk import Fault, FaultyDisk

NEVER_FAIL = ("exists", "is_link", "free_bytes", "total_bytes")
ERRORS = (errno.EMFILE, errno.EIO, errno.ENOSPC)
COUNT = 24  # batches, of two records each
EPOCH_OF = [1] * 10 + [2] * 9 + [5] * 5
Act = Callable[[Log], object]
Record = tuple[int, int, bytes]  # offset, epoch, value


class OneFails(FaultyDisk):
    """The call `at` fails, or with `lasting` that one and all after it."""

    def __init__(self, error: int, lasting: bool) -> None:
        super().__init__(SimDisk())
        self.fault = Fault((), "*", error)
        self.at, self.lasting = 1 << 30, lasting
        self.made = 0
        self.has_failed = False

    def struck(self, call: str, path: str) -> Fault | None:
        if call in NEVER_FAIL:
            return None
        self.made += 1
        if self.made != self.at and not (self.lasting and self.made > self.at):
            return None
        self.has_failed = True
        return self.fault

    def fail_at(self, place: int) -> None:
        """Of the calls that come now, this one."""
        self.made, self.at, self.has_failed = 0, place, False

    def is_over(self) -> bool:
        """So many calls were not made."""
        return not self.has_failed

    def heal(self, *faults: Fault) -> None:
        self.at = 1 << 30


class Stage:
    """A log in several segments, with epochs and producers, on such a disk."""

    def __init__(self, error: int, lasting: bool, compacted: bool = False) -> None:
        self.disk: Any = OneFails(error, lasting)
        policy = "compact" if compacted else "delete"
        self.config = StorageConfig(segment_bytes=700, index_interval_bytes=150, cleanup_policy=policy)
        self.lost: list[str] = []
        self.logs = self._open()
        self.log = self.logs.create(T0, UUID(int=5), TopicConfig.of(self.config))
        for number, epoch in enumerate(EPOCH_OF):
            put(self.log, b"%d" % number * 30, b"-", epoch=epoch, pid=3, seq=2 * number)
        self.log.flush()
        self.logs.checkpoint_recovery_points()
        self.logs.checkpoint_high_watermarks(lambda: {T0: 12})

    def _open(self) -> Logs:
        return Logs.open(
            ["/data"], self.disk, self.config, FixedClock(), clean=False,
            before_loss=lambda partition, why: self.lost.append(why),
        )  # fmt: skip

    def restart(self) -> Log:
        self.disk.heal()
        self.logs.close(clean=False)
        self.logs = self._open()
        return self.logs.logs[T0]


def records(log: Log) -> list[Record]:
    found: list[Record] = []
    at = log.start_offset
    while at < log.end_offset:
        data = b"".join(bytes(part) for part in log.read(at, 1 << 20, log.end_offset).parts)
        for position, header in headers(data):
            batch = data[position : position + header.size]
            found += [(each.offset, header.leader_epoch, bytes(each.value or b"")) for each in iterate(batch)]
        at = found[-1][0] + 1
    return found


def state(log: Log) -> object:
    """All that others go by."""
    return log.start_offset, log.end_offset, list(log.epochs.entries), log.producers.snapshot(), records(log)


def believable(log: Log) -> None:
    """The epochs and the producers are those of the records that are there."""
    for offset, epoch, _ in records(log):
        assert log.epochs.epoch_at(offset) == epoch
    assert all(start <= log.end_offset for _, start in log.epochs.entries)
    known = log.producers.get(3)
    last = max((offset for offset, _, _ in records(log)), default=-1)
    assert known is None or not known.batches or known.batches[-1].last_offset <= last


def cut_within_the_last(log: Log) -> None:
    log.truncate_to(log.segments[-1].base_offset + 2)


def cut_to_a_boundary(log: Log) -> None:
    log.truncate_to(log.segments[-2].base_offset)


def cut_deep(log: Log) -> None:
    log.truncate_to(17)


def restart(log: Log) -> None:
    log.restart_at(1000, START_MS)


ACTS: tuple[Act, ...] = (cut_within_the_last, cut_to_a_boundary, cut_deep, restart)


def every_call(make: Callable[[], Stage]) -> Iterator[Stage]:
    """A stage on which the first call fails, one on which the second does, and so on, until none does."""
    for place in range(1, 500):
        stage = make()
        stage.disk.fail_at(place)
        yield stage
        if stage.disk.is_over():
            return
    raise AssertionError("a cut is not so long")


@pytest.mark.parametrize("lasting", [False, True], ids=["once", "for good"])
@pytest.mark.parametrize("error", ERRORS, ids=errno.errorcode.get)
@pytest.mark.parametrize("act", ACTS)
def test_whole_or_not_at_all_or_out_of_use(act: Act, error: int, lasting: bool) -> None:
    whole = Stage(0, False)
    before = records(whole.log)
    act(whole.log)
    after = state(whole.log)
    outcomes = set()
    for stage in every_call(lambda: Stage(error, lasting)):
        log = stage.log
        was = state_while_healthy(stage)
        try:
            act(log)
        except DiskError as trouble:
            ends = isinstance(trouble, DiskFailed | LogDamaged)  # a broker takes the replica offline
            assert ends or not log.failed, trouble
            if ends:
                outcomes.add("out of use")
                again = stage.restart()
                believable(again)
                assert act is restart or records(again) == before[: len(records(again))]
                continue
            outcomes.add("not at all")
            stage.disk.heal()
            assert state(log) == was, trouble
            act(log)
        else:
            outcomes.add("whole")
            stage.disk.heal()
        assert state(log) == after
        believable(log)
        assert put(log, b"new", epoch=7) == log.end_offset - 1
        believable(stage.restart())
        assert not stage.lost
    assert "whole" in outcomes
    assert "not at all" in outcomes or error == errno.EIO


def state_while_healthy(stage: Stage) -> object:
    at, made = stage.disk.at, stage.disk.made
    stage.disk.at = 1 << 30
    seen = state(stage.log)
    stage.disk.at, stage.disk.made = at, made
    return seen


def gapped() -> Stage:
    """Batches before offset 40 have been compacted away."""
    stage = Stage(errno.ENOSPC, False, compacted=True)
    stage.log.truncate_to(20)
    stage.log.append_replicated(make_batch(b"x" * 30, base=40, epoch=5))
    return stage


def test_the_cut_of_a_compacted_log_is_whole_whether_its_end_can_be_told_or_not() -> None:
    """The name of an empty segment tells it, where the batch before it may have been compacted away."""
    outcomes = set()
    for stage in every_call(gapped):
        log = stage.log
        try:
            log.truncate_to(25)
        except DiskError as error:
            stage.disk.heal()
            outcomes.add(log.end_offset)
            assert not log.failed or log.damaged
            if log.failed or isinstance(error, DiskFailed):
                continue  # the replica is offline
            assert log.end_offset == 41, "nothing of the cut was made"
            log.truncate_to(25)
        stage.disk.heal()
        assert log.end_offset == 25
        log.flush()
        stage.logs.checkpoint_recovery_points()
        stage.logs.checkpoint_high_watermarks(lambda: {T0: 25})
        found = stage.restart().end_offset
        outcomes.add(found)
        assert found == 25 or not stage.lost, "what a start finds less was not promised"
    assert outcomes == {20, 25, 41}, "the end could not be told, it was told, and nothing was cut at first"


@pytest.mark.parametrize("later", [Log.save_what_waits, lambda log: put(log, b"new", epoch=7)])
def test_an_end_that_could_not_be_told_is_told_when_there_is_room(later: Act) -> None:
    ends = set()
    for stage in every_call(gapped):
        with suppress(DiskError):
            stage.log.truncate_to(25)
        stage.disk.heal()
        log = stage.log
        if not log.failed and log.end_offset == 25:
            ends.add(log.told_end)
            later(log)
            assert log.told_end == log.end_offset
            assert stage.restart().end_offset == log.end_offset
            assert not stage.lost
    assert len(ends) == 2, "it was told at once, and it was not"


class Histories:
    """A leader, and a follower that led an epoch of its own of which the leader has nothing."""

    def __init__(self, error: int) -> None:
        self.leader, self.stage = Stage(0, False), Stage(error, False)
        kept = self.leader.log.truncate_to(24)
        self.leader.log.assign_epoch(6)
        for number in range(8):
            put(self.leader.log, b"led %d" % number, epoch=6)
        follower = self.stage.log
        follower.truncate_to(kept - 4)
        follower.assign_epoch(4)
        for number in range(9):
            put(follower, b"mine %d" % number, epoch=4)
        self.rules = Follower(follower, BrokerId(1), Epoch(6), Offset(kept - 4))
        self.disk = self.stage.disk

    def copy(self, offset: int) -> None:
        """What the leader sends to one who holds all before `offset`."""
        theirs = self.leader.log
        data = b"".join(bytes(each) for each in theirs.read(offset, 1 << 20, theirs.end_offset).parts)
        self.stage.log.append_replicated(bytearray(data), 6, START_MS)

    def round(self) -> bool:
        """One question of the follower, and what it does with the answer; True if it has all."""
        theirs, mine, rules = self.leader.log, self.stage.log, self.rules
        asked = rules.question()
        if isinstance(asked, AskEpochEnd):
            epoch, end = theirs.end_offset_for(asked.epoch)
            effects = rules.epoch_ends(asked, Epoch(epoch), Offset(end))
        else:
            assert isinstance(asked, AskRecords)
            epoch, end = theirs.end_offset_for(asked.last_epoch)
            if epoch == asked.last_epoch and end >= asked.offset:
                self.copy(asked.offset)
                return mine.end_offset == theirs.end_offset
            effects = rules.diverged(asked, Epoch(epoch), Offset(end))
        for effect in effects:
            assert isinstance(effect, Truncate)
            mine.truncate_to(effect.to)
            rules.truncated(effect)
        return False


@pytest.mark.parametrize("error", ERRORS, ids=errno.errorcode.get)
def test_no_follower_keeps_what_its_leader_has_not(error: int) -> None:
    for histories in every_history(error):
        log, offline = histories.stage.log, False
        for _ in range(9):
            try:
                if histories.round():
                    break
            except DiskError as trouble:
                offline = isinstance(trouble, DiskFailed | LogDamaged)
                if offline:
                    break
        else:
            raise AssertionError("it is not that often that the call fails")
        histories.disk.heal()
        assert offline or records(log) == records(histories.leader.log)


def every_history(error: int) -> Iterator[Histories]:
    """As `every_call`."""
    for place in range(1, 500):
        histories = Histories(error)
        histories.disk.fail_at(place)
        yield histories
        if histories.disk.is_over():
            return
    raise AssertionError("they find together in fewer calls")

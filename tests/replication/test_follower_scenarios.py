"""Runs tests/scenarios/follower/*.txt: one follower, told what its leader answers."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from strandline.base.types import BrokerId, Epoch, Offset
from strandline.replication.effects import Effects, FailReplica, HighWatermarkMoved, RestartAt, Truncate
from strandline.replication.follower import (
    NO_BOUND,
    AskEpochEnd,
    AskRecords,
    FlushFirst,
    Follower,
    Idle,
    Question,
)

STORIES = sorted((Path(__file__).parent.parent / "scenarios" / "follower").glob("*.txt"))


class ListLog:
    """A log as the list of its records' epochs; it is its own history."""

    def __init__(self, epochs: list[int], start: int = 0) -> None:
        self.records = epochs
        self.start_offset = Offset(start)
        self.flushed_offset = 0
        self.generation = 0

    @property
    def end_offset(self) -> Offset:
        return Offset(self.start_offset + len(self.records))

    @property
    def epochs(self) -> "ListLog":
        return self

    @property
    def latest(self) -> Epoch:
        return Epoch(self.records[-1] if self.records else -1)

    def end_offset_for(self, epoch: Epoch, end_offset: Offset) -> tuple[Epoch, Offset]:
        if epoch == self.latest:
            return epoch, end_offset
        later = [i for i, e in enumerate(self.records) if e > epoch]
        if not later:
            return Epoch(-1), Offset(-1)
        upto = [e for e in self.records if e <= epoch]
        return Epoch(upto[-1]) if upto else epoch, Offset(self.start_offset + later[0])

    def cut(self, to: int) -> None:
        del self.records[max(0, to - self.start_offset) :]
        self.flushed_offset = min(self.flushed_offset, self.end_offset)
        self.generation += 1


class Story:
    """One follower and its log."""

    def __init__(self) -> None:
        self.log = ListLog([])
        self.follower: Follower
        self.asked: Question | FlushFirst | None = None

    def perform(self, event: str) -> list[str]:
        for pattern, method in self.VERBS.items():
            found = re.fullmatch(pattern, event)
            if found:
                return [*self.done(method(self, *found.groups())), self.asks()]
        raise AssertionError(f"no such event: {event}")

    def done(self, effects: Effects) -> list[str]:
        lines = []
        for effect in effects:
            match effect:
                case Truncate(to, _):
                    lines.append(f"cuts to {to}")
                    self.log.cut(to)
                    self.follower.truncated(effect)
                case RestartAt(offset):
                    lines.append(f"drops its log and begins at {offset}")
                    self.log = ListLog([], offset)
                    self.log.flushed_offset = offset
                    self.follower._log = self.log
                    self.follower.restarted()
                case HighWatermarkMoved(to):
                    lines.append(f"watermark {to}")
                case FailReplica(reason):
                    lines.append(f"goes offline: {reason}")
                case _:
                    raise AssertionError(f"a follower does not ask for {effect}")
        return lines

    def asks(self) -> str:
        self.asked = self.follower.question()
        match self.asked:
            case AskEpochEnd(_, epoch, _):
                return f"asks where epoch {epoch} ends"
            case AskRecords(_, offset, last, _):
                return f"fetches from {offset}" + (f", its last epoch is {last}" if last >= 0 else "")
            case FlushFirst():
                return "flushes first"
        assert isinstance(self.follower.stage, Idle)
        return f"is silent: {self.follower.stage.why}"

    def follows(
        self, leader: str, epoch: str, log: str, start: str | None, hw: str | None, unflushed: str | None
    ) -> Effects:
        self.log = ListLog([] if log == "empty" else [int(e) for e in log.split()], int(start or 0))
        self.follower = Follower(
            self.log,
            BrokerId(int(leader)),
            Epoch(int(epoch)),
            Offset(int(hw or 0)),
            NO_BOUND if unflushed is None else int(unflushed),
        )
        return ()

    def flushed(self, offset: str) -> Effects:
        self.log.flushed_offset = int(offset)
        return ()

    def epoch_ends(self, epoch: str, end: str) -> Effects:
        assert isinstance(self.asked, AskEpochEnd)
        return self.follower.epoch_ends(self.asked, Epoch(int(epoch)), Offset(int(end)))

    def late_epoch_ends(self, epoch: str, end: str) -> Effects:
        late = AskEpochEnd(Epoch(self.follower.epoch - 1), self.log.latest, self.log.generation)
        return self.follower.epoch_ends(late, Epoch(int(epoch)), Offset(int(end)))

    def parts(self, epoch: str, end: str) -> Effects:
        assert isinstance(self.asked, AskRecords)
        return self.follower.diverged(self.asked, Epoch(int(epoch)), Offset(int(end)))

    def records(self, epochs: str, hw: str) -> Effects:
        assert isinstance(self.asked, AskRecords) and self.follower.accepts(self.asked)
        self.log.records += [] if epochs == "nothing" else [int(e) for e in epochs.split()]
        return self.follower.replicated(Offset(int(hw)))

    def out_of_range(self, start: str) -> Effects:
        assert isinstance(self.asked, AskRecords)
        return self.follower.out_of_range(self.asked, Offset(int(start)))

    def refused(self, code: str) -> Effects:
        assert isinstance(self.asked, AskEpochEnd | AskRecords)
        self.follower.refused(self.asked, int(code))
        return ()

    VERBS: dict[str, Callable[..., Effects]] = {
        r"it follows (-?\d+) in epoch (\d+); its log is ([\d ]+|empty)(?:, begins at (\d+))?"
        r"(?:, watermark (\d+))?(?:, at most (\d+) unflushed)?": follows,
        r"flushed up to (\d+)": flushed,
        r"epoch (-?\d+) ends at (-?\d+)": epoch_ends,
        r"an answer to the leader before: epoch (-?\d+) ends at (-?\d+)": late_epoch_ends,
        r"our histories part: epoch (-?\d+) ends at (-?\d+)": parts,
        r"records of epochs ([\d ]+), watermark (\d+)": records,
        r"(nothing) new, watermark (\d+)": records,
        r"out of range, the leader's log begins at (\d+)": out_of_range,
        r"error (\d+)": refused,
    }


@pytest.mark.parametrize("story", STORIES, ids=lambda path: path.stem)
def test_story(story: Path, replay: Callable[..., None]) -> None:
    replay(f"follower/{story.name}", Story().perform)


def test_there_are_stories() -> None:
    assert len(STORIES) >= 6


def test_an_answer_counts_for_the_end_that_was_asked_from() -> None:
    story = Story()
    story.perform("it follows 1 in epoch 2; its log is 2 2, watermark 0")
    story.perform("epoch 2 ends at 2")
    asked = story.asked
    assert isinstance(asked, AskRecords) and story.follower.accepts(asked)
    story.log.records.append(2)
    assert not story.follower.accepts(asked), "what it brings has come already"

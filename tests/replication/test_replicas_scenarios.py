"""Runs tests/scenarios/replicas/*.txt: leaders and followers of one partition, and their talk.

No broker runs here: brokers A, B, C are the two rule machines over logs of (epoch, record).
"""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from strandline.protocol.kinds import BrokerId, Epoch, Incarnation, Offset
from strandline.replication.effects import HighWatermarkMoved, IsrChanged, Truncate, WriteIsr
from strandline.replication.follower import AskEpochEnd, AskRecords, Follower
from strandline.replication.leader import Leader, LeaderOptions, Mandate, Membership
from strandline.storage.epochs import EpochHistory

STORIES = sorted((Path(__file__).parent.parent / "scenarios" / "replicas").glob("*.txt"))
EVERYBODY = Membership(frozenset(map(BrokerId, range(3))))


class ListLog:
    """A log as a list of (epoch, record)."""

    def __init__(self) -> None:
        self.records: list[tuple[int, str]] = []
        self.epochs = EpochHistory()
        self.start_offset = 0
        self.generation = 0

    @property
    def end_offset(self) -> int:
        return len(self.records)

    def append(self, epoch: int, record: str) -> None:
        self.epochs.assign(epoch, self.end_offset)
        self.records.append((epoch, record))

    def cut(self, to: int) -> None:
        del self.records[to:]
        self.epochs.truncate_from_end(to)
        self.generation += 1


class Broker:
    """One replica."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.id = BrokerId(ord(name) - ord("A"))
        self.log = ListLog()
        self.watermark = 0  # as its checkpoint has it
        self.leader: Leader | None = None
        self.follower: Follower | None = None

    @property
    def high_watermark(self) -> int:
        if self.leader is not None:
            return self.leader.high_watermark
        return self.watermark if self.follower is None else self.follower.high_watermark

    def shown(self) -> str:
        records = " ".join(record for _, record in self.log.records) or "empty"
        epochs = " ".join(f"({epoch},{start})" for epoch, start in self.log.epochs.entries)
        return (
            f"{self.name}: {records} | end {self.log.end_offset}, watermark {self.high_watermark}"
            f" | epochs {epochs or 'none'}"
        )


class Story:
    """Up to three replicas; time stands still, so that nobody is ever late."""

    def __init__(self) -> None:
        self.brokers = {name: Broker(name) for name in "ABC"}
        self.parked: dict[str, str] = {}  # follower -> leader
        self.lines: list[str] = []

    def perform(self, event: str) -> list[str]:
        self.lines = []
        for pattern, method in self.VERBS.items():
            found = re.fullmatch(pattern, event)
            if found:
                method(self, *found.groups())
                return self.lines
        raise AssertionError(f"no such event: {event}")

    def leads(self, name: str, epoch: str, replicas: str, isr: str) -> None:
        broker = self.brokers[name]
        watermark = broker.high_watermark
        broker.log.epochs.assign(int(epoch), broker.log.end_offset)
        mandate = Mandate(Epoch(int(epoch)), self.ids(replicas), self.ids(isr), int(epoch))
        end = Offset(broker.log.end_offset)
        broker.leader = Leader(
            broker.id, mandate, end, Offset(watermark), 0.0, EVERYBODY, LeaderOptions(lag_seconds_max=10.0)
        )
        broker.follower = None
        broker.leader.opened(0.0)
        self.show(name)

    def follows(self, name: str, leader: str, epoch: str) -> None:
        broker = self.brokers[name]
        watermark = broker.high_watermark
        broker.leader = None
        broker.follower = Follower(broker.log, self.brokers[leader].id, Epoch(int(epoch)), Offset(watermark))
        self.show(name)

    def crashes(self, name: str, watermark: str) -> None:
        """The log stands in the page cache; of the watermark, only the checkpoint is left."""
        broker = self.brokers[name]
        broker.leader = broker.follower = None
        broker.watermark = int(watermark)
        self.parked.pop(name, None)
        self.show(name)

    def writes(self, name: str, record: str) -> None:
        leader = self.leading(name)
        self.brokers[name].log.append(leader.epoch, record)
        self.show(name)
        for follower in [f for f, at in self.parked.items() if at == name]:
            del self.parked[follower]
            self.lines.append(f"{name} wakes the fetch of {follower}")
            self.answer(follower, name)
        end = Offset(self.brokers[name].log.end_offset)
        self.moved(name, leader.appended(end, end, 0.0))

    def fetches(self, name: str) -> None:
        follower = self.brokers[name].follower
        assert follower is not None, f"{name} follows nobody"
        leader_name = chr(ord("A") + follower.leader)
        leader = self.leading(leader_name)
        assert follower.epoch == leader.epoch, "only a leader of the same epoch answers"
        while isinstance(question := follower.question(), AskEpochEnd):
            epoch, end = self.brokers[leader_name].log.epochs.end_offset_for(
                question.epoch, self.brokers[leader_name].log.end_offset
            )
            self.lines.append(f"{name} asks where epoch {question.epoch} ends")
            self.lines.append(f"{leader_name} answers: epoch {epoch} ends at {end}")
            (cut,) = follower.epoch_ends(question, Epoch(epoch), Offset(end))
            assert isinstance(cut, Truncate)
            kept = self.brokers[name].log.end_offset <= cut.to
            self.brokers[name].log.cut(cut.to)
            follower.truncated(cut)
            self.lines.append(f"{name} keeps all" if kept else f"{name} cuts to {cut.to}")
        assert isinstance(question, AskRecords)
        self.lines.append(f"{name} fetches from {question.offset}")
        self.moved(leader_name, leader.fetched(self.brokers[name].id, Incarnation(1), question.offset, 0.0))
        if question.offset == self.brokers[leader_name].log.end_offset:
            self.parked[name] = leader_name
            self.lines.append(f"{leader_name} parks it")
        else:
            self.answer(name, leader_name)

    def times_out(self, name: str) -> None:
        self.answer(name, self.parked.pop(name))

    def lands(self, name: str) -> None:
        leader = self.leading(name)
        self.moved(name, leader.isr_landed(leader.version + 1, 0.0))

    def answer(self, name: str, leader_name: str) -> None:
        """The leader reads at the moment of its answer; the follower writes, then adopts the watermark."""
        broker, leader = self.brokers[name], self.brokers[leader_name]
        assert broker.follower is not None
        new = leader.log.records[broker.log.end_offset :]
        told = " ".join(record for _, record in new) or "nothing"
        self.lines.append(f"{leader_name} answers: {told}, watermark {leader.high_watermark}")
        for epoch, record in new:
            broker.log.append(epoch, record)
        broker.follower.replicated(Offset(leader.high_watermark))
        self.show(name)

    def moved(self, name: str, effects: tuple[object, ...]) -> None:
        for effect in effects:
            match effect:
                case HighWatermarkMoved(to):
                    self.lines.append(f"{name} raises its watermark to {to}")
                case WriteIsr(_, isr, _, _):
                    self.lines.append(f"{name} asks for the ISR {self.names(isr)}")
                case IsrChanged(isr, _, _):
                    self.lines.append(f"{name} has the ISR {self.names(isr)}")
                case _:
                    raise AssertionError(f"not in these stories: {effect}")

    def show(self, name: str) -> None:
        self.lines.append(self.brokers[name].shown())

    def leading(self, name: str) -> Leader:
        leader = self.brokers[name].leader
        assert leader is not None, f"{name} does not lead"
        return leader

    def ids(self, names: str) -> tuple[BrokerId, ...]:
        return tuple(self.brokers[name].id for name in names.split())

    def names(self, ids: tuple[BrokerId, ...]) -> str:
        return " ".join(chr(ord("A") + broker) for broker in ids)

    VERBS: dict[str, Callable[..., None]] = {
        r"([ABC]) leads epoch (\d+), replicas ([ABC ]+), isr ([ABC ]+)": leads,
        r"([ABC]) follows ([ABC]) in epoch (\d+)": follows,
        r"([ABC]) crashes, its checkpoint has the watermark (\d+)": crashes,
        r"([ABC]) is given (\w+)": writes,
        r"([ABC]) fetches": fetches,
        r"the fetch of ([ABC]) has waited long enough": times_out,
        r"ZooKeeper confirms to ([ABC])": lands,
    }


@pytest.mark.parametrize("story", STORIES, ids=lambda path: path.stem)
def test_story(story: Path, replay: Callable[..., None]) -> None:
    replay(f"replicas/{story.name}", Story().perform)


def test_there_are_stories() -> None:
    assert len(STORIES) >= 5

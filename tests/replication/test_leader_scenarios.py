"""Runs tests/scenarios/leader/*.txt: one leader, told of appends, fetches, time and ZooKeeper's answers."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from strandline.base.types import BrokerId, Epoch, Incarnation, Offset
from strandline.replication.durability import Copies
from strandline.replication.effects import (
    CheckBatch,
    Effects,
    HighWatermarkMoved,
    IsrChanged,
    ReadState,
    StepDown,
    WriteIsr,
)
from strandline.replication.leader import Leader, LeaderOptions, LiveBrokers, Mandate
from strandline.replication.profiles import PROFILES

STORIES = sorted((Path(__file__).parent.parent / "scenarios" / "leader").glob("*.txt"))
ME = BrokerId(1)


def ids(text: str) -> list[BrokerId]:
    return [BrokerId(int(word)) for word in text.split()]


def said(effects: Effects) -> list[str]:
    lines = []
    for effect in effects:
        match effect:
            case HighWatermarkMoved(to):
                lines.append(f"high watermark {to}")
            case WriteIsr(version, isr, joining, incarnation):
                guard = "" if joining is None else f" and {joining} is still in its life {incarnation}"
                lines.append(f"writes isr {' '.join(map(str, isr))} if the version is {version}{guard}")
            case ReadState():
                lines.append("reads the state")
            case IsrChanged(isr, joined, left):
                change = [f"+{b}" for b in joined] + [f"-{b}" for b in left]
                lines.append(f"isr is {' '.join(map(str, isr))} ({' '.join(change) or 'as before'})")
            case CheckBatch(offset):
                lines.append(f"check the batch at {offset}")
            case StepDown(leader, epoch):
                lines.append(f"steps down: {leader} leads epoch {epoch}")
            case _:
                raise AssertionError(f"a leader does not ask for {effect}")
    return lines


def told(holder: tuple[BrokerId, float]) -> str:
    broker, after = holder
    return f"{broker} before" if after < 0 else f"{broker} +{round(after * 1_000_000)} us"


class Story:
    """One leader and its clock."""

    def __init__(self) -> None:
        self.log_start = Offset(0)
        self.now = 0.0
        self.membership = LiveBrokers(frozenset(map(BrokerId, range(1, 10))))
        self.leader: Leader
        self.watched: Copies

    def perform(self, event: str) -> list[str]:
        if event == "who holds what?":
            return [f"low watermark {self.leader.low_watermark(self.log_start)}"]
        if found := re.fullmatch(r"who gets what is before (\d+)\?", event):
            self.watched = self.leader.watch(Offset(int(found[1])), self.now)
            return ["watched"]
        if event == "who had it?":
            return [", ".join(map(told, self.leader.holders(self.watched)))]
        if event == "is it forsaken?":
            return ["yes" if self.leader.is_forsaken(self.now) else "no"]
        for pattern, method in self.VERBS.items():
            found = re.fullmatch(pattern, event)
            if found:
                return said(method(self, *found.groups()))
        raise AssertionError(f"no such event: {event}")

    def leads(
        self, epoch: str, replicas: str, isr: str, version: str, end: str, hw: str, minimum: str, strict: str,
        profile: str | None, recovering: str | None,
    ) -> Effects:  # fmt: skip
        mandate = Mandate(
            Epoch(int(epoch)),
            tuple(ids(replicas)),
            tuple(ids(isr)),
            int(version),
            recovering=bool(recovering),
        )
        options = LeaderOptions(
            lag_seconds_max=10.0,
            strict_min_isr=strict is not None,
            semantics=PROFILES[profile or "strandline"],
        )
        self.leader = Leader(
            ME,
            mandate,
            Offset(int(end)),
            Offset(int(hw)),
            self.now,
            self.membership,
            options,
            int(minimum or 1),
        )
        return self.leader.opened(self.now)

    def appends(self, end: str, safe: str | None) -> Effects:
        return self.leader.appended(Offset(int(end)), Offset(int(safe or end)), self.now)

    def fetches(self, follower: str, offset: str, incarnation: str | None) -> Effects:
        life = Incarnation(int(incarnation or 1))
        return self.leader.fetched(BrokerId(int(follower)), life, Offset(int(offset)), self.now)

    def begins(self, follower: str, offset: str) -> Effects:
        progress = self.leader.progress_of(BrokerId(int(follower)))
        assert progress is not None
        progress.log_start_offset = Offset(int(offset))
        return ()

    def begins_itself(self, offset: str) -> Effects:
        self.log_start = Offset(int(offset))
        return ()

    def passes(self, seconds: str) -> Effects:
        self.now += float(seconds)
        return self.leader.tick(self.now)

    def registered(self, brokers: str) -> Effects:
        self.membership.live = frozenset(ids(brokers))
        return ()

    def reconnected(self) -> Effects:
        self.leader.revalidate()
        return self.leader.tick(self.now)

    def lands(self, version: str) -> Effects:
        return self.leader.isr_landed(int(version), self.now)

    def refused(self) -> Effects:
        return self.leader.isr_refused(self.now)

    def unknown(self) -> Effects:
        return self.leader.isr_unknown(self.now)

    def state(self, leader: str, epoch: str, isr: str, version: str) -> Effects:
        return self.leader.state_read(
            BrokerId(int(leader)), Epoch(int(epoch)), ids(isr), int(version), self.now
        )

    VERBS: dict[str, Callable[..., Effects]] = {
        r"1 leads epoch (\d+), replicas ([\d ]+), isr ([\d ]+), version (\d+), log ends at (\d+), "
        r"watermark (\d+)(?:, min isr (\d+))?(, strictly)?(?:, under the profile (\S+))?"
        r"(, recovering)?": leads,
        r"the log ends at (\d+)(?:, safe up to (\d+))?": appends,
        r"(\d+) fetches from (\d+)(?: in its life (\d+))?": fetches,
        r"(\d+) says that its log begins at (\d+)": begins,
        r"the log begins at (\d+)": begins_itself,
        r"([\d.]+) s pass": passes,
        r"registered are ([\d ]+)": registered,
        r"the session was interrupted": reconnected,
        r"the write lands at version (\d+)": lands,
        r"the write is refused by a broker check": refused,
        r"no answer": unknown,
        r"the state says: (-?\d+) leads epoch (\d+), isr ([\d ]+), version (\d+)": state,
    }


@pytest.mark.parametrize("story", STORIES, ids=lambda path: path.stem)
def test_story(story: Path, replay: Callable[..., None]) -> None:
    replay(f"leader/{story.name}", Story().perform)


def test_there_are_stories() -> None:
    assert len(STORIES) >= 8

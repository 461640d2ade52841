"""Leaders and followers of one partition, and their talk: the rule machines over logs of (epoch, record).

No broker runs here, and time stands still. A story may be played under any semantics profile.
"""

import re
from collections.abc import Callable

from strandline.base.types import BrokerId, Epoch, Incarnation, Offset
from strandline.protocol.errors import ErrorCode
from strandline.replication.effects import Effects, HighWatermarkMoved, IsrChanged, Truncate, WriteIsr
from strandline.replication.follower import AskEpochEnd, AskRecords, Follower
from strandline.replication.leader import Leader, LeaderOptions, LiveBrokers, Mandate
from strandline.replication.profiles import PROFILES
from strandline.storage.log.leader_epochs import EpochHistory

EVERYBODY = LiveBrokers(frozenset(map(BrokerId, range(3))))


class ListLog:
    """A log as a list of (epoch, record)."""

    def __init__(self) -> None:
        self.records: list[tuple[int, str]] = []
        self.epochs = EpochHistory()
        self.start_offset = 0
        self.flushed_offset = 0  # nothing here is asked to be flushed
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
        self.lines: list[str] = []
        self.under("strandline")

    def under(self, profile: str) -> None:
        """Everything begins anew, by these rules."""
        self.semantics = PROFILES[profile]
        self.brokers = {name: Broker(name) for name in "ABC"}
        self.parked: dict[str, str] = {}  # follower -> leader
        self.acknowledged: dict[int, str] = {}  # what producers with acks=all were told
        self.lines.append(f"loses records: {self.semantics.loses}" if self.semantics.loses else "loses none")

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
        if self.semantics.begins_when_elected:
            broker.log.epochs.assign(int(epoch), broker.log.end_offset)
        mandate = Mandate(Epoch(int(epoch)), self.ids(replicas), self.ids(isr), int(epoch))
        end = Offset(broker.log.end_offset)
        options = LeaderOptions(lag_seconds_max=10.0, semantics=self.semantics)
        broker.leader = Leader(broker.id, mandate, end, Offset(watermark), 0.0, EVERYBODY, options)
        broker.follower = None
        broker.leader.opened(0.0)
        self.show(name)

    def follows(self, name: str, leader: str, epoch: str) -> None:
        broker = self.brokers[name]
        watermark = broker.high_watermark
        broker.leader = None
        leads = self.brokers[leader].id
        broker.follower = Follower(
            broker.log, leads, Epoch(int(epoch)), Offset(watermark), semantics=self.semantics
        )
        self.obey(name, broker.follower.opened())
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

    def fetches(self, name: str, at_most: str = "1000") -> None:
        follower = self.following(name)
        leader = chr(ord("A") + follower.leader)
        history = self.brokers[leader].log
        while isinstance(question := follower.question(), AskEpochEnd):
            self.lines.append(f"{name} asks where epoch {question.epoch} ends")
            epoch, end = history.epochs.end_offset_for(question.epoch, history.end_offset)
            if self.refuses(leader, name, question):
                return
            self.lines.append(f"{leader} answers: epoch {epoch} ends at {end}")
            self.obey(name, follower.epoch_ends(question, Epoch(epoch), Offset(end)))
        assert isinstance(question, AskRecords)
        self.lines.append(f"{name} fetches from {question.offset}")
        self.fetch_arrives(name, leader, question, int(at_most))

    def fetch_arrives(self, name: str, leader: str, question: AskRecords, at_most: int = 1000) -> None:
        if self.refuses(leader, name, question):
            return
        end = self.brokers[leader].log.end_offset
        if question.offset > end:
            self.lines.append(f"{leader} has nothing there: its log ends before")
            self.obey(name, self.following(name).out_of_range(question, Offset(0)))
            self.fetches(name)
            return
        fetched = self.leading(leader).fetched(self.brokers[name].id, Incarnation(1), question.offset, 0.0)
        self.moved(leader, fetched)
        if question.offset == end:
            self.parked[name] = leader
            self.lines.append(f"{leader} parks it")
        else:
            self.answer(name, leader, at_most)

    def fetches_late(self, name: str, epoch: str, offset: str, leader: str) -> None:
        """A fetch that lay in a buffer somewhere; nobody waits for its answer any more."""
        question = AskRecords(Epoch(int(epoch)), Offset(int(offset)), Epoch(-1), -1)
        if not self.refuses(leader, name, question):
            fetched = self.leading(leader).fetched(
                self.brokers[name].id, Incarnation(1), question.offset, 0.0
            )
            self.moved(leader, fetched)

    def refuses(self, leader: str, name: str, question: AskEpochEnd | AskRecords) -> bool:
        code = self.semantics.epoch_error(question.leader_epoch, self.leading(leader).epoch)
        if code is ErrorCode.NONE:
            return False
        self.lines.append(f"{leader} refuses: {code.name.lower().replace('_', ' ')}")
        self.following(name).refused(question, code)
        return True

    def obey(self, name: str, effects: Effects) -> None:
        broker = self.brokers[name]
        for cut in effects:
            assert isinstance(cut, Truncate), cut
            kept = broker.log.end_offset <= cut.to
            broker.log.cut(cut.to)
            self.following(name).truncated(cut)
            self.lines.append(f"{name} keeps all" if kept else f"{name} cuts to {cut.to}")

    def times_out(self, name: str) -> None:
        self.answer(name, self.parked.pop(name))

    def lands(self, name: str) -> None:
        leader = self.leading(name)
        self.moved(name, leader.isr_landed(leader.version + 1, 0.0))

    def answer(self, name: str, leader_name: str, at_most: int = 1000) -> None:
        """The leader reads at the moment of its answer; the follower writes, then adopts the watermark."""
        broker, leader = self.brokers[name], self.brokers[leader_name]
        assert broker.follower is not None
        new = leader.log.records[broker.log.end_offset :][:at_most]
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
                    for offset, (_, record) in enumerate(self.brokers[name].log.records[:to]):
                        self.acknowledged.setdefault(offset, record)
                case WriteIsr(_, isr, _, _):
                    self.lines.append(f"{name} asks for the ISR {self.names(isr)}")
                case IsrChanged(isr, _, _):
                    self.lines.append(f"{name} has the ISR {self.names(isr)}")
                case _:
                    raise AssertionError(f"not in these stories: {effect}")

    def show(self, name: str) -> None:
        self.lines.append(self.brokers[name].shown())

    def judged(self) -> None:
        """What a reader of the whole story wants to know at its end."""
        leading = [broker for broker in self.brokers.values() if broker.leader is not None]
        leads = max(leading, key=lambda broker: self.leading(broker.name).epoch)
        held = [record for _, record in leads.log.records]
        for _, record in sorted(self.acknowledged.items()):
            if record not in held:
                self.lines.append(f"{record} was acknowledged, and {leads.name} does not have it: lost")
        for other in self.brokers.values():
            for offset in range(min(leads.high_watermark, other.high_watermark)):
                mine, its = leads.log.records[offset][1], other.log.records[offset][1]
                if mine != its:
                    self.lines.append(
                        f"offset {offset} is {mine} on {leads.name} and {its} on {other.name}, below the "
                        "watermark of both: the logs have parted"
                    )
        if self.lines == []:
            self.lines.append("all that was acknowledged is there, and the logs agree")

    def following(self, name: str) -> Follower:
        follower = self.brokers[name].follower
        assert follower is not None, f"{name} follows nobody"
        return follower

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
        r"under the profile (\S+)": under,
        r"([ABC]) fetches(?:, and is given (\d+) at most)?": lambda story, name, n: story.fetches(
            name, n or "1000"
        ),
        r"a fetch of ([ABC]), sent in epoch (\d+) from (\d+), reaches ([ABC]) late": fetches_late,
        r"is all well\?": judged,
        r"the fetch of ([ABC]) has waited long enough": times_out,
        r"ZooKeeper confirms to ([ABC])": lands,
    }

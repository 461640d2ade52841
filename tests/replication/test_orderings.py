"""Epochs of leaders and versions of the state come in any order, answers are late, lost or old (KAFKA-13790,
15109, 14144).

One leader, the state's node with its whole history, and chance. Whatever happens, the leader counts everybody
whom the node lists, or may come to list by an attempt that is still on its way; what it takes for settled is
what stood in the node at just that version; and once answers come again it knows the node as it is.
"""

from random import Random
from typing import NamedTuple

import pytest

from strandline.base.types import BrokerId, Epoch, Incarnation, Offset
from strandline.replication.effects import Effects, ReadState, StepDown, WriteIsr
from strandline.replication.isr import Settled
from strandline.replication.leader import Leader, LeaderOptions, LiveBrokers, Mandate

ME, REPLICAS = BrokerId(1), tuple(map(BrokerId, (1, 2, 3)))
OPTIONS = LeaderOptions(lag_seconds_max=2.0)
SEEDS, STEPS = 600, 200


class State(NamedTuple):
    """What the node has held in one of its versions."""

    leader: int
    epoch: int
    isr: frozenset[BrokerId]


class World:
    """The node, attempts on their way to it, and who believes to lead. `None`: nobody here does."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        self.now = 0.0
        self.history = [State(ME, 0, frozenset(REPLICAS))]
        self.late: list[WriteIsr] = []
        self.asked: WriteIsr | ReadState | None = None
        self.leader: Leader | None = None
        self.stepped_down = 0
        self.begins()

    @property
    def version(self) -> int:
        return len(self.history) - 1

    @property
    def state(self) -> State:
        return self.history[-1]

    def begins(self) -> None:
        """LeaderAndIsr: a leadership of the epoch that stands there."""
        if self.state.leader != ME or (self.leader and self.leader.epoch == self.state.epoch):
            return
        end = Offset(0) if self.leader is None else self.leader.end_offset
        mandate = Mandate(Epoch(self.state.epoch), REPLICAS, tuple(sorted(self.state.isr)), self.version)
        self.asked = None
        self.leader = Leader(ME, mandate, end, Offset(0), self.now, LiveBrokers(frozenset(REPLICAS)), OPTIONS)

    def take(self, effects: Effects) -> None:
        for effect in effects:
            match effect:
                case WriteIsr() | ReadState():
                    assert self.asked is None, "one question at a time"
                    self.asked = effect
                case StepDown(leader, epoch):
                    assert self.leader is not None
                    assert any((leader, epoch) == (s.leader, s.epoch) for s in self.history)
                    assert epoch > self.leader.epoch, "nobody else leads in our own epoch"
                    self.stepped_down += 1
                    self.leader = self.asked = None
                    return

    def lands(self, write: WriteIsr) -> bool:
        """One attempt reaches the node: of all with the same version, one can win."""
        if write.expected_version != self.version:
            return False
        self.history.append(self.state._replace(isr=frozenset(write.isr)))
        return True

    # What may happen.

    def follower_fetches(self) -> None:
        if self.leader is not None:
            lacking = self.chance.choice((0, 0, 0, 1))
            offset = Offset(max(self.leader.end_offset - lacking, 0))
            follower = self.chance.choice(REPLICAS[1:])
            self.take(self.leader.fetched(follower, Incarnation(1), offset, self.now))

    def records_come(self) -> None:
        if self.leader is not None:
            end = Offset(self.leader.end_offset + 1)
            self.take(self.leader.appended(end, end, self.now))

    def time_passes(self) -> None:
        self.now += self.chance.choice((0.1, 0.6, 3.0, 11.0))
        if self.leader is not None:
            self.take(self.leader.tick(self.now))

    def answer_comes(self, heals: bool = False) -> None:
        leader, asked = self.leader, self.asked
        if leader is None or asked is None:
            return
        self.asked = None
        how = "read" if heals else self.chance.choice(("read", "read", "lost", "late", "old", "refused"))
        if isinstance(asked, ReadState):
            if how in ("lost", "late"):
                self.take(leader.isr_unknown(self.now))
            else:
                self.told(leader, self.version if how == "read" else self.chance.randint(0, self.version))
        elif how == "late":
            self.late.append(asked)
            self.take(leader.isr_unknown(self.now))
        elif how == "refused" and asked.expected_version == self.version and asked.joining is not None:
            self.late = [
                one for one in self.late if one.joining != asked.joining
            ]  # they fail on the same check
            self.take(leader.isr_refused(self.now))
        else:
            won = self.lands(asked)
            if how == "lost":
                self.take(leader.isr_unknown(self.now))
            elif won:
                self.take(leader.isr_landed(self.version, self.now))
            else:
                self.told(leader, self.version if how != "old" else self.chance.randint(0, self.version))

    def told(self, leader: Leader, version: int) -> None:
        """A server that lags behind answers with an earlier version."""
        found = self.history[version]
        self.take(leader.state_read(BrokerId(found.leader), Epoch(found.epoch), found.isr, version, self.now))

    def late_write_arrives(self) -> None:
        if self.late:
            self.lands(self.late.pop(self.chance.randrange(len(self.late))))

    def tool_writes(self) -> None:
        """The same once more, in a new version."""
        self.history.append(self.state)

    def controller_writes(self) -> None:
        """A new epoch; of its leader nobody may have heard yet."""
        if self.chance.random() < 0.2:
            count = self.chance.randint(1, len(self.state.isr))
            isr = frozenset(self.chance.sample(sorted(self.state.isr), count))
            self.history.append(State(self.chance.choice(sorted(isr)), self.state.epoch + 1, isr))

    def another_leader_writes(self) -> None:
        """Whoever leads instead lets us, or somebody else, join."""
        if self.state.leader != ME:
            joined = self.state.isr | {self.chance.choice(REPLICAS)}
            self.history.append(self.state._replace(isr=joined))

    def session_is_interrupted(self) -> None:
        if self.leader is not None:
            self.leader.revalidate()

    EVENTS = (
        follower_fetches, follower_fetches, records_come, time_passes, answer_comes, answer_comes,
        late_write_arrives, tool_writes, controller_writes, another_leader_writes, begins, begins,
        session_is_interrupted,
    )  # fmt: skip

    # What must hold.

    def check(self) -> None:
        leader = self.leader
        if leader is None:
            return
        assert leader.version <= self.version
        known = self.history[leader.version]
        assert known.epoch == leader.epoch, "a version of another epoch was taken for one of ours"
        if isinstance(leader.isr, Settled):
            assert leader.isr.members == known.isr, "an ISR is settled as it stood in that version"
        if (self.state.leader, self.state.epoch) == (ME, leader.epoch):
            assert leader.isr.must_ack >= self.state.isr, "whoever stands there may be elected"
            on_their_way = [one for one in self.late if one.expected_version == self.version]
            assert all(leader.isr.must_ack >= set(one.isr) for one in on_their_way)

    def heal(self) -> None:
        """Answers come, and what was on its way has arrived or never will."""
        while self.late:
            self.late_write_arrives()
        self.session_is_interrupted()
        for _ in range(60):
            self.now += 0.2
            if self.leader is not None:
                self.take(self.leader.tick(self.now))
                self.answer_comes(heals=True)
                self.check()
        leader = self.leader
        if (self.state.leader, self.state.epoch) != (ME, -1 if leader is None else leader.epoch):
            assert leader is None or leader.epoch == self.state.epoch, "it has not heard of its successor"
            return
        assert leader is not None
        assert isinstance(leader.isr, Settled)
        assert (leader.version, leader.isr.members) == (self.version, self.state.isr), "made up for"


@pytest.mark.parametrize("first", range(0, SEEDS, 100))
def test_epochs_and_versions_in_any_order(first: int) -> None:
    stepped_down = written = 0
    for seed in range(first, first + 100):
        world = World(seed)
        for _ in range(STEPS):
            world.chance.choice(World.EVENTS)(world)
            world.check()
        world.heal()
        stepped_down += world.stepped_down
        written += world.version
    assert stepped_down > 60 and written > 2000, "the world was alive"

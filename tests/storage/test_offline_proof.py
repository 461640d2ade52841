"""What closed replicas prove: the rule against a model of a partition, and the stories behind it.

The model has leaders that die or are cut off, followers that align by epochs (KIP-279), clean and unclean
elections, and high watermark checkpoints at any moment. Then all processes end, and some directories are
given. No record may come out that was never committed, nor one that the latest epoch of them does not have.
"""

from dataclasses import dataclass, field
from random import Random

import pytest

from strandline.storage.log.leader_epochs import EpochHistory
from strandline.storage.offline.proof import FAR, Proven, Replica, agreement, prove

REPLICAS, HISTORIES, STEPS_EACH = 3, 500, 60
Record = tuple[int, int]  # epoch of its leader, and a number of its own


@dataclass
class Member:
    """A replica, and its files: `log`, `epochs` and `kept`, its high watermark as last written."""

    log: list[Record] = field(default_factory=list)
    epochs: EpochHistory = field(default_factory=EpochHistory)
    high_watermark: int = 0
    kept: int | None = None
    epochs_changed_last: bool = False  # after the last checkpoint
    alive: bool = True
    leads: int = -1  # the epoch in which it is a leader, as far as it knows
    in_sync: set[int] = field(default_factory=set)  # as a leader knows it
    ends: dict[int, int] = field(default_factory=dict)  # of its followers, likewise

    @property
    def end(self) -> int:
        return len(self.log)

    def append(self, record: Record) -> None:
        if self.epochs.assign(record[0], self.end):
            self.epochs_changed_last = True
        self.log.append(record)

    def cut(self, end: int, lowers: bool) -> None:
        """Strandline lowers its checkpoint first; Kafka does not."""
        if end < self.end and lowers and self.kept is not None:
            self.kept = min(self.kept, end)
        self.epochs_changed_last |= self.epochs.truncate_from_end(end)
        del self.log[end:]
        self.high_watermark = min(self.high_watermark, end)


class Partition:
    """The partition, and what was ever committed."""

    def __init__(self, kafka: bool) -> None:
        self.kafka = kafka
        self.members = [Member() for _ in range(REPLICAS)]
        self.leader, self.epoch, self.in_sync = 0, 0, {0, 1, 2}
        self.committed: set[tuple[int, Record]] = set()
        self.numbers = 0
        self._lead(0)

    def step(self, action: str, who: int, much: int) -> None:
        getattr(self, action)(who, much)

    def produce(self, who: int, much: int) -> None:
        """To any that believes itself a leader: one that was cut off takes records too."""
        member = self.members[who]
        if member.alive and member.leads >= 0:
            for _ in range(much):
                self.numbers += 1
                member.append((member.leads, self.numbers))
            self._commit(who)

    def fetch(self, who: int, much: int) -> None:
        leader, member = self.members[self.leader], self.members[who]
        if who == self.leader or not (leader.alive and member.alive and leader.leads == self.epoch):
            return
        member.leads = -1
        self._align(member, leader)
        leader.ends[who] = member.end
        self._commit(self.leader)
        for record in leader.log[member.end : member.end + much]:
            member.append(record)
        member.high_watermark = min(leader.high_watermark, member.end)

    def join(self, who: int, much: int) -> None:
        leader = self.members[self.leader]
        begins = dict(leader.epochs.entries).get(self.epoch, 0)
        if leader.leads == self.epoch and leader.ends.get(who, -1) >= max(leader.high_watermark, begins):
            self.in_sync.add(who)
            leader.in_sync = set(self.in_sync)

    def leave(self, who: int, much: int) -> None:
        leader = self.members[self.leader]
        if who != self.leader and leader.alive and leader.leads == self.epoch:
            self.in_sync.discard(who)
            leader.in_sync = set(self.in_sync)
            self._commit(self.leader)

    def keep(self, who: int, much: int) -> None:
        member = self.members[who]
        if member.alive:
            member.kept, member.epochs_changed_last = member.high_watermark, False

    def kill(self, who: int, much: int) -> None:
        self.members[who].alive, self.members[who].leads = False, -1

    def start(self, who: int, much: int) -> None:
        member = self.members[who]
        if not member.alive:
            member.alive, member.high_watermark = True, min(member.kept or 0, member.end)

    def elect(self, who: int, much: int) -> None:
        """Cleanly; the leader before may be alive, and cut off."""
        if self.members[who].alive and who in self.in_sync and who != self.leader:
            self._lead(who)

    def elect_uncleanly(self, who: int, much: int) -> None:
        if self.members[who].alive and who != self.leader:
            self.in_sync = {who}
            self._lead(who)

    def _lead(self, who: int) -> None:
        self.leader, self.epoch = who, self.epoch + 1
        member = self.members[who]
        member.leads, member.in_sync, member.ends = self.epoch, set(self.in_sync), {}
        member.epochs.assign(self.epoch, member.end)
        member.epochs_changed_last = True
        self._commit(who)

    def _commit(self, who: int) -> None:
        leader = self.members[who]
        ends = [leader.end, *(leader.ends.get(each, -1) for each in leader.in_sync - {who})]
        for offset in range(leader.high_watermark, min(ends)):
            self.committed.add((offset, leader.log[offset]))
        leader.high_watermark = max(leader.high_watermark, min(ends))

    def _align(self, member: Member, leader: Member) -> None:
        while member.epochs.latest >= 0:
            epoch, end = leader.epochs.end_offset_for(member.epochs.latest, leader.end)
            if end < 0:
                return
            if epoch == member.epochs.latest:
                member.cut(min(end, member.end), not self.kafka)
                return
            mine, my_end = member.epochs.end_offset_for(epoch, member.end)
            member.cut(
                min(my_end, member.end) if mine < epoch else min(my_end, end, member.end), not self.kafka
            )
            if mine == epoch:
                return

    # ------------------------------------------------------------ what is left

    def facts(self, who: int) -> Replica:
        member = self.members[who]
        kept = -1 if member.kept is None else member.kept
        if self.kafka and (member.end < kept or member.epochs_changed_last):
            kept = -1
        return Replica(who, tuple(member.epochs.entries), kept, 0)

    def assert_only_committed(self, given: list[int]) -> Proven:
        proven = prove([self.facts(each) for each in given])
        for offset in range(proven.start, proven.end):
            served = {
                self.members[each].log[offset]
                for each, until in zip(given, proven.agreed, strict=True)
                if offset < min(until, self.members[each].end)
            }
            assert len(served) <= 1, "whoever serves, the record is the same"
            for record in served:
                assert (offset, record) in self.committed
                if self.leader in given:
                    assert self.members[self.leader].log[offset : offset + 1] == [record]
        return proven


STEPS = {
    "produce": 6, "fetch": 16, "join": 4, "leave": 2, "keep": 6, "kill": 1, "start": 3, "elect": 1,
    "elect_uncleanly": 1,
}  # fmt: skip
GIVEN = [[0], [1], [2], [0, 1], [0, 2], [1, 2], [0, 1, 2]]


@pytest.mark.parametrize("kafka", [False, True], ids=["strandline", "kafka"])
@pytest.mark.parametrize("unclean", [False, True], ids=["clean", "unclean"])
def test_nothing_comes_out_that_was_not_committed(kafka: bool, unclean: bool) -> None:
    """Many histories; after each step all processes end, and some of the directories are read."""
    read = 0
    for seed in range(HISTORIES):
        random, partition = Random(seed), Partition(kafka)
        steps = [(name, often) for name, often in STEPS.items() if unclean or name != "elect_uncleanly"]
        names, weights = zip(*steps, strict=True)
        for name in random.choices(names, weights, k=STEPS_EACH):
            partition.step(name, random.randrange(REPLICAS), random.randint(1, 4))
            read += partition.assert_only_committed(random.choice(GIVEN)).end
    assert read > HISTORIES * STEPS_EACH / 2, "what reads nothing is right too"


UNDER_THE_CUT = [
    ("produce", 0, 4), ("fetch", 1, 4), ("fetch", 1, 4), ("leave", 2, 0), ("keep", 1, 0), ("fetch", 1, 1),
    ("keep", 1, 0), ("elect_uncleanly", 2, 0), ("produce", 2, 4), ("fetch", 1, 4),
]  # fmt: skip


@pytest.mark.parametrize(("kafka", "kept"), [(False, 0), (True, 4)])
def test_a_high_watermark_from_before_a_cut_proves_nothing(kafka: bool, kept: int) -> None:
    """Two have four committed records. The third, which has none, is elected; one of the two takes its
    records, and ends before it writes the lower high watermark. Strandline has lowered it before.
    """
    partition = Partition(kafka)
    for step in UNDER_THE_CUT:
        partition.step(*step)
    assert partition.members[1].kept == kept
    assert partition.assert_only_committed([1]).end == 0


def test_after_an_orderly_end_it_is_all_that_was_committed() -> None:
    partition = Partition(kafka=False)
    for step in [("produce", 0, 4), *(("fetch", who, 4) for who in (1, 2, 1, 2)), ("kill", 0, 0)]:
        partition.step(*step)
    for step in [("elect", 1, 0), ("leave", 0, 0), ("produce", 1, 3), ("fetch", 2, 4), ("fetch", 2, 4)]:
        partition.step(*step)
    assert partition.assert_only_committed([0, 1, 2]).end == 0, "nobody has written a checkpoint"
    for who in (1, 2):
        partition.step("keep", who, 0)
    for some in ([1], [2], [1, 2], [0, 1, 2]):
        assert partition.assert_only_committed(some).end == 7
    assert partition.assert_only_committed([0]).end == 0


def replica(epochs: list[tuple[int, int]], high_watermark: int, start: int = 0) -> Replica:
    return Replica(1, tuple(epochs), high_watermark, start)


def test_a_later_epoch_wins_from_where_it_begins() -> None:
    """One led alone up to 100; the other was elected without it, from 60 on."""
    proven = prove([replica([(5, 0)], 100), replica([(5, 0), (6, 60)], 80)])
    assert (proven.end, proven.agreed, proven.epoch) == (80, (60, FAR), 6)


def test_a_replica_proves_for_another_one_as_far_as_they_agree() -> None:
    proven = prove([replica([(5, 0)], 100), replica([(5, 0), (6, 90)], 10)])
    assert (proven.end, proven.agreed) == (90, (90, FAR))


def test_an_epoch_without_a_record_counts() -> None:
    assert prove([replica([(5, 0)], 100), replica([(5, 0), (6, 60)], 0)]).end == 60
    assert prove([replica([(5, 0)], 100), replica([(9, 0)], 0)]).end == 0


@pytest.mark.parametrize(
    ("one", "other", "until"),
    [
        ([(1, 0)], [(1, 0)], FAR),
        ([(1, 0), (2, 5)], [(1, 0), (3, 7)], 5),
        ([(1, 0), (2, 5), (4, 9)], [(1, 0), (2, 5), (3, 7)], 7),
        ([(1, 0), (4, 9)], [(1, 0), (2, 5), (4, 9)], FAR),  # what epoch 2 had was compacted away
        ([(1, 0)], [(2, 0)], 0),
        ([], [(2, 0)], 0),
        ([], [], 0),
    ],
)
def test_logs_agree_up_to_the_end_of_their_last_common_epoch(
    one: list[tuple[int, int]], other: list[tuple[int, int]], until: int
) -> None:
    assert agreement(one, other) == agreement(other, one) == until


def test_what_one_has_deleted_does_not_come_back() -> None:
    proven = prove([replica([(5, 0)], 100), replica([(5, 40)], 90, start=40)])
    assert (proven.start, proven.end) == (40, 100)
    other = replica([(4, 40)], 90, start=40)
    assert prove([replica([(5, 0)], 100), other]).start == 0, "a log that agrees nowhere says nothing"


def test_replicas_without_a_record_prove_nothing() -> None:
    assert prove([replica([], -1)]) == Proven(0, 0, -1, (0,))
    assert prove([replica([(3, 40)], -1, start=40)]) == Proven(40, 40, 3, (FAR,))

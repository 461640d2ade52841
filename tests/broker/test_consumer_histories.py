"""Random histories of a group whose members speak both protocols: no partition is ever read by two.

Members join, leave, crash and lose answers; they give partitions up at once or later; topics grow, are
deleted and created again; writes are acknowledged late or never; the coordinator moves, and what the log had
beyond the last acknowledgement may be lost. At last there is peace, and every partition must be read by one.
Each member believes what it was told, as Kafka's clients do: what it believes to own is what counts.
"""

import asyncio
from random import Random
from uuid import UUID

import pytest

from strandline.base.types import TopicPartition
from strandline.broker.config.sections import GroupsConfig
from strandline.broker.groups.consumer.group import ConsumerGroup
from strandline.broker.groups.consumer.state import Beat, Beaten
from strandline.broker.groups.state import JoinAsked, Joined, SyncAsked, Synced
from strandline.broker.metadata.cache import Picture, PicturedTopic
from strandline.client.consumer.assignors import ASSIGNORS
from strandline.client.consumer.group_protocol import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from strandline.protocol.errors import ApiError, ErrorCode
from tests.broker.group_harness import MemoryLog, Stage

STEPS = 250
PEACE_ROUNDS = 200
SESSION_S = 45.0
NAMES = frozenset("abcdefghij")


class Cluster:
    """Topics, time, and the coordinator of the moment."""

    def __init__(self, dice: Random, policy: str) -> None:
        self.dice = dice
        self.config = GroupsConfig(
            offsets_partitions=1, initial_rebalance_delay_ms=0, consumer_migration_policy=policy
        )
        self.topics = {"a": (UUID(int=1), 3), "b": (UUID(int=2), 2)}
        self.ids = 2
        self.deleted: set[str] = set()
        self.passed = 0.0
        self.log = MemoryLog()
        self.committed_end = 0
        self.stage: Stage

    async def start(self) -> None:
        self.stage = await Stage(self.config, self.log, seed=self.dice.randrange(1 << 32)).lead()
        self.show_topics()

    def show_topics(self) -> None:
        topics = {
            name: PicturedTopic(name, topic_id, dict.fromkeys(range(count)))  # type: ignore[arg-type]
            for name, (topic_id, count) in self.topics.items()
        }
        names = {topic.id: name for name, topic in topics.items()}
        self.stage.picture = Picture(topics=topics, names=names, is_whole=True)

    def change_topics(self, may_recreate: bool) -> None:
        """Classic members know topics by name only: whether they read the old topic of this name or the new
        one, no broker can tell.
        """
        name = self.dice.choice([each for each in sorted(NAMES) if may_recreate or each not in self.deleted])
        topic_id, count = self.topics.get(name, (None, 0))
        if topic_id is None or (may_recreate and self.dice.random() < 0.3):
            self.ids += 1
            self.topics[name] = (UUID(int=self.ids), self.dice.randint(1, 4))
        elif self.dice.random() < 0.3 and len(self.topics) > 1:
            del self.topics[name]
            self.deleted.add(name)
        elif count < 6:
            self.topics[name] = (topic_id, count + 1)
        self.show_topics()

    def acknowledge(self, most: int | None = None) -> None:
        """The ISR has the oldest writes; or they time out, and stay in the log."""
        count = len(self.stage.waiting) if most is None else self.dice.randint(0, len(self.stage.waiting))
        due, self.stage.waiting = self.stage.waiting[:count], self.stage.waiting[count:]
        for on_committed, base in due:
            if most is not None and self.dice.random() < 0.1:
                on_committed(ErrorCode.REQUEST_TIMED_OUT, base)
            else:
                on_committed(ErrorCode.NONE, base)
                self.committed_end = max(self.committed_end, base + 1)

    async def move(self) -> None:
        """Another broker leads the partition: it has what was acknowledged, and perhaps more."""
        await self.stage.groups.stop()
        kept = [base for base, _ in self.log.batches if base >= self.committed_end]
        cut = self.dice.choice([*kept, self.log.end_offset])
        old, self.log = self.log, MemoryLog()
        self.log.batches = [(base, batch) for base, batch in old.batches if base < cut]
        self.log.end_offset = cut
        self.committed_end = cut
        await self.start()

    def let_pass(self, seconds: float) -> None:
        self.passed += seconds
        self.stage.groups.tick(asyncio.get_running_loop().time())

    def name_of(self, topic_id: UUID) -> str | None:
        return next((name for name, (each, _) in self.topics.items() if each == topic_id), None)

    @property
    def everything(self) -> set[tuple[UUID, int]]:
        return {(topic_id, number) for topic_id, count in self.topics.values() for number in range(count)}


class NewMember:
    """A consumer by the new protocol."""

    def __init__(self, cluster: Cluster, name: str, instance: str | None) -> None:
        self.cluster, self.dice = cluster, cluster.dice
        self.member_id, self.instance_id = name, instance
        self.epoch = 0
        self.owned: frozenset[tuple[UUID, int]] = frozenset()
        self.assigned: frozenset[tuple[UUID, int]] | None = None
        self.says_all = True
        self.asked: list[Beaten] | None = None

    def step(self) -> None:
        if self.asked is not None:
            if not self.asked and self.dice.random() < 0.95:
                return
            (answer,), self.asked = self.asked or [None], None  # type: ignore[assignment]
            if answer is None or self.dice.random() < 0.05:
                self.says_all = True  # the answer is lost
            else:
                self.hear(answer)
        elif self.assigned is not None and self.dice.random() < 0.7:
            self.reconcile()
        else:
            self.beat(self.epoch)

    def beat(self, epoch: int) -> None:
        whole = self.says_all or epoch == 0
        beat = Beat(
            member_id=self.member_id,
            epoch=epoch,
            instance_id=self.instance_id,
            rebalance_timeout_ms=30_000 if whole else -1,
            topics=NAMES if whole else None,
            owned=self.owned if whole or self.dice.random() < 0.5 else None,
        )
        told: list[Beaten] = []
        self.asked, self.says_all = told, False
        try:
            self.cluster.stage.groups.consumer_heartbeat("g", beat, told.append)
        except ApiError as error:
            told.append(Beaten(error.code))

    def hear(self, answer: Beaten) -> None:
        if (
            answer.error in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID)
            or answer.error is ErrorCode.GROUP_ID_NOT_FOUND
        ):
            self.lose()
        elif answer.error is not ErrorCode.NONE:
            self.says_all = True
        else:
            self.epoch = answer.epoch
            self.assigned = answer.assignment if answer.assignment is not None else self.assigned

    def lose(self) -> None:
        self.epoch, self.owned, self.assigned, self.says_all = 0, frozenset(), None, True

    def reconcile(self) -> None:
        """First give up, then take over: in two steps, between which anything may happen."""
        assert self.assigned is not None
        if self.owned - self.assigned:
            self.owned &= self.assigned
            self.says_all = True
            return
        self.owned, self.assigned = self.assigned, None
        self.says_all = True

    def leave(self) -> None:
        self.owned = frozenset()
        self.beat(-1)


class ClassicMember:
    """A consumer by the classic protocol: eager, or cooperative."""

    def __init__(self, cluster: Cluster, name: str, cooperative: bool) -> None:
        self.cluster, self.dice = cluster, cluster.dice
        self.name, self.member_id, self.generation = name, "", -1
        self.protocol = "cooperative-sticky" if cooperative else "range"
        self.cooperative = cooperative
        self.partitions: frozenset[TopicPartition] = frozenset()
        self.must_join = True
        self.joining: list[Joined] | None = None
        self.syncing: list[Synced] | None = None

    @property
    def owned(self) -> frozenset[tuple[UUID, int]]:
        topics = self.cluster.topics
        return frozenset((topics[tp.topic][0], tp.partition) for tp in self.partitions if tp.topic in topics)

    def step(self) -> None:
        if self.joining is not None:
            if self.joining:
                (joined,), self.joining = self.joining, None
                self.hear_joined(joined)
            elif self.dice.random() < 0.02:
                self.joining, self.must_join = None, True  # the connection broke
        elif self.syncing is not None:
            if self.syncing:
                (synced,), self.syncing = self.syncing, None
                self.hear_synced(synced)
            elif self.dice.random() < 0.02:
                self.syncing, self.must_join = None, True
        elif self.must_join:
            self.join()
        else:
            self.beat()

    def join(self) -> None:
        if not self.cooperative:
            self.partitions = frozenset()
        self.must_join = False
        metadata = encode_subscription(NAMES, self.partitions, self.generation)
        asked = JoinAsked(
            member_id=self.member_id,
            instance_id=None,
            client_id=self.name,
            client_host="/h",
            session_timeout_ms=round(SESSION_S * 1000),
            rebalance_timeout_ms=60_000,
            protocol_type="consumer",
            protocols=((self.protocol, metadata),),
            must_know_id=True,
            may_skip_assignment=True,
        )
        told: list[Joined] = []
        self.joining = told
        self.cluster.stage.groups.join("g", asked, told.append)

    def hear_joined(self, joined: Joined) -> None:
        if joined.error is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = joined.member_id
        if joined.error is not ErrorCode.NONE:
            self.must_join = True
            if joined.error is ErrorCode.UNKNOWN_MEMBER_ID:
                self.lose()
            return
        self.member_id, self.generation = joined.member_id, joined.generation
        given: dict[str, list[TopicPartition]] = {}
        if joined.leader == self.member_id:
            members = [decode_subscription(each.member_id, None, each.metadata) for each in joined.members]
            counts = {name: count for name, (_, count) in self.cluster.topics.items()}
            given = ASSIGNORS[self.protocol](members, counts)
        asked = SyncAsked(
            member_id=self.member_id,
            instance_id=None,
            generation=self.generation,
            protocol_type="consumer",
            protocol=self.protocol,
            assignments=tuple((each, encode_assignment(mine)) for each, mine in given.items()),
        )
        told: list[Synced] = []
        self.syncing = told
        self.cluster.stage.groups.sync("g", asked, told.append)

    def hear_synced(self, synced: Synced) -> None:
        if synced.error is not ErrorCode.NONE:
            self.must_join = True
            if synced.error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
                self.lose()
            return
        now = frozenset(decode_assignment(synced.assignment))
        self.must_join = self.cooperative and bool(self.partitions - now)
        self.partitions = now

    def beat(self) -> None:
        error = self.cluster.stage.groups.heartbeat("g", self.member_id, None, self.generation)
        if error is ErrorCode.REBALANCE_IN_PROGRESS:
            self.must_join = True
        elif error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
            self.lose()

    def lose(self) -> None:
        gone_for_good = self.partitions
        self.partitions, self.generation, self.must_join = gone_for_good - gone_for_good, -1, True
        self.member_id = ""

    def leave(self) -> None:
        self.partitions = frozenset()
        try:
            self.cluster.stage.groups.leave("g", [(self.member_id, None)])
        except ApiError:
            return


class History:
    """One group's life."""

    def __init__(self, seed: int, cooperative: bool, policy: str) -> None:
        self.dice = Random(seed)
        self.cooperative = cooperative
        self.cluster = Cluster(self.dice, policy)
        self.members: list[NewMember | ClassicMember] = []
        self.born = 0

    def check(self) -> None:
        owners: dict[tuple[UUID, int], str] = {}
        for member in self.members:
            for one in member.owned:
                name = f"{type(member).__name__} {member.member_id}"
                assert one not in owners, f"{one} is read by {owners[one]} and {name}"
                owners[one] = name
        for held in [self.cluster.stage.groups.find("g")]:
            if held is not None and isinstance(held.group, ConsumerGroup):
                check_books(held.group)

    def join(self) -> None:
        self.born += 1
        if self.dice.random() < 0.5:
            self.members.append(NewMember(self.cluster, f"n{self.born}", None))
        else:
            self.members.append(ClassicMember(self.cluster, f"c{self.born}", self.cooperative))

    async def step(self) -> None:
        dice, cluster = self.dice, self.cluster
        roll = dice.random()
        if roll < 0.04 and len(self.members) < 5:
            self.join()
        elif roll < 0.055 and self.members:
            self.members.pop(dice.randrange(len(self.members))).leave()
        elif roll < 0.065 and self.members:
            self.members.pop(dice.randrange(len(self.members)))  # it crashes
        elif roll < 0.075:
            cluster.change_topics(not any(isinstance(each, ClassicMember) for each in self.members))
        elif roll < 0.08:
            await cluster.move()
            self.forget_answers()
        elif roll < 0.3:
            cluster.acknowledge(most=3)
        elif roll < 0.31:
            cluster.acknowledge()
            for member in self.members:  # nobody who lives may expire
                member.step()
            cluster.let_pass(1.0)
        elif self.members:
            dice.choice(self.members).step()

    def forget_answers(self) -> None:
        """The connections to the old coordinator broke."""
        for member in self.members:
            if isinstance(member, NewMember):
                member.says_all = member.says_all or member.asked is not None
                member.asked = None
            else:
                member.must_join = member.must_join or bool(
                    member.joining is not None or member.syncing is not None
                )
                member.joining = member.syncing = None

    def peace(self) -> None:
        """No more trouble: in time every partition has one reader."""
        if not self.members:
            self.join()
        for round_ in range(PEACE_ROUNDS):
            for member in self.members:
                member.step()
                self.cluster.acknowledge()
                self.check()
            self.cluster.let_pass(5.0 if round_ % 10 == 9 else 0.5)
            self.check()
        owned = set().union(*(member.owned for member in self.members))
        assert owned == self.cluster.everything, "every partition has a reader"


def check_books(group: ConsumerGroup) -> None:
    """What follows from the facts is what the group keeps in mind."""
    held = [one for progress in group.progress.values() for one in progress.held]
    assert len(held) == len(set(held)) == len(group.owners), "a partition is held by one member"
    assert all(one in group.progress[member_id].held for one, member_id in group.owners.items())
    targets = [one for target in group.targets.values() for one in target]
    assert len(targets) == len(set(targets)), "a partition is for one member"
    assert group.progress.keys() == group.subscriptions.keys(), "members alone have progress"
    assert group.targets.keys() <= group.subscriptions.keys(), "members alone have targets"


@pytest.mark.parametrize("policy", ["bidirectional", "upgrade"])
@pytest.mark.parametrize("cooperative", [True, False], ids=["cooperative", "eager"])
@pytest.mark.parametrize("seed", range(25))
def test_no_partition_is_read_by_two(seed: int, cooperative: bool, policy: str) -> None:
    async def live() -> None:
        history = History(seed, cooperative, policy)
        loop, real = asyncio.get_running_loop(), asyncio.get_running_loop().time
        loop.time = lambda: real() + history.cluster.passed  # type: ignore[method-assign]
        await history.cluster.start()
        for _ in range(STEPS):
            await history.step()
            history.check()
        history.peace()
        await history.cluster.stage.groups.stop()

    asyncio.run(live())

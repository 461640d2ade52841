"""Offsets of transactions in the log of a real partition: the coordinator of groups on top of a replica."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

from strandline.base.types import TopicPartition
from strandline.broker.config.groups import GroupSettings
from strandline.broker.config.sections import GroupsConfig
from strandline.broker.groups.coordinator import GroupCoordinator
from strandline.broker.groups.offsets import GroupOffset
from strandline.broker.groups.transactional_commits import Producer
from strandline.broker.metadata.cache import Picture
from strandline.broker.replicas.local_appends import append_local
from strandline.broker.replicas.sure_appends import when_committed
from strandline.protocol.errors import ErrorCode
from tests.broker.group_harness import SIMPLE, Clock
from tests.broker.replica_harness import TOPIC, until
from tests.broker.transaction_harness import PRODUCER, Scene, scene

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class OnePartition:
    """The topic of the groups, which has one partition."""

    def partition_count(self) -> int:
        return 1

    def is_gone(self, tp: TopicPartition) -> bool:
        return False


class Group:
    """Group g, whose log is the partition of the scene."""

    def __init__(self, play: Scene, clock: Clock, **options: Any) -> None:
        self.play, shared = play, play.member.parts.shared
        append: Any = partial(append_local, play.member.replicas.get)
        topic: Any = OnePartition()
        config = GroupsConfig(**options)
        self.groups = GroupCoordinator(
            config,
            append,
            partial(when_committed, play.member.replicas.get),
            clock,
            Random(1),
            topic,
            self._ask,
            Picture,
            GroupSettings(config),
        )
        self.verdicts: list[asyncio.Future[dict[TopicPartition, ErrorCode]]] = []
        for event in ("on_resigned", "on_transaction_ended"):
            getattr(shared, event).subscribe(getattr(self.groups, event))

    async def lead(self) -> "Group":
        self.groups.on_leading(self.play.partition)
        while self.groups.is_loading:
            await asyncio.sleep(0)
        return self

    def _ask(self, *question: Any) -> "asyncio.Future[dict[TopicPartition, ErrorCode]]":
        self.verdicts.append(asyncio.get_running_loop().create_future())
        return self.verdicts[-1]

    def commit(self, *places: TopicPartition, offset: int = 7) -> list[ErrorCode]:
        told: list[ErrorCode] = []
        self.groups.commit("g", SIMPLE, self._offsets(places, offset), told.append)
        return told

    def pend(self, *places: TopicPartition, offset: int = 7, epoch: int = 0) -> list[ErrorCode]:
        told: list[ErrorCode] = []
        producer = Producer("tx", PRODUCER, epoch)
        self.groups.commit_in_transaction("g", SIMPLE, producer, self._offsets(places, offset), told.append)
        return told

    def _offsets(self, places: tuple[TopicPartition, ...], offset: int) -> dict[TopicPartition, GroupOffset]:
        return dict.fromkeys(places, GroupOffset(offset, -1, "", 0))

    @property
    def seen(self) -> dict[TopicPartition, int]:
        held = self.groups.find("g")
        assert held is not None
        return {tp: one.offset for tp in held.offsets if (one := held.offsets.get(tp)) is not None}

    @property
    def pending(self) -> set[TopicPartition]:
        held = self.groups.find("g")
        return held.offsets.pending if held is not None else set()


@pytest.fixture(autouse=True)
def the_topic_of_the_scene(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strandline.broker.groups.coordinator.OFFSETS_TOPIC", TOPIC)


@asynccontextmanager
async def group(directory: Path, **options: Any) -> AsyncIterator[tuple[Scene, Group]]:
    async with scene(directory, **{"cleanup.policy": "compact"}) as play:
        of_groups = await Group(play, Clock(), **options).lead()
        yield play, of_groups
        await of_groups.groups.stop()


async def test_offsets_are_seen_exactly_when_the_watermark_passes_the_marker(tmp_path: Path) -> None:
    async with group(tmp_path) as (play, g):
        told = g.pend(T0, T1)
        await play.acknowledge(2)
        assert told == [ErrorCode.NONE] and g.seen == {} and g.pending == {T0, T1}
        answer = play.marks(committed=True)
        await until(lambda: play.partition.log.end_offset == 3)
        assert g.seen == {}, "the marker is in our log only"
        await play.acknowledge(3)
        await answer
        assert g.seen == {T0: 7, T1: 7}
        assert (await Group(play, Clock()).lead()).seen == {T0: 7, T1: 7}


async def test_a_transaction_that_is_aborted_in_the_same_moment_as_its_commit_arrives(tmp_path: Path) -> None:
    """Batch and marker are committed at once: the marker is heard of first, and nothing stays pending."""
    async with group(tmp_path) as (play, g):
        g.commit(T0, offset=3)
        told = g.pend(T0)
        answer = play.marks(committed=False)
        await until(lambda: play.partition.log.end_offset == 3)
        assert told == [] and g.pending == {T0}
        await play.acknowledge(3)
        await answer
        assert told == [ErrorCode.NONE] and g.seen == {T0: 3} and not g.pending


async def test_a_zombie_writes_nothing(tmp_path: Path) -> None:
    """Its coordinator has fenced it: the marker bears a newer epoch."""
    async with group(tmp_path) as (play, g):
        g.pend(T0)
        answer = play.marks(committed=False, epoch=1)
        await until(lambda: play.partition.log.end_offset == 2)
        assert g.pend(T0, epoch=0) == [ErrorCode.INVALID_PRODUCER_EPOCH]
        await play.acknowledge(2)
        await answer
        assert g.pend(T0, epoch=0) == [ErrorCode.INVALID_PRODUCER_EPOCH]
        assert g.seen == {} and not g.pending and play.partition.log.end_offset == 2
        g.pend(T1, epoch=1)
        assert g.pending == {T1}


async def test_the_marker_of_a_coordinator_that_was_replaced_counts_for_none(tmp_path: Path) -> None:
    async with group(tmp_path) as (play, g):
        g.pend(T0)
        await play.acknowledge(1)
        answer = play.marks(committed=False, coordinator_epoch=5)
        await play.acknowledge(2)
        await answer
        g.pend(T0, offset=8)
        assert (
            await play.marked(committed=True, coordinator_epoch=4) == ErrorCode.TRANSACTION_COORDINATOR_FENCED
        )
        assert g.seen == {} and g.pending == {T0}


async def test_who_leads_next_knows_what_is_pending(tmp_path: Path) -> None:
    async with group(tmp_path) as (play, g):
        g.commit(T0, offset=3)
        g.pend(T0, T1)
        await play.acknowledge(3)
        await play.stage.elect(1, (1, 2))
        g.groups.on_resigned(play.partition.tp)
        await g.lead()
        assert g.seen == {T0: 3} and g.pending == {T0, T1}
        answer = play.marks(committed=True)
        await play.acknowledge(4)
        await answer
        assert g.seen == {T0: 7, T1: 7} and not g.pending


async def test_a_late_commit_of_a_transaction_that_was_aborted_meanwhile_opens_none(tmp_path: Path) -> None:
    """Its coordinator has said yes, and has then written its marker: the answer is out of date."""
    async with group(tmp_path) as (play, g):
        play.member.parts.shared.verifies_transactions = True
        g.commit(T0, offset=3)
        told = g.pend(T0)
        assert play.partition.log.end_offset == 1, "nothing is written before the coordinator was asked"
        answer = play.marks(committed=False)
        await until(lambda: play.partition.log.end_offset == 2)
        g.verdicts[0].set_result({play.partition.tp: ErrorCode.NONE})
        await play.acknowledge(2)
        await answer
        assert told == [ErrorCode.INVALID_TXN_STATE]
        assert g.seen == {T0: 3} and not g.pending and play.partition.log.end_offset == 2


async def test_of_several_commits_in_a_transaction_only_the_first_is_asked_about(tmp_path: Path) -> None:
    async with group(tmp_path) as (play, g):
        play.member.parts.shared.verifies_transactions = True
        both = g.pend(T0), g.pend(T1)
        assert len(g.verdicts) == 2, "nobody knows yet how the first is answered"
        for verdict in g.verdicts:
            verdict.set_result({play.partition.tp: ErrorCode.NONE})
        await until(lambda: g.pending == {T0, T1})
        g.pend(T0, offset=8)
        await play.acknowledge(3)
        assert len(g.verdicts) == 2 and both == ([ErrorCode.NONE], [ErrorCode.NONE])


async def test_a_commit_that_its_replica_gets_late_counts_in_memory_as_in_the_log(tmp_path: Path) -> None:
    async with group(tmp_path, offset_commit_timeout_ms=10) as (play, g):
        before = g.commit(T0, T1, offset=3)
        await until(lambda: before)
        assert before == [ErrorCode.COORDINATOR_NOT_AVAILABLE] and g.seen == {}, "it may yet be lost"
        await play.acknowledge(1)
        assert g.seen == {}, "its second record is not committed"
        await play.acknowledge(2)
        await until(lambda: g.seen)
        assert g.seen == {T0: 3, T1: 3} == (await Group(play, Clock()).lead()).seen


async def test_a_late_commit_of_a_leader_that_was_replaced_is_forgotten_with_it(tmp_path: Path) -> None:
    async with group(tmp_path, offset_commit_timeout_ms=10) as (play, g):
        told = g.commit(T0)
        await until(lambda: told)
        held = g.groups.find("g")
        assert held is not None and held.offsets.in_flight == {T0}
        await play.stage.elect(2, (1, 2))
        assert not held.offsets.in_flight and not len(held.offsets)

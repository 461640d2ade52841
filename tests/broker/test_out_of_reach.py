"""Brokers that the controller has stopped telling things: what stands in ZooKeeper holds for them, too."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from strandline.base.tasks import Tasks
from strandline.broker.roles import out_of_reach
from strandline.broker.roles.out_of_reach import OutOfReach
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages.control import (
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaTopicState,
)
from strandline.zookeeper import documents
from strandline.zookeeper.client import SetData
from tests.broker.replica_harness import (
    TOPIC_ID,
    TP,
    Cluster,
    Member,
    ask,
    batch,
    cluster,
    end_of_epoch,
    outcome,
    produce,
    until,
)

OTHER_LIFE = UUID(int=77)


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(out_of_reach, "LOOK_AFTER_S", 0.1)
    monkeypatch.setattr(out_of_reach, "LOOK_EVERY_S", 0.1)


class Stage:
    """Two brokers that were told once that broker 1 leads; from then on the test writes into ZooKeeper."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.first, self.second = cluster.members[1], cluster.members[2]

    async def begin(self) -> None:
        await self.cluster.elect(1, [1, 2])
        await until(lambda: self.second.partition.following is not None)

    async def write(
        self,
        leader: int,
        isr: list[int],
        topic_id: UUID = TOPIC_ID,
        replicas: tuple[int, ...] = (1, 2),
        incarnation: int = 1,
    ) -> None:
        """As the controller does before it tells anybody; `incarnation` is that of the leader."""
        cluster = self.cluster
        cluster.epoch += 1
        topic = documents.TopicDocument(
            topic_id=documents.uuid_to_text(topic_id), partitions={TP.partition: list(replicas)}
        )
        state = documents.StateDocument(
            leader=leader,
            leader_epoch=cluster.epoch,
            isr=isr,
            controller_epoch=1,
            isr_epochs={1: 1, 2: 1, leader: incarnation},
        )
        for path, data in (
            (documents.topic_path(TP.topic), topic.data()),
            (documents.state_path(TP), state.data()),
        ):
            version = cluster.zookeeper.get(path, cluster.zk.session_id, None)[1].version
            await cluster.zk.multi([SetData(path, data, version)])

    def looker(self, tasks: Tasks) -> OutOfReach:
        """One more for the first broker."""
        return self.looker_with(cast(Any, self.cluster.zk), tasks)

    def looker_with(self, zk: Any, tasks: Tasks) -> OutOfReach:
        parts = self.first.parts
        return OutOfReach(zk, parts.shared, parts.replicas, parts.settings, parts.roles, tasks)

    def led_by(self, member: Member) -> int:
        """In which epoch it leads."""
        leading = member.partition.leading
        return -1 if leading is None else int(leading.epoch)


def play(directory: Path, story: Callable[[Stage], Awaitable[None]]) -> None:
    async def run() -> None:
        async with cluster(directory, 2) as members:
            stage = Stage(members)
            await stage.begin()
            await story(stage)

    asyncio.run(run())


def test_a_leader_that_finds_a_newer_epoch_of_its_own_leads_on_in_it(tmp_path: Path) -> None:
    """It was told of nothing: who waits goes on waiting, and is answered."""

    async def story(stage: Stage) -> None:
        await stage.write(1, [1])
        client = await stage.first.connect()
        stage.first.parts.shared.untold()
        await until(lambda: stage.led_by(stage.first) == 1)
        assert stage.first.partition.leading.isr.members == {1}
        assert stage.first.partition.log.epochs.latest == 1
        assert outcome(await ask(client, produce(batch(b"a")))) == (0, 0)
        await client.close()

    play(tmp_path, story)


def test_before_it_takes_a_role_up_it_doubts_that_it_knows_all_topics(tmp_path: Path) -> None:
    """A coordinator would forget what groups have committed for topics that it has not heard of."""
    told: list[str] = []

    async def story(stage: Stage) -> None:
        shared = stage.second.parts.shared
        shared.on_roles_read.subscribe(lambda: told.append("doubt"))
        shared.on_leading.subscribe(lambda partition: told.append(f"leads {partition.tp}"))
        shared.untold()
        await asyncio.sleep(0.5)
        assert told == [], "there was nothing to take up"
        await stage.write(2, [1, 2])
        shared.untold()
        await until(lambda: stage.led_by(stage.second) == 1)
        assert told == ["doubt", f"leads {TP}"]

    play(tmp_path, story)


def test_a_deposed_leader_and_a_refused_follower_take_the_roles_that_are_written(tmp_path: Path) -> None:
    """Nobody has to ask them to: each learns from the other one, or from its own write, that it is behind."""

    async def story(stage: Stage) -> None:
        await stage.write(2, [1, 2])
        stage.second.parts.shared.untold()
        await until(lambda: stage.led_by(stage.second) == 1)
        stage.first.partition.leading.revalidate()  # as it does every ten seconds, and when it writes its ISR
        await until(lambda: stage.first.partition.following is not None)
        assert stage.first.partition.leader_epoch == 1
        client = await stage.second.connect()
        assert outcome(await ask(client, produce(batch(b"a"), timeout_ms=10_000))) == (0, 0)
        assert stage.first.partition.log.end_offset == 1, "acknowledged with what it holds"
        await client.close()

    play(tmp_path, story)


def test_who_is_asked_for_a_later_epoch_than_it_knows_looks_whether_it_leads_in_it(tmp_path: Path) -> None:
    """Others have been told that it does, and ask again and again."""

    async def story(stage: Stage) -> None:
        await stage.write(2, [1, 2])
        client = await stage.second.connect()
        answer = await ask(client, end_of_epoch(0, current=1))
        assert answer.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
        await until(lambda: stage.led_by(stage.second) == 1)
        await client.close()

    play(tmp_path, story)


def test_what_is_written_of_the_next_topic_of_the_name_does_not_hold(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        await stage.write(1, [1], OTHER_LIFE)
        looker = stage.looker(Tasks("test"))
        assert await looker.untold_roles() == []
        await stage.write(1, [1])
        (topic,) = await looker.untold_roles()
        assert (topic.topic_name, topic.topic_id) == (TP.topic, TOPIC_ID)

    play(tmp_path, story)


def test_who_was_elected_in_an_earlier_life_does_not_lead(tmp_path: Path) -> None:
    """It may have lost what it was elected for. The controller would announce that nobody leads."""

    async def story(stage: Stage) -> None:
        looker = stage.looker(Tasks("test"))
        await stage.write(1, [1, 2], incarnation=0)
        assert await looker.untold_roles() == []
        await stage.write(1, [1, 2])
        assert len(await looker.untold_roles()) == 1

    play(tmp_path, story)


def test_a_replica_that_the_topic_does_not_name_any_more_waits_for_its_end(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        await stage.write(2, [2], replicas=(2,))
        assert await stage.looker(Tasks("test")).untold_roles() == []

    play(tmp_path, story)


def test_what_was_read_before_a_command_does_not_hold_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The replica is deleted while the states are read: it is not made anew."""

    async def story(stage: Stage) -> None:
        await stage.write(1, [1])
        looker = stage.looker(tasks := Tasks("test"))
        real = looker.untold_roles

        async def untold() -> Any:
            read = await real()
            assert read
            state = StopReplicaPartitionState(partition_index=0, leader_epoch=0, delete_partition=True)
            topic = StopReplicaTopicState(topic_name=TP.topic, partition_states=[state])
            stop = StopReplicaRequest(
                controller_id=1, controller_epoch=1, broker_epoch=1, topic_states=[topic]
            )
            assert (await ask(stage.first.control, stop)).error_code == 0
            return read

        monkeypatch.setattr(looker, "untold_roles", untold)
        looker.suspect()
        assert looker.is_looking
        await until(lambda: not looker.is_looking)
        assert stage.first.replicas.find(TP) is None
        await tasks.stop()
        looker.suspect()
        assert not looker.is_looking, "whoever stops begins nothing"

    play(tmp_path, story)


def test_nothing_is_read_if_commands_still_come(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        read = list[list[str]]()

        async def get_many(paths: Any) -> Any:
            read.append(list(paths))
            return await stage.cluster.zk.get_many(paths)

        zk = cast(Any, SimpleNamespace(get_many=get_many))
        looker = stage.looker_with(zk, tasks := Tasks("test"))
        looker.suspect()
        await asyncio.sleep(0)
        await stage.cluster.elect(1, [1, 2])
        assert looker.is_looking
        await until(lambda: not looker.is_looking)
        assert not read
        looker.suspect()
        await asyncio.sleep(0)
        await stage.cluster.elect(1, [1, 2])
        looker.suspect()  # once more, after the command: it counts
        await until(lambda: not looker.is_looking)
        assert read == [[documents.state_path(TP)]]
        await tasks.stop()

    play(tmp_path, story)

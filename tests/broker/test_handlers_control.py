"""Commands of controllers: stale ones, repeated ones, deletion."""

from errno import EIO
from pathlib import Path
from threading import current_thread, main_thread
from typing import Any
from uuid import UUID

from strandline.broker.roles.controller_fence import ControlGate
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages.control import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaTopicState,
)
from strandline.storage.disk import RealDisk
from tests.broker.replica_harness import TOPIC, TOPIC_ID, TP, ask, batch, cluster, outcome, produce, until


def test_the_gate() -> None:
    gate = ControlGate()
    assert gate.admit(5, 3, 10, 3) == ErrorCode.NONE
    assert gate.admit(4, 3, 11, 3) == ErrorCode.STALE_CONTROLLER_EPOCH
    assert gate.admit(5, 2, 11, 3) == ErrorCode.STALE_BROKER_EPOCH
    assert gate.admit(5, 3, 10, 3) == ErrorCode.INVALID_REQUEST, "a number seen already"
    assert gate.admit(5, 4, 11, 3) == ErrorCode.NONE, "the controller knows more than we do"
    assert not gate.is_kafkas
    assert gate.admit(5, -1, -1, 3) == ErrorCode.NONE, "a controller that does not number"
    assert gate.is_kafkas
    assert gate.admit(5, (7 << 32) + 1, -1, 3) == ErrorCode.NONE, "it tells the czxid of our registration"
    assert gate.admit(5, 7 << 32, -1, 3) == ErrorCode.STALE_BROKER_EPOCH, (
        "it was sent before we registered again"
    )
    assert gate.admit(5, 3, 11, 3) == ErrorCode.INVALID_REQUEST
    assert gate.admit(6, 3, 1, 3) == ErrorCode.NONE, "a new controller begins anew"
    assert not gate.is_kafkas
    assert gate.admit(7, 9, -1, 3) == ErrorCode.NONE, "after it ZooKeeper may count from less"


def leader_and_isr(epoch: int, topic_id: UUID = TOPIC_ID, replicas: tuple[int, ...] = (1,)) -> Any:
    state = LeaderAndIsrPartitionState(
        partition_index=0, controller_epoch=1, leader=1, leader_epoch=epoch, isr=[1], partition_epoch=0,
        replicas=list(replicas),
    )  # fmt: skip
    topic = LeaderAndIsrTopicState(topic_name=TOPIC, topic_id=topic_id, partition_states=[state])
    return LeaderAndIsrRequest(
        controller_id=1, controller_epoch=1, broker_epoch=1, topic_states=[topic], live_leaders=[]
    )


def stop(epoch: int, delete: bool, **options: Any) -> StopReplicaRequest:
    state = StopReplicaPartitionState(partition_index=0, leader_epoch=epoch, delete_partition=delete)
    topic = StopReplicaTopicState(topic_name=TOPIC, partition_states=[state])
    return StopReplicaRequest(
        **{"controller_id": 1, "controller_epoch": 1, "broker_epoch": 1, "topic_states": [topic], **options}
    )


async def test_leader_and_isr_is_judged_partition_by_partition(tmp_path: Path) -> None:
    async with cluster(tmp_path, 1) as stage:
        await stage.elect(1, [1])
        member = stage.members[1]

        async def code(request: Any) -> int:
            answer = await ask(member.control, request)
            return int(answer.topics[0].partition_errors[0].error_code)

        leader = member.partition.leading
        assert await code(leader_and_isr(0)) == 0
        assert member.partition.leading is leader, "an equal epoch changes nothing"
        assert await code(leader_and_isr(3)) == 0
        assert member.partition.leader_epoch == 3
        assert await code(leader_and_isr(2)) == ErrorCode.STALE_CONTROLLER_EPOCH
        assert await code(leader_and_isr(4, UUID(int=8))) == ErrorCode.INCONSISTENT_TOPIC_ID
        assert await code(leader_and_isr(4, replicas=(2,))) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert member.partition.leader_epoch == 3


async def test_stop_replica(tmp_path: Path) -> None:
    async with cluster(tmp_path, 1) as stage:
        await stage.elect(1, [1])
        member = stage.members[1]
        client = await member.connect()
        await ask(client, produce(batch(b"a")))
        stage.epoch = 4
        await stage.tell(member, 1, [1], 5)
        answer = await ask(member.control, stop(3, delete=True))
        assert answer.partition_errors[0].error_code == ErrorCode.FENCED_LEADER_EPOCH
        answer = await ask(member.control, stop(5, delete=False))
        assert answer.partition_errors[0].error_code == 0
        assert outcome(await ask(client, produce(batch(b"b"))))[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER
        answer = await ask(member.control, stop(-2, delete=True))
        assert answer.partition_errors[0].error_code == 0
        assert TP not in member.logs.logs
        answer = await ask(member.control, stop(-2, delete=True, controller_epoch=0))
        assert answer.error_code == ErrorCode.STALE_CONTROLLER_EPOCH
        stage.epoch = 0
        await stage.tell(member, 1, [1], 6)
        await until(lambda: member.partition.leading is not None)
        assert member.partition.log.end_offset == 0, "a topic created again begins empty"
        await client.close()


async def test_a_log_of_an_earlier_topic_is_set_aside(tmp_path: Path) -> None:
    async with cluster(tmp_path, 1) as stage:
        member = stage.members[1]
        member.logs.create(TP, UUID(int=5), member.parts.settings.config_of(TOPIC))
        await stage.elect(1, [1])
        assert member.partition.log.topic_id == TOPIC_ID
        assert [p.name for p in (tmp_path / "1").glob("*-stray")] != []


async def test_a_leader_must_be_in_its_isr_and_own_no_later_epoch(tmp_path: Path) -> None:
    async with cluster(tmp_path, 1) as stage:
        stage.epoch = 3
        assert await stage.tell(stage.members[1], 1, [2], 0) == ErrorCode.INVALID_REQUEST
        await stage.elect(1, [1])
        stage.members[1].partition.log.epochs.assign(9, 0)
        stage.epoch = 6
        assert await stage.tell(stage.members[1], 1, [1], 1) == ErrorCode.KAFKA_STORAGE_ERROR
        assert stage.members[1].partition.offline is not None


async def test_whoever_shuts_down_is_still_there_and_counts_for_no_isr(tmp_path: Path) -> None:
    """KAFKA-14140, KAFKA-15021: it is reached as before, but no leader admits it or waits for it."""

    async with cluster(tmp_path, 2) as stage:
        await stage.elect(1, [1, 2])
        member = stage.members[1]
        picture = stage.picture(1, [1, 2], 0)
        assert (await ask(member.control, picture)).error_code == 0
        assert member.parts.shared.membership.live == {1, 2}
        picture.live_brokers[1].is_leaving = True
        assert (await ask(member.control, picture)).error_code == 0
        assert member.parts.shared.membership.live == {1}


async def test_a_deletion_is_on_the_medium_when_it_is_answered_and_not_by_the_loop(tmp_path: Path) -> None:
    class Watched(RealDisk):
        synced: list[tuple[str, bool]] = []

        def sync_dir(self, path: str) -> None:
            self.synced.append((path, current_thread() is main_thread()))
            if path in broken:
                raise OSError(EIO, "broken")
            super().sync_dir(path)

    broken: set[str] = set()

    async with cluster(tmp_path, 1, Watched) as stage:
        member = stage.members[1]
        for number in range(2):
            stage.epoch = number
            await stage.elect(1, [1]) if not number else await stage.tell(member, 1, [1], 1)
            await until(lambda: member.partition.leading is not None)
            Watched.synced.clear()
            broken.update([str(tmp_path / "1")] if number else [])
            answer = await ask(member.control, stop(-2, delete=True))
            assert answer.partition_errors[0].error_code == number * ErrorCode.KAFKA_STORAGE_ERROR
            assert set(Watched.synced) == {(str(tmp_path / "1"), False)}


async def test_groups_hear_of_partitions_that_are_deleted(tmp_path: Path) -> None:
    async with cluster(tmp_path, 2) as stage:
        await stage.elect(1, [1, 2])
        member = stage.members[1]
        assert member.deleted == []
        await ask(member.control, stage.picture(-2, [], 1))
        assert member.deleted == [TP]

"""Replicas of topics that are no more, and followers that do not say whom they follow."""

import asyncio
from errno import ENOSPC
from pathlib import Path
from uuid import UUID

from strandline.base.types import BrokerId, Epoch, Offset
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages.control import (
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaTopicState,
    UpdateMetadataRequest,
)
from strandline.protocol.messages.fetch import ReplicaState
from strandline.replication.effects import RestartAt, Truncate
from strandline.replication.follower import AskRecords, Follower
from strandline.storage.log.leader_epochs import EpochHistory
from tests.broker.replica_harness import (
    TOPIC,
    TOPIC_ID,
    TP,
    ask,
    batch,
    cluster,
    fetch,
    fetched,
    outcome,
    produce,
)
from tests.storage.faulty_disk import FaultyDisk

FULL = 2


def whole(kind: type, epoch: int, **more: object) -> object:
    return kind(controller_id=1, controller_epoch=epoch, broker_epoch=1, type=FULL, **more)


async def test_a_full_command_sets_unknown_topics_aside_and_no_others(tmp_path: Path) -> None:
    async with cluster(tmp_path, 1) as stage:
        await stage.elect(1, [1])
        member = stage.members[1]
        client = await member.connect()
        assert outcome(await ask(client, produce(batch(b"a")))) == (0, 0)
        empty = {"topic_states": [], "live_leaders": []}
        await ask(member.control, whole(LeaderAndIsrRequest, 1, **empty))
        assert member.replicas.find(TP) is not None, "the topic is known; that it is not named proves nothing"
        await ask(member.control, whole(LeaderAndIsrRequest, 2, **empty))
        assert member.replicas.find(TP) is not None, "this controller has not told about topics yet"
        await ask(member.control, whole(UpdateMetadataRequest, 2, topic_states=[], live_brokers=[]))
        assert TOPIC_ID not in member.broker.metadata.names
        await ask(member.control, whole(LeaderAndIsrRequest, 2, **empty))
        assert member.replicas.find(TP) is None and member.logs.get(TP) is None
        (kept,) = [path for path in (tmp_path / "1").iterdir() if path.name.endswith("-stray")]
        assert any(path.stat().st_size for path in kept.glob("*.log")), "nothing is deleted"
        assert member.replicas.name_of(TOPIC_ID) is None
        await client.close()


async def test_a_full_command_sets_aside_what_has_moved_to_others(tmp_path: Path) -> None:
    """A broker that was dead when its replica went is not told to delete it: it sees for itself."""

    async with cluster(tmp_path, 1) as stage:
        await stage.elect(1, [1])
        member = stage.members[1]
        picture = stage.picture(2, [2], 1)
        (topic,) = picture.topic_states
        topic.partition_states[0].replicas = [2, 3]
        await ask(member.control, picture)
        other = LeaderAndIsrTopicState(topic_name=TOPIC, topic_id=TOPIC_ID, partition_states=[])
        command = {"topic_states": [other], "live_leaders": []}
        await ask(member.control, whole(LeaderAndIsrRequest, 1, **command))
        assert member.replicas.find(TP) is None
        assert [path.name for path in (tmp_path / "1").iterdir() if path.name.endswith("-stray")]


async def test_a_replica_that_has_moved_and_could_not_be_deleted_is_set_aside_when_all_is_told_again(
    tmp_path: Path,
) -> None:
    """Only of a topic that is being deleted the controller waits for every replica to be gone."""
    disk = FaultyDisk()

    async with cluster(tmp_path, 1, lambda: disk) as stage:
        await stage.elect(1, [1])
        member = stage.members[1]
        picture = stage.picture(2, [2], 1)
        (topic,) = picture.topic_states
        topic.partition_states[0].replicas = [2, 3]
        await ask(member.control, picture)
        short = disk.fail("rename", error=ENOSPC)
        state = StopReplicaPartitionState(partition_index=0, leader_epoch=1, delete_partition=True)
        stop = StopReplicaTopicState(topic_name=TOPIC, partition_states=[state])
        answer = await ask(
            member.control,
            StopReplicaRequest(controller_id=1, controller_epoch=1, broker_epoch=1, topic_states=[stop]),
        )
        assert answer.partition_errors[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert member.logs.get(TP) is not None and member.replicas.find(TP) is None
        disk.heal(short)
        other = LeaderAndIsrTopicState(topic_name=TOPIC, topic_id=TOPIC_ID, partition_states=[])
        command = {"topic_states": [other], "live_leaders": []}
        await ask(member.control, whole(LeaderAndIsrRequest, 1, **command))
        assert member.logs.get(TP) is None
        assert [path.name for path in (tmp_path / "1").iterdir() if path.name.endswith("-stray")]


async def test_a_fetch_by_the_id_of_an_earlier_topic_gets_nothing_of_this_one(tmp_path: Path) -> None:
    async with cluster(tmp_path, 1) as stage:
        await stage.elect(1, [1])
        member = stage.members[1]
        client = await member.connect()
        assert outcome(await ask(client, produce(batch(b"a")))) == (0, 0)
        member.logs.get(TP).topic_id = UUID(int=8)
        answer = fetched(await ask(client, fetch(0)))
        assert (answer.error_code, len(answer.records or b"")) == (ErrorCode.INCONSISTENT_TOPIC_ID, 0)
        await client.close()


async def test_a_follower_that_names_no_epoch_counts_for_nothing(tmp_path: Path) -> None:
    async with cluster(tmp_path, 2) as stage:
        await stage.members[2].server.stop()
        member = stage.members[1]
        stage.epoch += 1
        await stage.tell(member, 1, [1, 2], 0)
        client = await member.connect()
        pending = asyncio.ensure_future(ask(client, produce(batch(b"a"), timeout_ms=300)))
        await asyncio.sleep(0.05)
        forged = fetch(1, replica_state=ReplicaState(replica_id=2, replica_epoch=1, counts_starts=True))
        answer = fetched(await ask(member.control, forged))
        assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert outcome(await pending)[0] == ErrorCode.REQUEST_TIMED_OUT
        assert member.partition.high_watermark == 0
        await client.close()


class EmptyLog:
    start_offset = end_offset = flushed_offset = 100
    generation = 0
    epochs = EpochHistory([])


def test_an_empty_log_beyond_the_leaders_end_begins_where_the_leader_does() -> None:
    follower = Follower(EmptyLog(), BrokerId(2), Epoch(3), Offset(100))
    question = follower.question()
    assert isinstance(question, AskRecords) and question.offset == 100
    assert follower.out_of_range(question, Offset(40)) == (RestartAt(Offset(40)),)


def test_a_cut_below_the_first_record_empties_the_log() -> None:
    follower = Follower(EmptyLog(), BrokerId(2), Epoch(3), Offset(100))
    follower.truncated(Truncate(Offset(50), settled=True))
    assert follower.high_watermark == 100

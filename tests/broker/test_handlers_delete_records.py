"""DeleteRecords, over real sockets: who may ask for what, when it is answered, what consumers see then."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from strandline.base.types import BrokerId
from strandline.client.network.connection import Connection
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages.control import TopicConfigEntry
from strandline.protocol.messages.topics import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from strandline.storage.disk import DiskFailed, RealDisk
from strandline.storage.log.checkpoints import read_offsets
from tests.broker.replica_harness import (
    TOPIC,
    TP,
    Cluster,
    ask,
    batch,
    cluster,
    fetch,
    fetched,
    list_offsets,
    outcome,
    produce,
    until,
)
from tests.patience import HANG_S

Story = Callable[[Cluster, Connection], Coroutine[Any, Any, None]]


def run(directory: Path, story: Story, members: int = 1, **configs: str) -> None:
    """Ten records are in the log when the story begins."""

    async def play() -> None:
        async with cluster(directory, members) as stage:
            isr = tuple(range(1, members + 1))
            await stage.elect(1, isr, [TopicConfigEntry(name=n, value=v) for n, v in configs.items()])
            client = await stage.members[1].connect()
            for n in range(10):
                assert outcome(await ask(client, produce(batch(b"%d" % n)))) == (0, n)
            await story(stage, client)
            await client.close()

    asyncio.run(play())


def delete(
    offset: int, *, timeout_ms: int = 3000, topic: str = TOPIC, index: int = 0
) -> DeleteRecordsRequest:
    asked = DeleteRecordsPartition(partition_index=index, offset=offset)
    return DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=topic, partitions=[asked])], timeout_ms=timeout_ms
    )


def told(response: Any) -> tuple[int, int]:
    """Error code and low watermark of the only partition."""
    only = response.topics[0].partitions[0]
    return only.error_code, only.low_watermark


def log_of(stage: Cluster, member: int) -> Any:
    return stage.members[member].partition.log


def kept_start(stage: Cluster, member: int) -> int | None:
    directory = stage.members[member].config.directories[0]
    return read_offsets(RealDisk(), f"{directory}/log-start-offset-checkpoint").get(TP)


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (delete(11), ErrorCode.OFFSET_OUT_OF_RANGE),
        (delete(-2), ErrorCode.OFFSET_OUT_OF_RANGE),
        (delete(1, topic="other"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (delete(1, index=5), ErrorCode.NOT_LEADER_OR_FOLLOWER),
    ],
)
def test_what_is_refused_deletes_nothing(
    tmp_path: Path, request_: DeleteRecordsRequest, code: ErrorCode
) -> None:
    async def story(stage: Cluster, client: Connection) -> None:
        assert told(await ask(client, request_)) == (code, -1)
        assert log_of(stage, 1).start_offset == 0

    run(tmp_path, story)


def test_a_topic_that_is_only_compacted_keeps_its_records(tmp_path: Path) -> None:
    async def story(stage: Cluster, client: Connection) -> None:
        assert told(await ask(client, delete(5))) == (ErrorCode.POLICY_VIOLATION, -1)
        assert log_of(stage, 1).start_offset == 0

    run(tmp_path, story, **{"cleanup.policy": "compact"})


def test_both_policies_together_allow_it(tmp_path: Path) -> None:
    async def story(stage: Cluster, client: Connection) -> None:
        assert told(await ask(client, delete(5))) == (0, 5)

    run(tmp_path, story, **{"cleanup.policy": "compact,delete"})


def test_consumers_see_the_new_beginning(tmp_path: Path) -> None:
    async def story(stage: Cluster, client: Connection) -> None:
        assert told(await ask(client, delete(4))) == (0, 4)
        assert fetched(await ask(client, fetch(3))).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        found = fetched(await ask(client, fetch(4)))
        assert (found.error_code, found.log_start_offset) == (0, 4)
        assert found.records
        request = list_offsets(-2)
        assert (await ask(client, request)).topics[0].partitions[0].offset == 4
        assert told(await ask(client, delete(2))) == (0, 4), "what is gone cannot be deleted again"
        assert log_of(stage, 1).start_offset == 4

    run(tmp_path, story)


def test_the_high_watermark_stands_for_everything(tmp_path: Path) -> None:
    async def story(stage: Cluster, client: Connection) -> None:
        for version in (0, 1, 2):
            assert told(await ask(client, delete(-1), version)) == (0, 10 + version)
            assert outcome(await ask(client, produce(batch(b"more")))) == (0, 10 + version)

    run(tmp_path, story)


def test_the_answer_comes_after_the_new_start_is_on_the_medium(tmp_path: Path) -> None:
    async def story(stage: Cluster, client: Connection) -> None:
        assert told(await ask(client, delete(4, timeout_ms=0))) == (0, 4)
        assert kept_start(stage, 1) == 4

    run(tmp_path, story)


def test_a_start_that_cannot_be_written_is_not_promised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(stage: Cluster, client: Connection) -> None:
        def broken(only: str) -> None:
            raise DiskFailed("/x", OSError(5, "Input/output error"))

        monkeypatch.setattr(stage.members[1].logs, "checkpoint_start_offsets", broken)
        assert told(await ask(client, delete(4))) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)

    run(tmp_path, story)


def test_all_live_replicas_have_followed_when_it_is_answered(tmp_path: Path) -> None:
    async def story(stage: Cluster, client: Connection) -> None:
        before = asyncio.get_running_loop().time()
        assert told(await ask(client, delete(4))) == (0, 4)
        assert [log_of(stage, id).start_offset for id in (1, 2, 3)] == [4, 4, 4]
        assert asyncio.get_running_loop().time() - before < 0.3, "no fetch waits out its 400 ms"

    run(tmp_path, story, members=3)


def test_a_live_follower_that_does_not_fetch_is_waited_for(tmp_path: Path) -> None:
    async def story(stage: Cluster, client: Connection) -> None:
        follower = stage.members[3].partition
        stage.members[3].parts.fetchers.drop(follower)
        pending = client.submit(delete(4), deadline=asyncio.get_running_loop().time() + HANG_S)
        await until(lambda: log_of(stage, 2).start_offset == 4)
        await until(lambda: kept_start(stage, 1) == 4)
        assert not pending.done()
        stage.members[3].parts.fetchers.follow(follower)
        assert told(await pending) == (0, 4)

    run(tmp_path, story, members=3)


def test_a_follower_that_has_died_is_not_waited_for(tmp_path: Path) -> None:
    async def story(stage: Cluster, client: Connection) -> None:
        stage.members[3].parts.fetchers.drop(stage.members[3].partition)
        pending = client.submit(delete(4), deadline=asyncio.get_running_loop().time() + HANG_S)
        await until(lambda: log_of(stage, 2).start_offset == 4)
        assert not pending.done()
        stage.members[1].parts.shared.brokers_are(frozenset(map(BrokerId, (1, 2))))
        assert told(await pending) == (0, 4)

    run(tmp_path, story, members=3)


def test_the_time_can_be_up(tmp_path: Path) -> None:
    async def story(stage: Cluster, client: Connection) -> None:
        stage.members[2].parts.fetchers.drop(stage.members[2].partition)
        assert told(await ask(client, delete(4, timeout_ms=10))) == (ErrorCode.REQUEST_TIMED_OUT, -1)
        assert log_of(stage, 1).start_offset == 4
        assert not stage.members[1].parts.deletions._queues

    run(tmp_path, story, members=2)


def test_a_leader_that_resigns_tells_those_who_wait(tmp_path: Path) -> None:
    async def story(stage: Cluster, client: Connection) -> None:
        stage.members[2].parts.fetchers.drop(stage.members[2].partition)
        pending = client.submit(delete(4), deadline=asyncio.get_running_loop().time() + HANG_S)
        await until(lambda: stage.members[1].parts.deletions._queues)
        await stage.elect(2, (1, 2))
        assert told(await pending) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
        assert log_of(stage, 1).start_offset == 4, "what is gone stays gone"

    run(tmp_path, story, members=2)


def test_a_voice_from_an_earlier_life_says_nothing_about_the_start(tmp_path: Path) -> None:
    async def story(stage: Cluster, client: Connection) -> None:
        partition = stage.members[1].partition
        progress = partition.leading.progress_of(2)
        await until(lambda: progress.log_start_offset == 0)
        partition.follower_fetched(BrokerId(2), progress.incarnation - 1, 10, -1, partition.leader_epoch, 9)
        assert progress.log_start_offset == 0

    run(tmp_path, story, members=2)

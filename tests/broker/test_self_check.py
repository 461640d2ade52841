"""Bad bytes at a leader do not spread: its follower takes none, and the leader finds out."""

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from strandline.protocol.errors import ErrorCode
from strandline.storage.segment.verify_batch import damage_at
from tests.broker.replica_harness import ask, batch, cluster, fetch, fetched, outcome, produce, until


def spoil(path: str, at: int) -> None:
    data = bytearray(Path(path).read_bytes())
    data[at] ^= 1
    Path(path).write_bytes(data)


@pytest.mark.parametrize("at", [-1, 7], ids=["in its records", "in its offset"])
async def test_a_follower_takes_no_bad_batch_and_the_leader_goes_offline(tmp_path: Path, at: int) -> None:
    async with cluster(tmp_path, 2, replication={"fetch_backoff_ms": 50, "fetch_wait_max_ms": 50}) as stage:
        leader, follower = stage.members[1], stage.members[2]
        await stage.elect(1, [1])
        follower.parts.fetchers.drop(follower.partition)
        client = await leader.connect()
        for value in (b"good", b"bad", b"more"):
            assert outcome(await ask(client, produce(batch(value), acks=1)))[0] == 0
        log = leader.partition.log
        assert [damage_at(log.segments, offset, 3) for offset in range(4)] == [""] * 4
        size = len(batch(b"good"))
        spoil(log.segments[0].path(".log"), size + (at if at > 0 else len(batch(b"bad")) - 1))
        assert damage_at(log.segments, 1, 3)
        log._tail.clear()
        with capture_logs() as lines:
            follower.parts.fetchers.follow(follower.partition)
            await until(lambda: leader.partition.offline is not None)
        if at < 0:
            assert any(line["event"] == "fetch_refused" for line in lines), "the follower has said so"
        assert follower.partition.log.end_offset == (1 if at < 0 else 0), "what is good before it, at most"
        assert fetched(await ask(client, fetch(0))).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        await client.close()


async def test_a_good_batch_that_is_asked_for_again_is_no_harm(tmp_path: Path) -> None:
    async with cluster(tmp_path, 2) as stage:
        leader = stage.members[1]
        await stage.elect(1, [1, 2])
        client = await leader.connect()
        await ask(client, produce(batch(b"good")))
        with capture_logs() as lines:
            for _ in range(5):
                leader.partition.follower_fetched(2, 1, 0, -1, leader.partition.leader_epoch)
            await until(lambda: any(line["event"] == "batch_checked" for line in lines))
        assert leader.partition.offline is None
        await client.close()


@pytest.mark.parametrize("isr", [[1, 2], [1]], ids=["another can lead", "the last one"])
async def test_a_consumer_is_given_no_bad_batch_while_another_can_lead(
    tmp_path: Path, isr: list[int]
) -> None:
    """It learns that this replica is offline, and finds the next leader; the last copy is served as it is."""
    async with cluster(tmp_path, 2) as stage:
        leader = stage.members[1]
        await stage.elect(1, isr)
        if isr == [1]:
            stage.members[2].parts.fetchers.drop(stage.members[2].partition)
        client = await leader.connect()
        for value in (b"good", b"bad"):
            assert outcome(await ask(client, produce(batch(value), acks=-1)))[0] == 0
        log = leader.partition.log
        assert fetched(await ask(client, fetch(0))).error_code == 0
        spoil(log.segments[0].path(".log"), -1)
        log._tail.clear()
        found = fetched(await ask(client, fetch(0)))
        if isr == [1]:
            assert bytes(found.records) and leader.partition.offline is None
        else:
            assert found.error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert "checksum" in (leader.partition.offline or "")
        await client.close()

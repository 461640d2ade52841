"""Followers and their leader: haste, patience, and what is lost between them."""

import asyncio
from pathlib import Path

from strandline.broker.follower.fetcher import FIRST_RETRY_SECONDS, Backoff
from tests.broker.replica_harness import ask, batch, cluster, outcome, produce, until
from tests.patience import HANG_S


def test_backoff_grows_and_begins_anew() -> None:
    backoff = Backoff(0.1)
    assert [backoff.failed() for _ in range(5)] == [
        FIRST_RETRY_SECONDS, 2 * FIRST_RETRY_SECONDS, 4 * FIRST_RETRY_SECONDS, 0.1, 0.1,
    ]  # fmt: skip
    backoff.succeeded()
    assert backoff.failed() == FIRST_RETRY_SECONDS


async def test_the_leader_comes_back_at_another_address(tmp_path: Path) -> None:
    async with cluster(tmp_path, 2) as stage:
        await stage.elect(1, [1, 2])
        client = await stage.members[1].connect()
        await ask(client, produce(batch(b"a")))
        fetchers = stage.members[2].parts.fetchers
        fetcher = fetchers._by_leader[stage.members[1].config.id]
        assert fetcher._connection is not None
        fetcher._connection.give_up("the test says so")
        assert outcome(await ask(client, produce(batch(b"b")))) == (0, 1)
        fetchers.know([(stage.members[1].config.id, "127.0.0.1", 1)])
        await asyncio.sleep(0.05)
        fetchers.know([(stage.members[1].config.id, "127.0.0.1", stage.members[1].ports["PLAINTEXT"])])
        assert outcome(await ask(client, produce(batch(b"c")))) == (0, 2)
        assert stage.members[2].partition.log.end_offset == 3
        await client.close()


async def test_a_new_epoch_does_not_wait_for_the_parked_fetch(tmp_path: Path) -> None:
    options = {"replication": {"fetch_wait_max_ms": 60_000, "lag_time_max_ms": 90_000}}
    async with cluster(tmp_path, 2, **options) as stage:
        loop = asyncio.get_running_loop()
        await stage.elect(1, [1, 2])
        await until(lambda: stage.members[1].partition.parked)
        client = await stage.members[1].connect()
        for _ in range(5):
            await stage.elect(1, [1, 2])
            began = loop.time()
            assert outcome(await ask(client, produce(batch(b"a"))))[0] == 0
            assert loop.time() - began < HANG_S
        await client.close()


async def test_who_was_refused_does_not_wait_for_the_parked_fetch(tmp_path: Path) -> None:
    """A leader is often told of its role after its followers; other partitions have nothing to fetch."""

    options = {"replication": {"fetch_wait_max_ms": 60_000, "lag_time_max_ms": 90_000}}
    async with cluster(tmp_path, 2, **options) as stage:
        loop = asyncio.get_running_loop()
        await stage.elect(1, [1, 2])
        client = await stage.members[1].connect()
        assert outcome(await ask(client, produce(batch(b"a"))))[0] == 0
        await stage.tell(stage.members[2], 1, [1, 2], 0, index=1)
        fetcher = stage.members[2].parts.fetchers._by_leader[stage.members[1].config.id]
        await until(lambda: fetcher._delays)
        await stage.tell(stage.members[1], 1, [1, 2], 0, index=1)
        began = loop.time()
        assert outcome(await ask(client, produce(batch(b"b"), index=1)))[0] == 0
        assert loop.time() - began < HANG_S
        await client.close()


async def test_a_fetcher_whose_last_partition_goes_while_it_connects_ends(tmp_path: Path) -> None:
    """It kept its connection open for ten seconds, with nothing to fetch."""
    async with cluster(tmp_path, 2) as stage:
        await stage.elect(1, [1, 2])
        (fetcher,) = stage.members[2].parts.fetchers.of()
        assert fetcher._connection is None, "it has just begun"
        await stage.silence(2)

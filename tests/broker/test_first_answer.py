"""A client's first question finds the truth: answers wait for the controller where a broker knows better.

Which answers wait, and how long, is told in scenarios/metadata; here real sockets break.
"""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from strandline.broker.metadata import doubts
from strandline.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.broker.replica_harness import TOPIC, Cluster, ask, batch, cluster, produce, until

QUESTION = MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)], allow_auto_topic_creation=False)


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """So long that no slow machine ends a wait."""
    monkeypatch.setattr(doubts, "HOLD_S", 30.0)


async def question(stage: Cluster, member: int) -> "asyncio.Task[int]":
    """Who leads, as this broker tells a client that asks now; the task ends when it answers."""
    broker = stage.members[member].broker
    held = len(broker.held)
    client = await stage.members[member].connect()

    async def leader() -> int:
        try:
            answer: Any = await ask(client, QUESTION)
            return int(answer.topics[0].partitions[0].leader_id)
        finally:
            await client.close()

    asked = asyncio.ensure_future(leader())
    await until(lambda: len(broker.held) > held or asked.done())
    return asked


async def test_who_asks_when_the_leader_has_died_is_told_of_the_next_one(tmp_path: Path) -> None:
    async with cluster(tmp_path, 3) as stage:
        await stage.elect(1, [1, 2, 3])
        client = await stage.members[1].connect()
        await ask(client, produce(batch(b"m1")))  # both followers are connected
        await client.close()
        await stage.members.pop(1).stop()
        held = stage.members[2].broker.held
        await until(lambda: held.doubts.lost_brokers)
        asked = await question(stage, 2)
        assert len(held) == 1, "the picture still names broker 1"
        await stage.elect(3, [2, 3])
        assert await asked == 3
        assert len(held) == 0


async def test_who_asks_while_a_leader_moves_is_told_of_the_next_one(tmp_path: Path) -> None:
    async with cluster(tmp_path, 2) as stage:
        await stage.elect(1, [1, 2])
        first = stage.members[1]
        stage.epoch += 1
        tell = ask(first.control, stage.role(2, [1, 2], 1))
        assert (await tell).error_code == 0
        asked = await question(stage, 1)
        assert len(first.broker.held) == 1, "broker 1 has been told to follow, and no client has"
        at_two = await question(stage, 2)
        assert await at_two == 1, "broker 2 has heard nothing yet"
        await ask(first.control, stage.picture(2, [1, 2], 1))
        assert await asked == 2


async def test_a_connection_that_is_made_again_ends_the_wait(tmp_path: Path) -> None:
    async with cluster(tmp_path, 2) as stage:
        await stage.elect(1, [1, 2])
        follower = stage.members[2]
        (fetcher,) = follower.parts.fetchers.of()
        await until(lambda: fetcher._connection is not None)
        assert fetcher._connection is not None
        fetcher._connection.give_up("the test wants it")
        assert follower.broker.held.doubts.lost_brokers, (
            "at once: a client may ask in the same turn of the loop"
        )
        assert await (await question(stage, 2)) == 1
        assert not follower.broker.held.doubts.lost_brokers

"""leader.fence.on.zk.loss: what a leader takes whose ZooKeeper session must be taken as ended."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from strandline.base.types import BrokerId, Incarnation
from strandline.broker.internal_topics.leads_still import leads_still
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages.topics import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from strandline.zookeeper.client import SessionEvent, SessionState
from tests.broker.replica_harness import TOPIC, ask, batch, cluster, outcome, produce, until

REFUSED = ErrorCode.NOT_LEADER_OR_FOLLOWER


def tell(stage: Any, state: SessionState) -> None:
    stage.members[1].parts.ticks.on_session(SessionEvent(state, 1))


def delete(offset: int) -> DeleteRecordsRequest:
    partition = DeleteRecordsPartition(partition_index=0, offset=offset)
    return DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=TOPIC, partitions=[partition])], timeout_ms=3000
    )


@pytest.mark.parametrize("fences", [True, False])
@pytest.mark.parametrize("gone", [SessionState.ASSUME_EXPIRED, SessionState.EXPIRED])
async def test_only_what_all_have_is_acknowledged_without_a_session(
    tmp_path: Path, fences: bool, gone: SessionState
) -> None:
    options = {"lag_time_max_ms": 1000, "fetch_wait_max_ms": 400, "fence_on_zookeeper_loss": fences}
    async with cluster(tmp_path, 2, replication=options) as stage:
        await stage.elect(1, [1, 2])
        client = await stage.members[1].connect()
        assert outcome(await ask(client, produce(batch(b"all")))) == (0, 0)
        tell(stage, SessionState.SUSPENDED)
        assert outcome(await ask(client, produce(batch(b"one"), acks=1))) == (0, 1), "it may live on"
        tell(stage, gone)
        tell(stage, SessionState.SUSPENDED)
        by_itself = outcome(await ask(client, produce(batch(b"one"), acks=1)))
        assert by_itself == ((REFUSED, -1) if fences else (0, 2))
        answer = (await ask(client, delete(1))).topics[0].partitions[0]
        assert answer.error_code == (REFUSED if fences else 0)
        assert outcome(await ask(client, produce(batch(b"all"))))[0] == 0, "its follower still asks it"
        tell(stage, SessionState.CONNECTED)
        assert outcome(await ask(client, produce(batch(b"one"), acks=1)))[0] == 0
        await client.close()


async def test_a_leader_that_may_have_a_successor_knows_it(tmp_path: Path) -> None:
    """Neither ZooKeeper nor a follower says that it leads; that it is connected again says nothing either."""
    async with cluster(tmp_path, 2) as stage:
        await stage.elect(1, [1, 2])
        leader = stage.members[1].partition
        tell(stage, SessionState.SUSPENDED)
        assert not leader.may_be_replaced, "its follower still asks it"
        await stage.silence(2)
        await until(lambda: leader.may_be_replaced)
        tell(stage, SessionState.CONNECTED)
        assert leader.may_be_replaced, "its state has not been read again"
        await until(lambda: not leader.may_be_replaced)
        assert leader.leading is not None and leader.leading.is_forsaken(asyncio.get_running_loop().time())


async def test_whoever_may_have_stood_still_looks_before_anything_is_executed(tmp_path: Path) -> None:
    """A deadline that has passed unseen is found when the first bytes come, not at the next timer."""

    async with cluster(tmp_path, 1, replication={"fence_on_zookeeper_loss": True}) as stage:
        await stage.elect(1, [1])
        client, turn = await stage.members[1].connect(), stage.members[1].turn
        assert outcome(await ask(client, produce(batch(b"a"), acks=1))) == (0, 0)
        turn.before = lambda: tell(stage, SessionState.ASSUME_EXPIRED)
        assert outcome(await ask(client, produce(batch(b"b"), acks=1))) == (REFUSED, -1)
        assert stage.members[1].partition.log.end_offset == 1
        await client.close()


async def test_a_leader_in_doubt_leads_still_if_all_others_fetch_twice(tmp_path: Path) -> None:
    """A coordinator that was replaced a moment ago would tell offsets of before."""
    async with cluster(tmp_path, 3, replication={"fetch_wait_max_ms": 100}) as stage:
        await stage.elect(1, [1, 2, 3])
        leader = stage.members[1].partition
        tell(stage, SessionState.ASSUME_EXPIRED)
        assert await leads_still(leader), "its followers fetch"
        await stage.silence(2)
        asked = asyncio.ensure_future(leads_still(leader))
        await asyncio.sleep(0)
        assert not leader.may_be_replaced, "one of them fetches, and the other did a moment ago"
        assert not await asked
        tell(stage, SessionState.CONNECTED)
        await until(lambda: not leader.is_in_doubt)
        assert await leads_still(leader), "its state says so"


async def test_one_fetch_that_was_on_its_way_proves_nothing(tmp_path: Path) -> None:
    async with cluster(tmp_path, 2, replication={"fetch_wait_max_ms": 100}) as stage:
        await stage.elect(1, [1, 2])
        leader = stage.members[1].partition
        await stage.silence(2)
        tell(stage, SessionState.SUSPENDED)
        asked = asyncio.ensure_future(leads_still(leader))
        await asyncio.sleep(0)
        assert leader.leading is not None
        leader.leading.fetched(BrokerId(2), Incarnation(1), leader.log.end_offset, loop_time() + 0.01)
        assert not await asked


def loop_time() -> float:
    return asyncio.get_running_loop().time()

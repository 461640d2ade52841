"""ISR writes when ZooKeeper is slow to tell, or has moved on."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from strandline.replication.isr import Growing, Settled
from strandline.zookeeper import documents
from strandline.zookeeper.client import Create, Delete, MultiFailed, SetData, Unknown
from tests.broker.replica_harness import (
    TOPIC_ID,
    TP,
    Cluster,
    DirectRegistry,
    ask,
    batch,
    cluster,
    fetch,
    fetched,
    outcome,
    produce,
    until,
)
from tests.patience import HANG_S


def losing_answers(stage: Cluster, lands: bool) -> dict[str, int]:
    """From now on ISR writes end in `Unknown`, though they may land."""
    real, count = stage.zk.multi, {"lost": 0}

    async def multi(ops: Any) -> Any:
        if ops[0].path == documents.state_path(TP) and not count.get("healed"):
            count["lost"] += 1
            if lands and count["lost"] == 1:
                await real(ops)
            raise Unknown("the connection broke")
        return await real(ops)

    stage.zk.multi = multi  # type: ignore[method-assign]
    return count


async def test_a_write_whose_answer_is_lost_is_found_to_have_landed(tmp_path: Path) -> None:
    async with cluster(tmp_path, 2) as stage:
        count = losing_answers(stage, lands=True)
        count["healed"] = 1
        await stage.elect(1, [1])
        count["healed"] = 0
        leader = stage.members[1].partition.leading
        await until(lambda: leader.isr == Settled(frozenset({1, 2})))
        assert count["lost"] == 1, "the state was read before a second write"
        assert stage.state().isr == [1, 2]
        assert stage.state().controller_epoch == 1, "that controller decided (ReplicationUtils)"


async def test_a_write_that_lands_late_spares_the_next_topic_of_its_name(tmp_path: Path) -> None:
    """Its states begin at the same versions: the check of the topic's id tells the two apart."""

    async with cluster(tmp_path, 2) as stage:
        late: list[Any] = []
        real, zookeeper = stage.zk.multi, stage.zk.zookeeper

        async def multi(ops: Any) -> Any:
            if ops[0].path != documents.state_path(TP) or late:
                return await real(ops)
            late.append(ops)
            raise Unknown("it is under way")

        for path in (documents.STRANDLINE, documents.LIVES, documents.life_path(TOPIC_ID)):
            if path not in zookeeper.nodes:
                await real([Create(path, b"")])
        await stage.elect(1, [1])
        stage.zk.multi = multi  # type: ignore[method-assign]
        await until(lambda: late)
        state = zookeeper.nodes[documents.state_path(TP)]
        state.version = late[0][0].version  # as of a topic that was deleted and made again
        zookeeper.multi([Delete(documents.life_path(TOPIC_ID), 0)], stage.zk.session_id)
        with pytest.raises(MultiFailed) as failed:
            zookeeper.multi(late[0], stage.zk.session_id)
        assert late[0][failed.value.culprit].path == documents.life_path(TOPIC_ID)


async def test_while_the_outcome_is_unknown_the_newcomer_counts(tmp_path: Path) -> None:
    async with cluster(tmp_path, 2) as stage:
        count = losing_answers(stage, lands=False)
        count["healed"] = 1
        await stage.elect(1, [1])
        count["healed"] = 0
        leader = stage.members[1].partition.leading
        await until(lambda: count["lost"] >= 1)
        assert isinstance(leader.isr, Growing)
        await stage.silence(2)
        client = await stage.members[1].connect()
        await ask(client, produce(batch(b"a"), acks=1))
        assert leader.high_watermark == 0
        await until(lambda: count["lost"] >= 2)
        count["healed"] = 1
        await until(lambda: stage.state().isr == [1, 2])
        await until(lambda: isinstance(leader.isr, Settled))
        await client.close()


async def test_leaders_are_watched_closely_only_while_their_isr_is_incomplete(tmp_path: Path) -> None:
    async with cluster(tmp_path, 2) as stage:
        isr = stage.members[1].parts.isr
        stage.members[2].parts.fetchers.stop()
        await stage.elect(1, [1])
        assert list(isr.unsettled) == [stage.members[1].partition]
        await stage.elect(2, [2])
        await until(lambda: not isr.unsettled)  # it leads no more
        await stage.elect(1, [1])
        await until(lambda: isr.unsettled)
        await stage.elect(1, [1, 2])
        assert not isr.unsettled


async def test_nothing_is_written_for_a_leadership_that_has_ended(tmp_path: Path) -> None:
    """It ended while the state was read, but not in ZooKeeper: its version would let the write land."""

    async with cluster(tmp_path, 2) as stage:
        replicas, real = stage.members[1].replicas, stage.zk.get
        reads, writes = list[str](), list[Any]()

        async def get(path: str, watch: Any = None) -> Any:
            found = await real(path, watch)
            if path == documents.state_path(TP) and (partition := replicas.find(TP)) is not None:
                reads.append(path)
                partition.resign()
            return found

        async def multi(ops: Any) -> Any:
            writes.append(ops)
            return await DirectRegistry.multi(stage.zk, ops)

        stage.zk.get = get  # type: ignore[method-assign]
        await stage.elect(1, [1])
        stage.zk.multi = multi  # type: ignore[method-assign]
        await until(lambda: reads)
        running = stage.members[1].parts._tasks._running
        await until(lambda: not any(".isr-" in task.get_name() for task in running))
        assert writes == [] and stage.state().isr == [1]


async def test_a_leader_that_zookeeper_has_replaced_steps_down(tmp_path: Path) -> None:
    async with cluster(tmp_path, 2) as stage:
        await stage.elect(1, [1, 2])
        await stage.silence(2)
        state = stage.state().model_copy(update={"leader": 2, "leader_epoch": 1})
        await stage.zk.multi([SetData(documents.state_path(TP), state.data(), 1)])
        client = await stage.members[1].connect()
        waiting = client.submit(
            produce(batch(b"a"), timeout_ms=4000), deadline=asyncio.get_running_loop().time() + HANG_S
        )
        assert outcome(await waiting)[0] == 6
        assert fetched(await ask(client, fetch(0))).error_code == 6
        await client.close()


async def test_a_follower_that_is_not_registered_is_not_admitted(tmp_path: Path) -> None:
    async with cluster(tmp_path, 2) as stage:
        await stage.zk.multi([Delete(documents.broker_path(2), 0)])
        await stage.elect(1, [1])
        leader = stage.members[1].partition.leading
        await until(lambda: leader.progress_of(2).refused_until > 0)
        assert leader.isr == Settled(frozenset({1}))
        assert stage.state().isr == [1]
        await stage.create(documents.broker_path(2), b'{"incarnation":1}')
        await until(lambda: stage.state().isr == [1, 2])

"""A cluster of brokers that replicate, without a controller: the test says who leads."""

import asyncio
from pathlib import Path

from strandline.base.types import BrokerId, Epoch, TopicPartition
from strandline.protocol.errors import ErrorCode
from strandline.replication.effects import StepDown
from tests.broker.replica_harness import TP, ask, batch, cluster, fetch, fetched, outcome, produce, until
from tests.patience import HANG_S


async def test_acks_all_waits_for_the_followers(tmp_path: Path) -> None:
    async with cluster(tmp_path, 3) as stage:
        await stage.elect(1, [1, 2, 3])
        client = await stage.members[1].connect()
        assert outcome(await ask(client, produce(batch(b"a", b"b")))) == (0, 0)
        assert outcome(await ask(client, produce(batch(b"c")))) == (0, 2)
        leader = stage.members[1].partition
        assert leader.high_watermark == 3
        for id in (2, 3):
            assert stage.members[id].partition.log.end_offset == 3
        answer = fetched(await ask(client, fetch(0)))
        assert (answer.error_code, answer.high_watermark) == (0, 3)
        logs = [bytes(stage.members[i].partition.log.read(0, 1 << 20, 3)) for i in (1, 2, 3)]
        assert logs[0] == logs[1] == logs[2] == bytes(answer.records)
        await client.close()


async def test_leadership_moves_and_the_old_leader_follows(tmp_path: Path) -> None:
    async with cluster(tmp_path, 2) as stage:
        await stage.elect(1, [1, 2])
        client = await stage.members[1].connect()
        assert outcome(await ask(client, produce(batch(b"a")))) == (0, 0)
        await stage.elect(2, [1, 2])
        refused = await ask(client, produce(batch(b"b")))
        assert outcome(refused)[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER
        hint = refused.responses[0].partition_responses[0].current_leader
        assert (hint.leader_id, hint.leader_epoch) == (2, 1)
        assert refused.node_endpoints[0].port == stage.members[2].ports["CLIENT"]
        other = await stage.members[2].connect()
        assert outcome(await ask(other, produce(batch(b"b")))) == (0, 1)
        await until(lambda: stage.members[1].partition.log.end_offset == 2)
        assert stage.members[1].partition.log.epochs.entries == [(0, 0), (1, 1)]
        await client.close()
        await other.close()


async def test_the_hint_is_as_new_as_the_role(tmp_path: Path) -> None:
    """The picture of the cluster comes after the roles; who waits or asks between hears who leads now."""

    async with cluster(tmp_path, 2) as stage:
        await stage.elect(1, [1, 2])
        first = stage.members[1]
        await stage.tell(first, 1, [1, 2], 0, index=1)
        producer, consumer = await first.connect(), await first.connect()
        deadline = asyncio.get_running_loop().time() + HANG_S
        waiting = producer.submit(produce(batch(b"a"), index=1), deadline=deadline)
        asked = fetch(0, max_wait_ms=4000, partition=1)
        parked = consumer.submit(asked, deadline=deadline)
        replica = first.replicas.get(TopicPartition(TP.topic, 1))
        await until(lambda: replica.acks and replica.parked)
        stage.epoch += 1
        await stage.tell(first, 2, [1, 2], 1, index=1)
        answers = [(await waiting).responses[0].partition_responses[0], fetched(await parked)]
        answers.append(fetched(await ask(consumer, asked)))
        for told in answers:
            assert told.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert (told.current_leader.leader_id, told.current_leader.leader_epoch) == (2, 1)
        await producer.close()
        await consumer.close()


async def test_a_leader_that_finds_itself_deposed_names_its_successor(tmp_path: Path) -> None:
    """It has read so in ZooKeeper; the controller has not told it yet."""

    async with cluster(tmp_path, 2) as stage:
        await stage.elect(1, [1, 2])
        await until(lambda: stage.members[2].partition.following is not None)
        stage.members[2].parts.fetchers.drop(stage.members[2].partition)
        first = stage.members[1]
        client = await first.connect()
        deadline = asyncio.get_running_loop().time() + HANG_S
        waiting = client.submit(produce(batch(b"a")), deadline=deadline)
        await until(lambda: first.partition.acks)
        deposed = [StepDown(BrokerId(2), Epoch(5))]
        first.parts.shared.perform(first.partition, first.partition.leading, deposed)
        for answer in (await waiting, await ask(client, produce(batch(b"b")))):
            told = answer.responses[0].partition_responses[0]
            assert told.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert (told.current_leader.leader_id, told.current_leader.leader_epoch) == (2, 5)
        await stage.elect(1, [1])
        assert outcome(await ask(client, produce(batch(b"c"))))[0] == 0
        await client.close()


async def test_waiting_produce_and_fetch_are_answered_when_leadership_is_lost(tmp_path: Path) -> None:
    async with cluster(tmp_path, 2) as stage:
        await stage.elect(1, [1, 2])
        await stage.members[2].server.stop()
        await until(lambda: stage.members[2].partition.following is not None)
        await stage.silence(2)
        producer = await stage.members[1].connect()
        consumer = await stage.members[1].connect()
        soon = asyncio.get_running_loop().time() + HANG_S
        waiting = producer.submit(produce(batch(b"a")), deadline=soon)
        parked = consumer.submit(fetch(0, max_wait_ms=4000), deadline=soon)
        await until(lambda: len(stage.members[1].partition.acks) == 1)
        stage.members.pop(2, None)
        stage.epoch += 1
        await stage.tell(stage.members[1], 9, [9], 1)
        assert outcome(await waiting)[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert fetched(await parked).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        await producer.close()
        await consumer.close()


async def test_a_silent_follower_leaves_the_isr_and_comes_back(tmp_path: Path) -> None:
    async with cluster(tmp_path, 2) as stage:
        await stage.elect(1, [1, 2])
        follower = stage.members[2].partition
        await stage.silence(2)
        client = await stage.members[1].connect()
        assert outcome(await ask(client, produce(batch(b"a")))) == (0, 0)
        assert stage.state().isr == [1]
        assert stage.state().isr_epochs == {1: 1}
        stage.members[2].parts.fetchers.follow(follower)
        await until(lambda: stage.state().isr == [1, 2])
        assert stage.state().isr_epochs == {1: 1, 2: 1}
        assert follower.log.end_offset == 1
        await client.close()


async def test_followers_cut_what_the_new_leader_does_not_have(tmp_path: Path) -> None:
    async with cluster(tmp_path, 2) as stage:
        await stage.elect(1, [1, 2])
        await stage.silence(2)
        client = await stage.members[1].connect()
        assert outcome(await ask(client, produce(batch(b"lost"), acks=1))) == (0, 0)
        await stage.elect(2, [2])
        other = await stage.members[2].connect()
        assert outcome(await ask(other, produce(batch(b"kept", b"kept")))) == (0, 0)
        await until(lambda: stage.members[1].partition.log.end_offset == 2)
        logs = [bytes(stage.members[i].partition.log.read(0, 1 << 20, 2)) for i in (1, 2)]
        assert logs[0] == logs[1]
        await client.close()
        await other.close()


async def test_watermarks_are_written_down(tmp_path: Path) -> None:
    async with cluster(tmp_path, 1) as stage:
        await stage.elect(1, [1])
        client = await stage.members[1].connect()
        await ask(client, produce(batch(b"a")))
        await stage.members[1].parts.watermarks.write()
        assert stage.members[1].logs.high_watermarks[TP] == 1
        await client.close()

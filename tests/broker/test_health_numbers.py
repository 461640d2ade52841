"""The numbers by which an operator sees that something is wrong are not zero when it is."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from strandline.broker.config.files import load
from strandline.broker.network.metrics import Metrics
from strandline.broker.replication_metrics import of_replicas, replication_metrics
from strandline.controller.planning.decision_notes import DecisionNotes
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages.control import TopicConfigEntry
from strandline.zookeeper.client import SessionEvent, SessionState
from tests.broker.replica_harness import ask, batch, cluster, outcome, produce, until
from tests.broker.transaction_harness import scene, sent, transactional


async def test_a_follower_that_is_gone_is_counted_and_one_that_is_back_is_not(tmp_path: Path) -> None:
    async with cluster(tmp_path, 2) as stage:
        await stage.elect(1, [1, 2], [TopicConfigEntry(name="min.insync.replicas", value="2")])
        one, two = stage.members[1], stage.members[2]
        leader, follower = lambda: of_replicas(one.broker), lambda: of_replicas(two.broker)
        assert leader()["AtMinIsrPartitionCount"] == 1 and leader()["UnderReplicatedPartitions"] == 0
        client = await one.connect()
        assert outcome(await ask(client, produce(batch(b"a")))) == (0, 0)
        two.parts.fetchers.drop(two.partition)
        await ask(client, produce(batch(b"b"), acks=1))
        await until(lambda: leader()["IsrShrinks"] == 1)
        assert leader()["UnderReplicatedPartitions"] == 1
        assert leader()["UnderMinIsrPartitionCount"] == 1 and leader()["AtMinIsrPartitionCount"] == 0
        assert (leader()["PartitionCount"], leader()["LeaderCount"]) == (1, 1)
        assert (follower()["PartitionCount"], follower()["LeaderCount"]) == (1, 0)
        await stage.elect(1, [1], [TopicConfigEntry(name="min.insync.replicas", value="2")])
        await until(lambda: leader()["IsrExpands"] == 1)
        assert leader()["UnderReplicatedPartitions"] == 0
        await client.close()


async def test_lag_is_what_a_follower_lacks(tmp_path: Path) -> None:
    async with cluster(tmp_path, 2) as stage:
        await stage.elect(1, [1, 2])
        partition = stage.members[2].partition
        assert of_replicas(stage.members[2].broker)["MaxLag"] == 0
        stage.members[2].parts.fetchers.drop(partition)
        partition.missing = 7  # as the last fetch told
        assert of_replicas(stage.members[2].broker)["MaxLag"] == 7


async def test_a_transaction_that_hangs_is_seen(tmp_path: Path) -> None:
    async with scene(tmp_path, isr=(1,)) as play:

        def told() -> tuple[int, int]:
            found = of_replicas(play.member.broker)
            return found["LastStableOffsetLag"], found["PartitionsWithLateTransactionsCount"]

        assert told() == (0, 0)
        await ask(play.client, sent(transactional(b"of 1970")))
        await ask(play.client, produce(batch(b"plain")))
        assert told() == (2, 1)
        assert await play.marked(committed=False) == 0
        assert told() == (0, 0)


async def test_what_the_controller_counts_is_told(tmp_path: Path) -> None:
    async with cluster(tmp_path, 1) as stage:
        decision_notes = DecisionNotes(lambda _: None)
        decision_notes.elections, decision_notes.unclean_elections, decision_notes.potential_losses = 5, 2, 3
        broker: Any = SimpleNamespace(
            clock=stage.members[1].broker.clock,
            config=stage.members[1].config,
            replicas=stage.members[1].replicas,
            isr=stage.members[1].parts.isr,
            shared=stage.members[1].parts.shared,
            controller=SimpleNamespace(view=None, active=True, decision_notes=decision_notes),
            metrics=Metrics(),
        )
        told = replication_metrics(broker)
        assert (told["ActiveControllerCount"], told["LeaderElections"]) == (1, 5)
        assert (told["UncleanLeaderElections"], told["PotentialDataLoss"]) == (2, 3)


def test_a_leader_that_zookeeper_has_lost_answers_nobody_if_it_is_told_to(tmp_path: Path) -> None:
    """leader.fence.on.zk.loss: acks=1 is refused, too, until the session is back; by default it is not."""

    async def story(fences: str) -> list[int]:
        text = f"broker.id=1\nlog.dirs=/x\nzookeeper.connect=h:1\nleader.fence.on.zk.loss={fences}\n"
        replication = load(text).config.replication
        async with cluster(tmp_path / fences, 1, replication=replication) as stage:
            await stage.elect(1, [1])
            ticks = stage.members[1].parts.ticks
            client = await stage.members[1].connect()
            told = []
            for state in (SessionState.EXPIRED, SessionState.CONNECTED):
                ticks.on_session(cast(Any, SessionEvent(state, 1)))
                told.append(outcome(await ask(client, produce(batch(b"a"), acks=1)))[0])
            await client.close()
            return told

    assert asyncio.run(story("true")) == [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NONE]
    assert asyncio.run(story("false")) == [ErrorCode.NONE, ErrorCode.NONE]

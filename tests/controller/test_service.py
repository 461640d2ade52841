"""Several controllers, a real ZooKeeper, listeners that record: elections, deaths, topics."""

import asyncio
import random
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from strandline.base.types import TopicPartition
from strandline.controller.controller import Controller, ControllerOptions
from strandline.controller.requests.election_requests import ElectionPolicy
from strandline.controller.requests.topics import Defaults
from strandline.local.processes import machine_is_slower
from strandline.protocol.errors import ErrorCode, NotController
from strandline.protocol.messages import control, topics
from strandline.zookeeper import documents, znodes
from strandline.zookeeper.client import Create, SessionEvent, SessionState, SetData, Unknown
from tests.controller.cluster_harness import cluster, create, until
from tests.patience import HANG_S
from tests.sessions import end_session


async def test_a_topic_is_created_grown_and_deleted(fake_broker: Any) -> None:
    async with cluster(fake_broker, 1, 2) as brokers:
        one, two = brokers[1], brokers[2]
        assert one.controller.active and not two.controller.active
        await until(lambda: two.controller.controller_id == 1)
        with pytest.raises(NotController):
            await create(two, "t", 1, 1)
        configs = [topics.CreatableTopicConfig(name="min.insync.replicas", value="2")]
        made = await create(one, "t", 2, 2, configs=configs)
        assert (made.error_code, made.num_partitions, made.replication_factor) == (0, 2, 2)
        for broker in (one, two):  # both have heard before the answer came
            request = next(
                o for o in broker.requests if isinstance(o, control.LeaderAndIsrRequest) and o.topic_states
            )
            (topic,) = request.topic_states
            assert (topic.topic_name, topic.topic_id) == ("t", made.topic_id)
            assert [(c.name, c.value) for c in topic.configs] == [("min.insync.replicas", "2")]
            assert [(s.leader, s.isr, s.isr_epochs) for s in topic.partition_states] == [
                (1, [1, 2], [1, 1]),
                (2, [2, 1], [1, 1]),
            ]
            assert any(
                isinstance(o, control.UpdateMetadataRequest) and o.topic_states for o in broker.requests
            )
        assert (await create(one, "t", 2, 2)).error_code == ErrorCode.TOPIC_ALREADY_EXISTS
        assert (await create(one, "u", 2, 3)).error_code == ErrorCode.INVALID_REPLICATION_FACTOR
        assert (await create(one, "u", 0, 1)).error_code == ErrorCode.INVALID_PARTITIONS
        vast = await create(one, "u", 90_000, 2)
        assert vast.error_code == ErrorCode.INVALID_PARTITIONS and "ZooKeeper" in (vast.error_message or "")
        chosen = [topics.CreatableReplicaAssignment(partition_index=0, broker_ids=[1, 1])]
        bad = await create(one, "u", -1, -1, assignments=chosen)
        assert bad.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
        for partitions, factor in ((1, -1), (-1, 1)):
            torn = await create(one, "u", partitions, factor, assignments=chosen)
            assert torn.error_code == ErrorCode.INVALID_REQUEST, "counted, and assigned one by one"

        assert await one.zk.exists(documents.life_path(made.topic_id)) is not None

        twice = [topics.CreatePartitionsTopic(name="t", count=count) for count in (3, 4)]
        torn = await one.controller.ask(topics.CreatePartitionsRequest(topics=twice, timeout_ms=5000))
        assert [(r.name, r.error_code) for r in torn.results] == [("t", ErrorCode.INVALID_REQUEST)]
        for count, code in ((90_000, ErrorCode.INVALID_PARTITIONS), (3, ErrorCode.NONE)):
            more = topics.CreatePartitionsTopic(name="t", count=count)
            grown = await one.controller.ask(topics.CreatePartitionsRequest(topics=[more], timeout_ms=5000))
            assert grown.results[0].error_code == code
        assert ("t-2", 0) in two.heard_at

        both = topics.DeleteTopicState(name="t", topic_id=made.topic_id)
        torn = await one.controller.ask(topics.DeleteTopicsRequest(topics=[both], timeout_ms=5000))
        assert torn.responses[0].error_code == ErrorCode.INVALID_REQUEST, "a name and an id may disagree"
        gone = await one.controller.ask(
            topics.DeleteTopicsRequest(topics=[topics.DeleteTopicState(name="t")], timeout_ms=5000)
        )
        assert gone.responses[0].error_code == 0
        assert await one.zk.children("/brokers/topics") == []
        assert await one.zk.children("/admin/delete_topics") == []
        assert await one.zk.exists("/config/topics/t") is None
        assert await one.zk.children(documents.LIVES) == []
        assert (await create(one, "t", 1, 1)).error_code == 0


async def test_what_is_asked_once_more_was_done_before(fake_broker: Any) -> None:
    """Its answer was lost; another one who asks the same is refused."""

    async with cluster(fake_broker, 1) as brokers:
        one = brokers[1]
        made = await create(one, "t", 2, 1, topic_id=UUID(int=7))
        assert (made.error_code, made.topic_id) == (0, UUID(int=7))
        assert await create(one, "t", 2, 1, topic_id=UUID(int=7)) == made
        another = await create(one, "t", 2, 1, topic_id=UUID(int=8))
        assert another.error_code == ErrorCode.TOPIC_ALREADY_EXISTS
        refused = ErrorCode.INVALID_PARTITIONS
        for grows_from, code in ((-1, 0), (2, 0), (3, refused), (-1, refused)):
            more = topics.CreatePartitionsTopic(name="t", count=3, grows_from=grows_from)
            grown = await one.controller.ask(topics.CreatePartitionsRequest(topics=[more], timeout_ms=5000))
            assert grown.results[0].error_code == code


async def test_a_dead_controller_is_succeeded_and_its_partitions_move_within_a_second(
    fake_broker: Any,
) -> None:
    async with cluster(fake_broker, 1, 2, 3) as brokers:
        one, two, three = brokers.values()
        assert (await create(one, "t", 3, 3)).error_code == 0
        await until(lambda: two.controller.watches_controller and three.controller.watches_controller)
        killed_at = asyncio.get_running_loop().time()
        one.dead.add(1)
        await one.die()
        await until(lambda: ("t-0", 1) in three.heard_at)
        gap = three.heard_at["t-0", 1] - killed_at
        assert gap < 0.9 * machine_is_slower()
        await until(lambda: two.controller.active or three.controller.active)
        state, _ = await znodes.read_state(two.zk, TopicPartition("t", 0))
        assert (state.leader, state.isr, state.controller_epoch) == (2, [2, 3], 2)
        assert await two.zk.exists("/brokers/ids/1") is not None, "the dead broker's own node is left alone"


async def test_a_dead_broker_is_suspected_and_welcomed_when_it_answers(fake_broker: Any) -> None:
    async with cluster(fake_broker, 1, 2) as brokers:
        one, two = brokers[1], brokers[2]
        assert (await create(one, "t", 2, 2)).error_code == 0
        await two.stall()
        await until(lambda: ("t-1", 1) in one.heard_at)
        state, _ = await znodes.read_state(one.zk, TopicPartition("t", 1))
        assert (state.leader, state.isr) == (1, [1])
        assert ("t-1", 1) not in two.heard_at
        await two.listen()
        await until(lambda: ("t-1", 1) in two.heard_at)


@pytest.mark.parametrize("late", [False, True])
async def test_a_write_whose_answer_is_lost_is_settled_before_it_is_announced(
    fake_broker: Any, late: bool
) -> None:
    async with cluster(fake_broker, 1, 2) as brokers:
        one, two = brokers[1], brokers[2]
        assert (await create(one, "t", 2, 2)).error_code == 0
        multi, pending = one.zk.multi, []

        async def lossy(ops: Any) -> Any:
            if not pending and any(isinstance(op, SetData) for op in ops):
                pending.append(asyncio.ensure_future(carry_out(ops)))
                if not late:
                    await pending[0]
                raise Unknown("the answer was lost")
            return await multi(ops)

        async def carry_out(ops: Any) -> Any:
            await asyncio.sleep(0.19 if late else 0)  # just before the write is issued again
            return await asyncio.gather(multi(ops), return_exceptions=True)

        one.zk.multi = lossy
        await two.stall()
        await until(lambda: ("t-1", 1) in one.heard_at)
        state, version = await znodes.read_state(one.zk, TopicPartition("t", 1))
        assert (state.leader, state.leader_epoch, state.isr, version) == (1, 1, [1], 1)
        await pending[0]
        one.zk.multi = multi


async def test_a_fenced_controller_resigns(fake_broker: Any) -> None:
    async with cluster(fake_broker, 1, 2) as brokers:
        one, two = brokers[1], brokers[2]
        node = await znodes.read_controller(two.zk)
        assert node is not None
        (active,) = one.controller.terms
        term = await znodes.take_over(two.zk, 2, 0, node)
        assert term is not None and term.epoch == 2
        await until(lambda: active not in one.controller.terms)
        assert active.ended


async def test_an_expired_session_ends_the_term(fake_broker: Any) -> None:
    async with cluster(fake_broker, 1, 2) as brokers:
        one, two = brokers[1], brokers[2]
        await asyncio.to_thread(end_session, one.zk._hosts, one.zk.credentials)
        await until(lambda: two.controller.active)
        await until(lambda: one.zk.generation == 2)
        assert not one.controller.active
        await one.register()
        assert two.controller.epoch == 2
        await two.controller.reach.until(lambda state: 1 in state.brokers)


async def test_a_term_is_over_before_the_broker_registers_anew(fake_broker: Any) -> None:
    """Its fence holds until the next term: what it had begun must not go on in the new session."""

    async with cluster(fake_broker, 1) as brokers:
        controller = brokers[1].controller
        (active,), told = controller.terms, list[str]()
        close, gate = active.close, asyncio.Event()

        async def slowly() -> None:
            await gate.wait()
            await close()

        active.close = slowly
        # a term that is just beginning
        begun = SimpleNamespace(end=told.append, close=gate.wait, abstains=False)
        controller._former.append(begun)
        controller._session_changed(SessionEvent(SessionState.EXPIRED, 1))
        waiting = [asyncio.ensure_future(controller.over()) for _ in range(2)]
        await until(lambda: told)
        for _ in range(5):
            await asyncio.sleep(0)
        assert active.ended and not any(each.done() for each in waiting)
        gate.set()
        await asyncio.gather(*waiting)
        assert not len(active._tasks)


async def test_the_isr_that_a_leader_wrote_is_shown_to_everybody(fake_broker: Any) -> None:
    async with cluster(fake_broker, 1, 2) as brokers:
        one, two = brokers[1], brokers[2]
        partition = TopicPartition("t", 0)
        assert (await create(one, "t", 1, 2)).error_code == 0
        state, version = await znodes.read_state(one.zk, partition)
        smaller = state.model_copy(update={"isr": [1]})
        await znodes.write_state(one.zk, partition, smaller, version, znodes.leader_checks(1, 1))
        await znodes.notify_isr_change(one.zk, [partition])
        await until(lambda: shown_isr(two) == [1])
        assert await one.zk.children(documents.ISR_CHANGES) == []


async def test_partitions_that_somebody_takes_out_of_a_topics_node_are_put_back(fake_broker: Any) -> None:
    async with cluster(fake_broker, 1, 2) as brokers:
        one = brokers[1]
        assert (await create(one, "t", 3, 2)).error_code == 0
        fewer = topics.CreatePartitionsTopic(name="t", count=2)
        refused = await one.controller.ask(topics.CreatePartitionsRequest(topics=[fewer], timeout_ms=5000))
        assert refused.results[0].error_code == ErrorCode.INVALID_PARTITIONS
        path = documents.topic_path("t")
        data, stat = await one.zk.get(path)
        whole = documents.parse(documents.TopicDocument, data)
        shrunk = whole.model_copy(update={"partitions": {0: whole.partitions[0]}})
        await one.zk.multi([SetData(path, shrunk.data(), stat.version)])
        async with asyncio.timeout(HANG_S):
            while documents.parse(documents.TopicDocument, (await one.zk.get(path))[0]) != whole:
                await asyncio.sleep(0.02)
        assert sorted(one.controller.view.topics["t"].replicas) == [0, 1, 2]


class Deaf:
    """A client that has just lost its connection."""

    generation, connected = 1, False

    def listen(self, hear: Any) -> Any:
        return lambda: None

    def __getattr__(self, operation: str) -> Any:
        async def unanswered(*_: Any) -> Any:
            raise Unknown

        return unanswered


async def test_a_start_does_not_depend_on_zookeeper(fake_broker: Any) -> None:
    """The connection may be lost between the registration and this: the broker must live through it."""

    told = ControllerOptions(1, "PLAINTEXT")
    controller = Controller(told, Deaf(), fake_broker(1), random.Random(1).randbytes)
    await controller.start()
    await asyncio.sleep(0.05)
    assert not controller.active
    await controller.stop()


async def test_defaults_that_change_hold_in_this_term(fake_broker: Any) -> None:
    """What acks=all needs decides when a cancelled move gives up its additions."""

    one, now = fake_broker(1), [Defaults(min_isr=1)]
    await one.start(defaults=lambda: now[0])
    await until(lambda: one.controller.active)
    unclean = ElectionPolicy(unclean=True)
    for wanted in (Defaults(min_isr=2), Defaults(min_isr=3, elections=unclean), Defaults(min_isr=1)):
        now[0] = wanted
        one.controller.defaults_changed()
        await until(lambda: one.controller.view.min_isr == now[0].min_isr)
        assert one.controller.view.unclean == now[0].elections.unclean
    await one.stop()


async def test_a_new_controller_finishes_what_was_begun(
    fake_broker: Any, hosts: str, open_session: Any
) -> None:
    async with open_session(hosts) as zk:
        await znodes.ensure_paths(zk)
        document = documents.TopicDocument(
            topic_id=documents.uuid_to_text(documents.UUID(int=7)), partitions={0: [1], 1: [1]}
        )
        await zk.multi([Create("/brokers/topics/begun", document.data())])
        await zk.multi([Create("/brokers/topics/broken", b"{")])
        await zk.multi([Create("/admin/delete_topics/unknown", b"")])
        async with cluster(fake_broker, 1) as brokers:
            await until(lambda: ("begun-1", 0) in brokers[1].heard_at)
            await until_async(lambda: zk.exists("/admin/delete_topics/unknown"), None)
            grown = document.model_copy(update={"partitions": {0: [1], 1: [1], 2: [1]}})
            await zk.multi([SetData("/brokers/topics/begun", grown.data(), 0)])
            await until(lambda: ("begun-2", 0) in brokers[1].heard_at)


def shown_isr(broker: Any) -> list[int] | None:
    for request in reversed(broker.requests):
        if isinstance(request, control.UpdateMetadataRequest) and request.topic_states:
            return request.topic_states[0].partition_states[0].isr  # type: ignore[no-any-return]
    return None


async def until_async(ask: Any, wanted: Any, seconds: float = HANG_S) -> None:
    deadline = asyncio.get_running_loop().time() + seconds
    while await ask() != wanted:
        assert asyncio.get_running_loop().time() < deadline, "waited in vain"
        await asyncio.sleep(0.01)


async def test_topics_begin_anywhere_and_their_replicas_are_on_different_racks(fake_broker: Any) -> None:
    dice = random.Random(3)

    def standing(broker: int) -> Any:
        return fake_broker(broker, rack="left" if broker < 3 else "right", random_bytes=dice.randbytes)

    async with cluster(standing, 1, 2, 3, 4) as brokers:
        one = brokers[1]
        for number in range(16):
            assert (await create(one, f"t{number}", 1, 2)).error_code == 0
        more = [topics.CreatePartitionsTopic(name=f"t{number}", count=3) for number in range(16)]
        grown = await one.controller.ask(topics.CreatePartitionsRequest(topics=more, timeout_ms=5000))
        assert not any(each.error_code for each in grown.results)
        state = one.controller.view
        held = [replicas for topic in state.topics.values() for replicas in topic.replicas.values()]
        assert len(held) == 48
        assert all(min(replicas) < 3 <= max(replicas) for replicas in held), "one on each side"
        assert {topic.replicas[0][0] for topic in state.topics.values()} == {1, 2, 3, 4}

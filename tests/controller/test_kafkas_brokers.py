"""Brokers of Apache Kafka beside ours: elected on their word, and their leaders' ISRs written for them."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from strandline.base.types import KAFKAS, TopicPartition
from strandline.controller.broker_channels import _answered
from strandline.controller.control_requests import RequestBuilder
from strandline.controller.planning import plans
from strandline.controller.planning.decision_notes import standing
from strandline.controller.planning.elections import first_state, is_intact, is_reborn, next_state
from strandline.controller.planning.planner import plan
from strandline.controller.planning.reassignment import _renewed
from strandline.controller.planning.state import Broker, ClusterState, PartitionState, Topic
from strandline.controller.requests import isr_changes
from strandline.controller.requests.config_changes import (
    Alteration,
    AnySettings,
    Kind,
    Operation,
    SettingChange,
)
from strandline.controller.requests.own_settings import alter_own
from strandline.protocol.apis import Api
from strandline.protocol.errors import (
    ErrorCode,
    InvalidConfig,
    NotController,
    RequestTimedOut,
    StaleBrokerEpoch,
)
from strandline.protocol.messages import control, producers
from strandline.protocol.primitives import NO_UUID
from strandline.zookeeper import documents
from strandline.zookeeper.client import Create, SetData, Unknown
from strandline.zookeeper.config_nodes import read_overrides
from strandline.zookeeper.znodes import read_state
from tests.controller.cluster_harness import cluster, create, until

T0 = TopicPartition("t", 0)


def known(isr: tuple[int, ...], joined: dict[int, int], leader: int = 1, born: int = 50) -> PartitionState:
    return PartitionState(leader, 4, isr, joined, 1, born=born)


def world(**brokers: Broker) -> ClusterState:
    topic = Topic("t", NO_UUID, {0: tuple(broker.id for broker in brokers.values())})
    return ClusterState(5, {broker.id: broker for broker in brokers.values()}, topics={"t": topic})


OURS = Broker(1, incarnation=3, intact_since=2, born=800)
THEIRS = Broker(2, incarnation=KAFKAS + 900, intact_since=1 << 62, born=900)


def test_a_broker_of_kafkas_is_taken_at_its_word() -> None:
    state, there = world(ours=OURS, theirs=THEIRS), known((1, 2), {1: 2})
    assert is_intact(state, 2, T0, there)
    assert not is_intact(state, 2, T0, known((1,), {1: 2})), "who is not in the ISR has nothing to say"


@pytest.mark.parametrize(
    ("incarnation", "since", "registered", "is_whole", "why"),
    [
        (3, 2, 800, True, "its present start found what an earlier one had"),
        (3, 3, 800, False, "its present start lost something, after the partition was made"),
        (1, 1, 800, False, "the first start of an id that stands in an older ISR"),
        (1, 1, 40, True, "it was registered before the partition was made: there was nothing to lose"),
    ],
)
def test_where_kafka_has_left_out_when_a_member_of_ours_joined(
    incarnation: int, since: int, registered: int, is_whole: bool, why: str
) -> None:
    ours = Broker(1, incarnation, since, born=registered)
    state, there = world(ours=ours, theirs=THEIRS), known((1, 2), {})
    assert is_intact(state, 1, T0, there) is is_whole, why
    if not is_whole:
        assert "it joined the ISR in incarnation unknown" in standing(state, 1, T0, there)


def test_a_leader_whose_election_kafka_wrote_may_go_on() -> None:
    """Its controllers do not tell in which start a leader was elected; they know themselves of a restart."""
    state = replace(world(ours=OURS, theirs=THEIRS), controller_epoch=9)
    assert not is_reborn(state, known((1, 2), {}))
    assert is_reborn(state, known((1, 2), {1: 2})), "we have told: this one has started again since"
    assert next_state(state, T0, known((1, 2), {}, leader=2)) is None


def test_a_member_of_which_kafka_told_nothing_stays_when_we_have_written_the_state() -> None:
    """The first controller of ours elects a leader, and judges by what it has written itself."""
    theirs = replace(THEIRS, born=30)
    second, third = (Broker(id, incarnation=1, intact_since=1, born=40) for id in (1, 3))
    state = replace(
        world(theirs=theirs, second=second, third=third), partitions={T0: known((2, 1, 3), {}, 2)}
    )
    state, commands = plan(state, plans.BrokersRead({1: second, 3: third}))
    (written,) = [one for one in commands if isinstance(one, plans.WriteStates)]
    assert (written.writes[T0].leader, written.writes[T0].isr) == (1, (1, 3))
    landed = {T0: replace(written.writes[T0], version=1)}
    _, commands = plan(state, plans.StatesWritten(landed))
    assert not [one for one in commands if isinstance(one, plans.WriteStates)], "broker 3 is still whole"


def test_states_that_we_write_tell_no_incarnation_of_kafkas_brokers() -> None:
    state = world(ours=OURS, theirs=THEIRS)
    made = first_state(state, T0)
    assert made is not None and made.isr == (1, 2) and made.isr_epochs == {1: 3}
    dead = replace(state, brokers={2: THEIRS})
    then = next_state(dead, T0, known((1, 2), {1: 3}))
    assert then is not None and (then.leader, then.isr, then.isr_epochs) == (2, (2,), {})


def test_a_leader_that_was_ours_and_is_kafkas_now_is_elected_once() -> None:
    """In which start of ours it was elected says nothing of it: it would look restarted for ever."""
    state = world(theirs=THEIRS)
    state = replace(state, brokers={}, partitions={T0: known((2,), {2: 3}, leader=-1)})
    state, commands = plan(state, plans.BrokersRead({2: THEIRS}))
    (written,) = [one for one in commands if isinstance(one, plans.WriteStates)]
    assert (written.writes[T0].leader, written.writes[T0].isr_epochs) == (2, {})
    _, commands = plan(state, plans.StatesWritten({T0: replace(written.writes[T0], version=1)}))
    assert not [one for one in commands if isinstance(one, plans.WriteStates)]
    assert any(isinstance(one, plans.SendLeaderAndIsr) for one in commands), "it is told, and stays"


def test_a_new_epoch_says_nothing_of_members_that_are_kafkas_now() -> None:
    told = _renewed(world(ours=OURS, theirs=THEIRS), known((1, 2), {1: 2, 2: 7}, leader=2))
    assert (told.leader_epoch, told.isr_epochs) == (5, {1: 2})


def test_an_answer_counts_for_the_topics_that_it_names() -> None:
    """Kafka's brokers answer LeaderAndIsr in an order of their own, and leave out nothing but topic names."""
    topics = {name: Topic(name, UUID(int=number), {0: (2,)}) for number, name in enumerate("abc", 1)}
    state = ClusterState(5, {2: THEIRS}, topics=topics)
    roles = tuple(
        plans.PartitionRole(TopicPartition(name, 0), topic.id, known((2,), {}, leader=2), (2,))
        for name, topic in topics.items()
    )
    request = RequestBuilder(1, 5, "PLAINTEXT").leader_and_isr(state, plans.SendLeaderAndIsr(2, roles))
    storage, stale = ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.STALE_CONTROLLER_EPOCH
    answer = control.LeaderAndIsrResponse(
        topics=[
            control.LeaderAndIsrTopicError(
                topic_id=UUID(int=number),
                partition_errors=[control.LeaderAndIsrPartitionError(partition_index=0, error_code=code)],
            )
            for number, code in ((3, ErrorCode.NONE), (1, storage), (9, storage), (2, stale))
        ]
    )
    told = _answered(THEIRS, request, answer)
    assert told.offline == {TopicPartition("a", 0)}
    assert told.answered == {TopicPartition("a", 0), TopicPartition("c", 0)}


# --- AlterPartition and AllocateProducerIds ----------------------------------------------------------


class KafkasBroker:
    """What a controller of ours sees of one: a registration without an incarnation, and a listener."""

    def __init__(self, ours: Any) -> None:
        self.fake = ours
        self.epoch = 0

    async def start(self) -> None:
        await self.fake.zk.start()
        await self.fake.listen()
        node = {
            "version": 5, "host": "127.0.0.1", "port": self.fake.port, "timestamp": "1", "jmx_port": -1,
            "endpoints": [f"PLAINTEXT://127.0.0.1:{self.fake.port}"], "features": {},
            "listener_security_protocol_map": {"PLAINTEXT": "PLAINTEXT"},
        }  # fmt: skip
        path = documents.broker_path(self.fake.id)
        await self.fake.zk.multi([Create(path, json.dumps(node).encode(), ephemeral=True)])
        stat = await self.fake.zk.exists(path)
        self.epoch = stat.czxid

    async def stop(self) -> None:
        self.fake.hide()
        await self.fake.zk.close()


@asynccontextmanager
async def beside(fake_broker: Any) -> AsyncIterator[tuple[Any, KafkasBroker]]:
    """A controller of ours, broker 1, and broker 2 of Kafka's, which leads t-0."""
    async with cluster(fake_broker, 1) as brokers:
        theirs = KafkasBroker(fake_broker(2))
        await theirs.start()
        try:
            one = brokers[1]
            await one.controller.reach.until(lambda state: 2 in state.brokers)
            wanted = {"assignments": assignment((2, 1))}
            assert (await create(one, "t", -1, -1, **wanted)).error_code == 0
            yield one, theirs
        finally:
            await theirs.stop()


def assignment(replicas: tuple[int, ...]) -> list[Any]:
    from strandline.protocol.messages.topics import CreatableReplicaAssignment

    return [CreatableReplicaAssignment(partition_index=0, broker_ids=list(replicas))]


def change(topic_id: Any, isr: list[int], epoch: int = 0, version: int = 0, **more: Any) -> Any:
    wanted = control.PartitionChange(
        partition_index=0, leader_epoch=epoch, partition_epoch=version,
        new_isr_with_epochs=[control.IsrMember(broker_id=member) for member in isr], **more,
    )  # fmt: skip
    return [control.TopicChange(topic_id=topic_id, partitions=[wanted])]


async def ask(one: Any, theirs: KafkasBroker, topics: list[Any]) -> Any:
    request = control.AlterPartitionRequest(broker_id=2, broker_epoch=theirs.epoch, topics=topics)
    answer = await one.controller.ask(request)
    return answer.topics[0].partitions[0]


async def test_a_leader_of_kafkas_has_its_isr_written(fake_broker: Any) -> None:
    """It shrinks, and grows again: the state says since when ours is there, and the controller learns it."""
    async with beside(fake_broker) as (one, theirs):
        id = one.controller.reach.state().topics["t"].id
        told = await ask(one, theirs, change(id, [2]))
        assert (told.error_code, told.isr, told.partition_epoch, told.leader_id) == (0, [2], 1, 2)
        again = await ask(one, theirs, change(id, [2]))
        assert (again.error_code, again.partition_epoch) == (0, 1), (
            "if an answer was lost, nothing is written twice"
        )
        told = await ask(one, theirs, change(id, [2, 1], version=1))
        assert (told.error_code, told.isr, told.partition_epoch) == (0, [2, 1], 2)
        state, version = await read_state(one.zk, T0)
        assert (state.isr, state.isr_epochs, state.leader_epoch, version) == ([2, 1], {1: 1}, 0, 2)
        await one.controller.reach.until(lambda known: known.partitions[T0].version == 2)


@pytest.mark.parametrize(
    ("isr", "epoch", "version", "code"),
    [
        ([2], -1, 0, ErrorCode.FENCED_LEADER_EPOCH),
        ([2], 1, 0, ErrorCode.NOT_CONTROLLER),
        ([2], 0, 7, ErrorCode.NOT_CONTROLLER),
        ([1], 0, 0, ErrorCode.INVALID_REQUEST),
        ([2, 2], 0, 0, ErrorCode.INVALID_REQUEST),
        ([2, 1, 7], 0, 0, ErrorCode.INELIGIBLE_REPLICA),
    ],
)
async def test_what_a_leader_may_not_change(
    isr: list[int], epoch: int, version: int, code: ErrorCode, fake_broker: Any
) -> None:
    async with beside(fake_broker) as (one, theirs):
        id = one.controller.reach.state().topics["t"].id
        told = await ask(one, theirs, change(id, isr, epoch, version))
        assert told.error_code == code
        assert (await read_state(one.zk, T0))[1] == 0, "nothing was written"


async def test_an_earlier_version_of_the_state_is_not_built_upon(fake_broker: Any) -> None:
    async with beside(fake_broker) as (one, theirs):
        id = one.controller.reach.state().topics["t"].id
        await ask(one, theirs, change(id, [2]))
        told = await ask(one, theirs, change(id, [2, 1], version=0))
        assert told.error_code == ErrorCode.INVALID_UPDATE_VERSION


async def test_who_is_shutting_down_does_not_join(fake_broker: Any) -> None:
    async with beside(fake_broker) as (one, theirs):
        id = one.controller.reach.state().topics["t"].id
        await ask(one, theirs, change(id, [2]))
        await one.controller.controlled_shutdown(1, one.incarnation)
        version = (await read_state(one.zk, T0))[1]
        state, _ = await read_state(one.zk, T0)
        told = await ask(one, theirs, change(id, [2, 1], state.leader_epoch, version))
        assert told.error_code == ErrorCode.INELIGIBLE_REPLICA


def by_name(isr: list[int], epoch: int = 0, version: int = 0) -> Any:
    """As Kafka 2.8 to 3.2 ask (AlterIsr)."""
    wanted = control.PartitionChange(
        partition_index=0, leader_epoch=epoch, partition_epoch=version, new_isr=isr
    )
    return [control.TopicChange(topic_name="t", partitions=[wanted])]


async def test_an_earlier_leader_is_told_the_isr_as_it_stays(fake_broker: Any) -> None:
    """Of any error that they do not know leaders of Kafka 2.8 and 3.0 never recover in the same epoch."""
    async with beside(fake_broker) as (one, theirs):
        await ask(one, theirs, by_name([2]))
        await one.controller.controlled_shutdown(1, one.incarnation)
        state, version = await read_state(one.zk, T0)
        told = await ask(one, theirs, by_name([2, 1], state.leader_epoch, version))
        assert (told.error_code, told.isr, told.partition_epoch) == (0, [2], version)
        assert (told.leader_id, told.leader_epoch) == (2, state.leader_epoch)
        assert (await read_state(one.zk, T0))[1] == version, "nothing was written"


async def test_an_earlier_leader_is_told_so_when_one_that_joins_has_started_again(fake_broker: Any) -> None:
    """The controller has not heard of it yet."""
    async with beside(fake_broker) as (one, theirs):
        await ask(one, theirs, by_name([2]))
        counter = documents.IncarnationDocument(incarnation=2).data()
        await one.zk.multi([SetData(documents.incarnation_path(1), counter, 1)])
        told = await ask(one, theirs, by_name([2, 1], version=1))
        assert (told.error_code, told.isr, told.partition_epoch) == (0, [2], 1)
        id = one.controller.reach.state().topics["t"].id
        told = await ask(one, theirs, change(id, [2, 1], version=1))
        assert told.error_code == ErrorCode.INELIGIBLE_REPLICA


@pytest.mark.parametrize("is_early", [True, False], ids=["2.8 to 3.2", "later"])
async def test_what_nobody_knows_is_asked_again(
    is_early: bool, fake_broker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By an earlier leader as a whole: an error for one partition would be the last it hears of it."""

    async def lost(zk: Any, partition: TopicPartition) -> Any:
        raise Unknown("no answer")

    async with beside(fake_broker) as (one, theirs):
        id = one.controller.reach.state().topics["t"].id
        with monkeypatch.context() as patch:
            patch.setattr(isr_changes, "read_state", lost)
            patch.setattr(isr_changes, "ANSWER_S", 0.1)
            if is_early:
                with pytest.raises(RequestTimedOut):
                    await ask(one, theirs, by_name([2]))
            else:
                told = await ask(one, theirs, change(id, [2]))
                assert told.error_code == ErrorCode.REQUEST_TIMED_OUT
        told = await ask(one, theirs, by_name([2]) if is_early else change(id, [2]))
        assert (told.error_code, told.isr) == (0, [2])


async def test_a_topic_that_is_not_there_and_a_leader_of_an_earlier_start(fake_broker: Any) -> None:
    async with beside(fake_broker) as (one, theirs):
        told = await ask(one, theirs, change(UUID(int=9), [2]))
        assert told.error_code == ErrorCode.UNKNOWN_TOPIC_ID
        theirs.epoch -= 1
        with pytest.raises(StaleBrokerEpoch):
            await ask(one, theirs, change(UUID(int=9), [2]))


async def test_a_broker_of_an_earlier_kafka_is_told_in_the_versions_that_it_speaks(fake_broker: Any) -> None:
    """Kafka 2.8: topic ids, but no recovery state."""
    async with beside(fake_broker) as (one, theirs):
        theirs.fake.speaks = {Api.LEADER_AND_ISR: 5, Api.UPDATE_METADATA: 7, Api.STOP_REPLICA: 3}
        assert theirs.fake.versions[Api.LEADER_AND_ISR] == 7
        theirs.fake.hang_up()
        assert (await create(one, "u", -1, -1, assignments=assignment((2, 1)))).error_code == 0
        await until(lambda: ("u-0", 0) in theirs.fake.heard_at)
        assert theirs.fake.versions[Api.LEADER_AND_ISR] == 5
        await until(lambda: theirs.fake.versions[Api.UPDATE_METADATA] == 7)


async def test_blocks_of_producer_ids_do_not_overlap(fake_broker: Any) -> None:
    async with beside(fake_broker) as (one, theirs):
        request = producers.AllocateProducerIdsRequest(broker_id=2, broker_epoch=theirs.epoch)
        first, second = await asyncio.gather(*(one.controller.ask(request) for _ in range(2)))
        blocks = sorted((each.producer_id_start, each.producer_id_len) for each in (first, second))
        assert blocks == [(0, 1000), (1000, 1000)]
        with pytest.raises(StaleBrokerEpoch):
            await one.controller.ask(replace(request, broker_epoch=1))
        await one.controller.halt()
        with pytest.raises(NotController):
            await one.controller.ask(request)


async def test_a_broker_of_kafkas_that_stops_says_which_start_it_is(fake_broker: Any) -> None:
    """Kafka's broker epoch is the czxid of the registration; the leadership goes to ours."""
    async with beside(fake_broker) as (one, theirs):
        with pytest.raises(StaleBrokerEpoch):
            await one.controller.controlled_shutdown(2, theirs.epoch - 1)
        answer = await one.controller.controlled_shutdown(2, theirs.epoch)
        assert answer.remaining_partitions == []
        state, _ = await read_state(one.zk, T0)
        assert state.leader == 1
        orders = [each for each in theirs.fake.requests if hasattr(each, "broker_epoch")]
        assert orders and {each.broker_epoch for each in orders} == {theirs.epoch}
        await until(lambda: one.controller.active)


async def test_a_broker_of_ours_writes_its_own_settings_for_a_controller_of_kafka(fake_broker: Any) -> None:
    async with beside(fake_broker) as (one, _):
        path = documents.broker_config_path(1)

        async def alter(operation: int, validate_only: bool = False) -> Any:
            changes = [SettingChange("log.roll.ms", Operation(operation), "7654321")]
            await one.controller.alter_own(Alteration(Kind.BROKER, "1", changes), validate_only)
            return await one.zk.exists(path)

        assert await alter(Operation.SET, validate_only=True) is None
        before = await one.zk.children(documents.CONFIG_CHANGES)
        await alter(Operation.SET)
        assert (await read_overrides(one.zk, path)).names == {"log.roll.ms": "7654321"}
        await alter(Operation.DELETE)
        assert (await read_overrides(one.zk, path)).names == {}
        told = sorted({*await one.zk.children(documents.CONFIG_CHANGES)} - {*before})
        data, _ = await one.zk.get(f"{documents.CONFIG_CHANGES}/{told[-1]}")
        assert len(told) == 2 and json.loads(data) == {"version": 2, "entity_path": "brokers/1"}


class Refusing(AnySettings):
    """Knows where brokers are, and takes no setting."""

    def __init__(self) -> None:
        self.registered: dict[int, Any] = {}

    def check_addresses(self, broker: int, changed: Any, registered: Any) -> None:
        self.registered = dict(registered)
        raise InvalidConfig("not such an address")


async def test_settings_that_are_wrong_are_not_written(fake_broker: Any) -> None:
    """Beside brokers whose registration can be read, and one's that cannot."""
    async with beside(fake_broker) as (one, _):
        await one.zk.multi([Create(documents.broker_path(9), b"nonsense")])
        catalogue = Refusing()
        change = SettingChange("log.roll.ms", Operation.SET, "7654321")
        with pytest.raises(InvalidConfig, match="not such an address"):
            await alter_own(one.zk, catalogue, Alteration(Kind.BROKER, "1", [change]), False)
        assert await one.zk.exists(documents.broker_config_path(1)) is None
        assert sorted(catalogue.registered) == [1, 2]

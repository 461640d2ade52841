"""Deeds on a real ZooKeeper: elections and their fence, registrations, states, producer ids."""

import asyncio
from typing import Any

import pytest
from kazoo.client import KazooClient

from strandline.base.types import TopicPartition
from strandline.zookeeper import documents, znodes
from strandline.zookeeper.client import (
    BadVersion,
    Check,
    Create,
    Delete,
    MultiFailed,
    NodeExists,
    SetData,
    Unknown,
)
from strandline.zookeeper.cluster_profile import read_agreement
from strandline.zookeeper.producer_ids import next_producer_ids

ENDPOINT = documents.Endpoint("PLAINTEXT", "127.0.0.1", 9092)
PARTITION = TopicPartition("t", 0)


async def test_the_first_controller_has_epoch_one_and_a_second_is_refused(
    hosts: str, open_session: Any
) -> None:
    async with open_session(hosts) as one, open_session(hosts) as two:
        await znodes.ensure_paths(one)
        term = await znodes.elect(one, 1, 0)
        assert term == znodes.ControllerTerm(1, 1)
        assert await znodes.elect(two, 2, 0) is None
        node = await znodes.read_controller(two)
        assert node is not None and (node.broker, node.owner) == (1, one.session_id)
        await znodes.resign(one, term)
        assert await znodes.read_controller(two) is None
        assert await znodes.elect(two, 2, 0) == znodes.ControllerTerm(2, 2)


async def test_nobody_gives_up_another_ones_seat(hosts: str, open_session: Any) -> None:
    """Who tidies up after itself knows the epoch of now, so that no fence is in its way."""

    async with open_session(hosts) as one, open_session(hosts) as two:
        await znodes.ensure_paths(one)
        await znodes.elect(one, 1, 0)
        node = await znodes.read_controller(two)
        await znodes.resign_without_term(two)
        assert node is not None and await znodes.read_controller(two) == node
        await znodes.resign_without_term(one)
        assert await znodes.read_controller(two) is None


async def test_a_controller_that_was_succeeded_meets_the_fence(hosts: str, open_session: Any) -> None:
    async with open_session(hosts) as one, open_session(hosts) as two:
        await znodes.ensure_paths(one)
        old = await znodes.elect(one, 1, 0)
        node = await znodes.read_controller(two)
        assert old is not None and node is not None
        new = await znodes.take_over(two, 2, 0, node)
        assert new == znodes.ControllerTerm(2, 2)
        with pytest.raises(znodes.ControllerMoved):
            await znodes.fenced(one, old, [Create("/x", b"")])
        assert await one.exists("/x") is None
        assert await znodes.take_over(one, 1, 0, node) is None, "somebody else is controller by now"
        await znodes.resign(one, old)
        still = await znodes.read_controller(one)
        assert still is not None and still.broker == 2


async def test_an_election_whose_answer_was_lost_is_recognised(
    zookeeper: str, chroot: str, open_session: Any, open_wire: Any
) -> None:
    async with open_wire(zookeeper) as (_, address), open_session(address + chroot) as zk:
        await znodes.ensure_paths(zk)
        await znodes.create_if_absent(zk, documents.CONTROLLER_EPOCH, b"0")
        multi = zk.multi

        async def deaf_multi(ops: Any) -> Any:
            if not any(isinstance(op, SetData) for op in ops):
                return await multi(ops)
            await multi(ops)
            raise Unknown("the answer was lost")

        zk.multi = deaf_multi
        assert await znodes.elect(zk, 1, 0) == znodes.ControllerTerm(1, 1)


async def test_registration_counts_the_starts_of_a_broker(hosts: str, open_session: Any) -> None:
    async with open_session(hosts) as zk:
        await znodes.ensure_paths(zk)
        document, failed = await znodes.read_incarnation(zk, 7)
        assert (document.incarnation, failed) == (0, frozenset())
        first = documents.RegistrationDocument.of([ENDPOINT], 5, incarnation=1, intact_since=1)
        await znodes.register_broker(zk, 7, first, ["dir-a"])
        data, stat = await zk.get("/brokers/ids/7")
        assert stat.owner == zk.session_id
        assert documents.parse(documents.RegistrationDocument, data).listeners() == [ENDPOINT]
        document, _ = await znodes.read_incarnation(zk, 7)
        assert (document.incarnation, document.dirs) == (1, {"dir-a": 1})

        doubt = documents.RegistrationDocument.of([ENDPOINT], 5, 2, 1, {"t-0": 2})
        await znodes.register_broker(zk, 7, doubt, ["dir-a"])  # in its place, while running
        with pytest.raises(BadVersion):
            await znodes.register_broker(
                zk, 7, documents.RegistrationDocument.of([ENDPOINT], 6, 2, 1), ["dir-a"]
            )

        async with open_session(hosts) as other:
            with pytest.raises(NodeExists):
                await znodes.register_broker(
                    other, 7, documents.RegistrationDocument.of([ENDPOINT], 5, 3, 1), []
                )
            with pytest.raises(znodes.DuplicateBroker):
                await znodes.await_registration_end(other, 7, 0.1)
            waiting = asyncio.ensure_future(znodes.await_registration_end(other, 7, 5))
            await znodes.delete_if_present(zk, "/brokers/ids/7")
            await waiting


def test_the_registration_reads_as_kafka_writes_it() -> None:
    text = documents.RegistrationDocument.of([ENDPOINT], 5, 2, 1, {"t-0": 2}).data().decode()
    assert text == (
        '{"version":5,"host":"127.0.0.1","port":9092,"jmx_port":-1,"timestamp":"5",'
        '"endpoints":["PLAINTEXT://127.0.0.1:9092"],"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"},'
        '"features":{},"incarnation":2,"intact_since":1,"intact_since_of":{"t-0":2}}'
    )
    state = documents.parse(
        documents.StateDocument,
        b'{"controller_epoch":12,"leader":0,"version":1,"leader_epoch":3,"isr":[0,1]}',
    )
    assert (state.leader, state.isr, state.isr_epochs) == (0, [0, 1], {})
    foreign = documents.parse(
        documents.RegistrationDocument, b'{"version":4,"endpoints":["EXTERNAL://[::1]:9"],"future":1}'
    )
    assert foreign.listeners()[0] == documents.Endpoint("EXTERNAL", "::1", 9, "EXTERNAL")
    for bad in (
        b"",
        b"{}",
        b'{"leader":"x"}',
        b'{"leader":1,"leader_epoch":0,"isr":null,"controller_epoch":1}',
    ):
        with pytest.raises(documents.BadDocument):
            documents.parse(documents.StateDocument, bad)


async def test_a_leader_writes_the_state_first_and_then_its_conditions(hosts: str, open_session: Any) -> None:
    async with open_session(hosts) as zk:
        await znodes.ensure_paths(zk)
        for path in (
            "/brokers/topics/t",
            "/brokers/topics/t/partitions",
            "/brokers/topics/t/partitions/0",
        ):
            await zk.multi([Create(path, b"")])
        before = documents.StateDocument(
            leader=1, leader_epoch=0, isr=[1], controller_epoch=1, isr_epochs={1: 1}
        )
        await zk.multi([Create(documents.state_path(PARTITION), before.data())])
        await zk.multi([Create(documents.incarnation_path(1), b"{}")])
        await zk.multi([SetData(documents.incarnation_path(1), b"{}", 0)])
        after = before.model_copy(update={"isr": [1, 2]})
        with pytest.raises(znodes.CheckFailed) as failed:
            checks = [*znodes.member_checks(2, 1, 1, 1)]
            await znodes.write_state(zk, PARTITION, after, 0, checks)
        assert failed.value.path == "/brokers/ids/2"
        assert await znodes.write_state(zk, PARTITION, after, 0, znodes.leader_checks(1, 1)) == 1
        with pytest.raises(znodes.StateMoved):  # the state speaks first, also when a condition fails too
            await znodes.write_state(zk, PARTITION, after, 0, [Check("/brokers/ids/2", -1)])
        assert await znodes.read_state(zk, PARTITION) == (after, 1)
        await znodes.notify_isr_change(zk, [PARTITION])
        assert await zk.children(documents.ISR_CHANGES) == ["isr_change_0000000000"]


async def test_producer_ids_are_given_out_once(hosts: str, open_session: Any) -> None:
    async with open_session(hosts) as one, open_session(hosts) as two:
        await znodes.ensure_paths(one)
        blocks = await asyncio.gather(*(next_producer_ids(r, 1) for r in (one, two, one, two)))
        assert sorted(blocks) == [(0, 1000), (1000, 2000), (2000, 3000), (3000, 4000)]
        first, second = await asyncio.gather(
            *(read_agreement(r, bytes([i]) * 16, "3.9") for i, r in enumerate((one, two)))
        )
        assert first == second and len(first.document.id) == 22
        with pytest.raises(MultiFailed):
            await one.multi([Create("/cluster/id", b"")])


async def test_producer_ids_begin_in_a_node_that_kafka_has_left_empty(hosts: str, open_session: Any) -> None:
    """Its brokers make the node at their start with no content, which is null and not of length 0."""
    async with open_session(hosts) as zk:
        client = KazooClient(hosts)
        client.start()
        client.create(documents.PRODUCER_IDS, None)
        client.stop()
        client.close()
        assert await zk.get(documents.PRODUCER_IDS) == (b"", await zk.exists(documents.PRODUCER_IDS))
        assert [await next_producer_ids(zk, 1), await next_producer_ids(zk, 1)] == [(0, 1000), (1000, 2000)]


async def test_a_follower_of_kafkas_joins_as_long_as_it_is_the_start_that_fetched(
    hosts: str, open_session: Any
) -> None:
    """It has no incarnation to check: its registration stands for it."""
    async with open_session(hosts) as leader, open_session(hosts) as follower:
        await znodes.ensure_paths(leader)
        await znodes.read_incarnation(leader, 1)
        await znodes.register_broker(leader, 1, documents.RegistrationDocument.of([ENDPOINT], 0, 1, 1), [])
        path = documents.broker_path(2)
        await follower.multi([Create(path, b'{"version":5,"endpoints":[]}', ephemeral=True)])
        stat = await leader.exists(path)
        assert stat is not None
        for epoch in (stat.czxid, -1):
            checks = znodes.member_checks(2, epoch, 1, 1, await znodes.joinable(leader, 2, epoch))
            await leader.multi(list(checks))
        with pytest.raises(MultiFailed):
            there = await znodes.joinable(leader, 2, stat.czxid - 1)
            await leader.multi(list(znodes.member_checks(2, stat.czxid - 1, 1, 1, there)))
        there = await znodes.joinable(leader, 2, stat.czxid)
        await follower.multi([Delete(path, stat.version)])
        with pytest.raises(MultiFailed):
            await leader.multi(list(znodes.member_checks(2, stat.czxid, 1, 1, there)))


async def test_a_broker_that_is_leaving_joins_no_isr_and_no_earlier_attempt_lands_either(
    hosts: str, open_session: Any
) -> None:
    async with open_session(hosts) as leader, open_session(hosts) as follower:
        await znodes.ensure_paths(leader)
        root = "/brokers/topics/t"
        for path in (root, f"{root}/partitions", f"{root}/partitions/0"):
            await leader.multi([Create(path, b"")])
        before = documents.StateDocument(
            leader=1, leader_epoch=0, isr=[1], controller_epoch=1, isr_epochs={1: 1}
        )
        await leader.multi([Create(documents.state_path(PARTITION), before.data())])
        for zk, broker in ((leader, 1), (follower, 2)):
            await znodes.create_if_absent(zk, documents.incarnation_path(broker), b"{}")
            registration = documents.RegistrationDocument.of([], 0, 1, 1)
            await znodes.register_broker(zk, broker, registration, [])
        wider = before.model_copy(update={"isr": [1, 2]})
        early = znodes.member_checks(2, 1, 1, 1, await znodes.joinable(leader, 2, 1))
        await znodes.announce_leaving(follower, 2)
        await znodes.announce_leaving(leader, 2)  # it is not ours to say
        late = znodes.member_checks(2, 1, 1, 1, await znodes.joinable(leader, 2, 1))
        for checks in (early, late):
            with pytest.raises(znodes.CheckFailed) as failed:
                await znodes.write_state(leader, PARTITION, wider, 0, checks)
            assert failed.value.path == "/brokers/ids/2"
        data, stat = await leader.get(documents.broker_path(2))
        assert (documents.parse(documents.RegistrationDocument, data).leaving, stat.version) == (True, 1)
        assert b"leaving" not in registration.data(), "the others look as they always did"


async def test_a_broker_that_registers_while_it_is_leaving_joins_no_isr(
    hosts: str, open_session: Any
) -> None:
    """After its session has ended it makes its node anew: at the first version, and as one that leaves."""

    async with open_session(hosts) as leader, open_session(hosts) as follower:
        await znodes.ensure_paths(leader)
        for zk, broker in ((leader, 1), (follower, 2)):
            await znodes.read_incarnation(zk, broker)
            registration = documents.RegistrationDocument.of([ENDPOINT], 0, 1, 1, leaving=broker == 2)
            await znodes.register_broker(zk, broker, registration, ["uuid"])
        there = await znodes.joinable(leader, 2, 1)
        with pytest.raises(MultiFailed):
            await leader.multi(list(znodes.member_checks(2, 1, 1, 1, there)))
        with pytest.raises(MultiFailed):
            await leader.multi(list(znodes.member_checks(3, 1, 1, 1, await znodes.joinable(leader, 3, 1))))

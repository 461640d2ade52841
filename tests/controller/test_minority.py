"""Whom the controller cannot reach may live: it asks ZooKeeper, and doubts itself before it doubts many."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from strandline.base.types import TopicPartition
from strandline.controller import failure_detector
from strandline.controller.challenges import Respondent
from strandline.controller.control_requests import RequestBuilder
from strandline.controller.planning import plans
from strandline.controller.self_doubt import DOUBTED_S, EMPTY_S
from strandline.protocol.messages import topics
from strandline.zookeeper import documents, znodes
from strandline.zookeeper.client import Create, Delete
from tests.controller.cluster_harness import cluster, create, until


@pytest.fixture
def patient_broker(fake_broker: Any) -> Callable[[int], Any]:
    """Who answers in ZooKeeper is heard, also where a tenth of a second is nothing."""

    def made(id: int) -> Any:
        broker = fake_broker(id)
        broker.patience = failure_detector.Patience(suspect_after_s=2.0, refused_after_s=2.0)
        return broker

    return made


async def test_a_broker_that_cannot_be_reached_and_lives_is_left_in_peace(patient_broker: Any) -> None:
    """Of three brokers the controller reaches one: it rules on, and nothing is written about the other."""

    async with cluster(patient_broker, 1, 2, 3) as brokers:
        one, two, three = brokers.values()
        assert (await create(one, "t", 3, 3)).error_code == 0
        before = await znodes.read_state(one.zk, TopicPartition("t", 1))
        two.hide()
        await until(lambda: one.controller.view.unreached == {(2, 1)})
        await asyncio.sleep(DOUBTED_S + 0.5)
        assert await znodes.read_state(one.zk, TopicPartition("t", 1)) == before
        assert one.controller.active and one.controller.epoch == 1
        assert not one.controller.view.suspected
        assert two.requests and three.requests
        said = plans.SendUpdateMetadata((3,), ())
        shown = RequestBuilder(1, 1, "PLAINTEXT").update_metadata(one.controller.view, said)[3].build(1)
        assert [each.id for each in shown.live_brokers] == [1, 2, 3]


async def test_a_broker_that_cannot_be_told_is_not_made_leader(patient_broker: Any) -> None:
    """Its partition would be without a leader for as long as the path from the controller is broken."""

    async with cluster(patient_broker, 1, 2, 3, 4) as brokers:
        one, two, three, _ = brokers.values()
        chosen = [topics.CreatableReplicaAssignment(partition_index=0, broker_ids=[3, 2, 4])]
        assert (await create(one, "t", -1, -1, assignments=chosen)).error_code == 0
        two.hide()
        await until(lambda: one.controller.view.unreached == {(2, 1)})
        await three.die()
        three.dead.add(3)
        await until(lambda: one.controller.view.partitions[TopicPartition("t", 0)].leader_epoch == 1)
        state, _ = await znodes.read_state(one.zk, TopicPartition("t", 0))
        assert (state.leader, set(state.isr)) == (4, {2, 4})
        await two.listen()
        await until(lambda: not one.controller.view.unreached)


async def test_silence_speaks_for_its_moment(fake_broker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What cut all off from the controller kept them from ZooKeeper, too, but not for long: then they answer
    there, and the controller sees that it is the one who is cut off.
    """
    monkeypatch.setattr(failure_detector, "ASK_AGAIN_S", 0.3)

    async with cluster(fake_broker, 1, 2, 3) as brokers:
        one, two, three = brokers.values()
        cut_off(one, [two, three])
        for other in (two, three):
            await other.stall()
        await until(lambda: len(one.controller.view.suspected) == 2)
        for other in (two, three):
            await other.listen()
            other.respondent = Respondent(other.zk, other.id, other.failed)
            await other.respondent.begin(1)
        await until(lambda: one.controller.view is None or not one.controller.view.suspected)
        await until(lambda: not one.controller.active)
        await until(lambda: two.controller.active or three.controller.active)


async def test_a_controller_that_reaches_too_few_of_the_living_gives_the_seat_up(patient_broker: Any) -> None:
    """The others reach each other: one of them rules. Whoever gave up comes back if nobody else wants it."""

    async with cluster(patient_broker, 1, 2, 3) as brokers:
        one, two, three = brokers.values()
        assert (await create(one, "t", 3, 3)).error_code == 0
        states = [await znodes.read_state(one.zk, TopicPartition("t", i)) for i in range(3)]
        begun = asyncio.get_running_loop().time()
        cut_off(one, [two, three])
        await until(lambda: not one.controller.active)
        assert asyncio.get_running_loop().time() - begun >= DOUBTED_S
        await until(lambda: two.controller.active or three.controller.active)
        assert states == [await znodes.read_state(one.zk, TopicPartition("t", i)) for i in range(3)], (
            "nothing was written about anybody"
        )
        assert two.controller.epoch == 2 or three.controller.epoch == 2


async def test_a_seat_that_nobody_else_wants_is_taken_again_and_kept(patient_broker: Any) -> None:
    async with cluster(patient_broker, 1, 2) as brokers:
        one, two = brokers.values()
        await two.controller.stop()
        two.hide()
        await until(lambda: not one.controller.active)
        left_at = asyncio.get_running_loop().time()
        await until(lambda: one.controller.active)
        assert asyncio.get_running_loop().time() - left_at >= EMPTY_S - 0.1
        await asyncio.sleep(DOUBTED_S + 0.5)
        assert one.controller.active, "nobody is better placed"


async def test_a_broker_that_knows_no_challenges_is_left_to_its_session(fake_broker: Any) -> None:
    async with cluster(fake_broker, 1, 2) as brokers:
        one, two = brokers.values()
        two.answers_challenges = False
        await two.respondent.stop()
        await one.zk.multi([Delete(documents.challenge_path(2), 0)])
        assert (await create(one, "t", 2, 2)).error_code == 0
        two.hide()
        await asyncio.sleep(1.0)
        assert not one.controller.view.suspected and one.controller.active


async def test_a_controller_whose_registration_was_away_for_a_moment_is_watched_all_the_same(
    fake_broker: Any,
) -> None:
    async with cluster(fake_broker, 1, 2) as brokers:
        one, two = brokers.values()
        data, stat = await one.zk.get(documents.broker_path(1))
        await one.zk.multi([Delete(documents.broker_path(1), stat.version)])
        await until(lambda: not two.controller.watches_controller)
        await one.zk.multi([Create(documents.broker_path(1), data, ephemeral=True)])
        await until(lambda: two.controller.watches_controller)


async def test_a_term_that_fails_ends_no_broker(fake_broker: Any) -> None:
    """What nobody foresaw may meet the successor, too: all brokers would end, one after the other."""

    async with cluster(fake_broker, 1, 2) as brokers:
        one, two = brokers.values()
        one.controller.reach.post("no event")
        await until(lambda: two.controller.active)
        assert not one.controller.active and one.failure is None and two.controller.epoch == 2
        await until(lambda: one.controller.controller_id == 2)


def cut_off(one: Any, others: Sequence[Any]) -> None:
    """The controller `one` does not reach the others any more; they reach each other."""
    channels = one.controller.terms[-1].announcer._channels
    for other in others:
        channels[other.id].detector._place = ("127.0.0.1", 1)  # nobody is there
        other.hang_up()

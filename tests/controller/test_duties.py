"""What a controller does by itself: its timer, its queue in order, its watches, and nobody else's."""

import asyncio
from typing import Any

import pytest

from strandline.controller import active_controller
from strandline.controller.planning import plans
from strandline.controller.requests import election_requests
from strandline.controller.requests.election_requests import ElectionPolicy
from strandline.controller.requests.topics import Defaults
from strandline.protocol.messages import topics
from strandline.zookeeper import documents
from tests.patience import HANG_S


async def until(condition: Any, seconds: float = HANG_S) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.01)


async def started(make: Any, *ids: int, **options: Any) -> list[Any]:
    brokers = [make(broker) for broker in ids]
    for broker in brokers:
        await broker.start(**options)
    await until(lambda: brokers[0].controller.active)
    await brokers[0].controller.reach.until(lambda state: state.brokers.keys() == set(ids))
    return brokers


async def stopped(brokers: list[Any]) -> None:
    for broker in brokers:
        await broker.stop()


async def test_the_timer_looks_at_the_balance_again_and_again(
    fake_broker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What comes of a look is in planner_preferred.txt."""
    monkeypatch.setattr(election_requests, "FIRST_BALANCE_S", 0.02)
    looked = recorded(monkeypatch, plans.RebalanceDue)

    policy = ElectionPolicy(balance_every_s=0.02, imbalance_percentage=17)
    brokers = await started(fake_broker, 1, defaults=lambda: Defaults(elections=policy))
    await until(lambda: len(looked) >= 3)
    assert {event.percentage for event in looked} == {17}
    await stopped(brokers)
    del looked[:]
    never = ElectionPolicy(balance=False, balance_every_s=0.02)
    brokers = await started(fake_broker, 2, defaults=lambda: Defaults(elections=never))
    await asyncio.sleep(0.2)
    assert not looked
    await stopped(brokers)


def recorded(monkeypatch: pytest.MonkeyPatch, kind: type[Any]) -> list[Any]:
    """The events of a kind that controllers take, in their order."""
    taken: list[Any] = []
    real = active_controller.plan

    def plan(state: Any, event: plans.Event) -> Any:
        if isinstance(event, kind):
            taken.append(event)
        return real(state, event)

    monkeypatch.setattr(active_controller, "plan", plan)
    return taken


async def test_events_are_taken_one_after_the_other_in_the_order_they_came(
    fake_broker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = recorded(monkeypatch, plans.RebalanceDue)

    brokers = await started(fake_broker, 1)
    for number in range(1001, 1051):
        brokers[0].controller.reach.post(plans.RebalanceDue(number))
    await until(lambda: len(taken) == 50)
    assert [event.percentage for event in taken] == list(range(1001, 1051))
    await stopped(brokers)


def watched(broker: Any) -> set[str]:
    """The paths that ZooKeeper would tell this broker about."""
    client = broker.zk._client
    armed = [*client._data_watchers.items(), *client._child_watchers.items()]
    return {path.removeprefix(client.chroot) for path, watchers in armed if watchers}


async def test_only_the_controller_watches_the_cluster(fake_broker: Any) -> None:
    """A hundred brokers that watch all would wake up together; these watch what concerns themselves."""

    brokers = await started(fake_broker, 1, 2, 3)
    one = brokers[0]
    wanted = [topics.CreatableTopic(name=f"t{n}", num_partitions=2, replication_factor=2) for n in range(3)]
    await one.controller.ask(topics.CreateTopicsRequest(topics=wanted, timeout_ms=5000))
    await until(lambda: all(documents.CONTROLLER in watched(broker) for broker in brokers[1:]))
    for other in brokers[1:]:
        beside = {
            documents.challenge_path(other.id),
            documents.broker_path(one.id),
        }  # is it asked, does the ruler live
        assert watched(other) - beside == {documents.CONTROLLER}, "who does not rule waits for its node"
    expected = {
        documents.BROKER_IDS,
        documents.TOPICS,
        documents.DELETE_TOPICS,
        documents.ISR_CHANGES,
        documents.LOG_DIR_EVENTS,
        documents.CONTROLLER,
    }
    assert watched(one) >= expected
    per_topic = {path for path in watched(one) if path.startswith(documents.TOPICS + "/")}
    assert len(per_topic) <= 3, "one for each topic, not for each partition"
    await stopped(brokers)

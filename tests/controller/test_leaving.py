"""A broker that is shut down asks the controller to be relieved of what it leads."""

import asyncio
from typing import Any

import pytest

from strandline.controller.broker_channels import Announcer
from strandline.controller.requests import topics
from strandline.protocol.errors import StaleBrokerEpoch
from strandline.protocol.messages import control
from tests.controller.cluster_harness import cluster, create


async def test_a_broker_that_leaves_hands_over_first(fake_broker: Any) -> None:
    async with cluster(fake_broker, 1, 2) as brokers:
        one, two = brokers[1], brokers[2]
        assert (await create(one, "t", 2, 2)).error_code == 0
        assert (await create(one, "own", 2, 1)).error_code == 0
        with pytest.raises(StaleBrokerEpoch):
            await one.controller.controlled_shutdown(2, 0)
        answer = await one.controller.controlled_shutdown(2, 1)
        assert answer.remaining_partitions == [], "own-1 has no other replica to wait for"
        assert one.heard_at["t-1", 1]
        stop = next(o for o in two.requests if isinstance(o, control.StopReplicaRequest))
        assert not stop.topic_states[0].partition_states[0].delete_partition


async def test_a_broker_that_hangs_holds_up_nobody_who_leaves(
    fake_broker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who leaves asks for five seconds; what it led is led by others before the last one has heard of it."""

    async def never(announcer: Announcer, brokers: Any) -> None:
        await asyncio.Event().wait()

    async with cluster(fake_broker, 1, 2) as brokers:
        one = brokers[1]
        assert (await create(one, "t", 2, 2)).error_code == 0
        monkeypatch.setattr(topics, "HEARD_WITHIN_S", 0.05)
        monkeypatch.setattr(Announcer, "heard", never)
        async with asyncio.timeout(20):
            answer = await one.controller.controlled_shutdown(2, 1)
        assert answer.remaining_partitions == []

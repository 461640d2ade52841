"""Producer ids: blocks from ZooKeeper, one fetch for all who wait, and what they hear if it fails."""

import asyncio
from typing import Any

import pytest

from strandline.base.types import BrokerId
from strandline.broker import producer_ids
from strandline.broker.producer_ids import ProducerIds
from strandline.protocol.errors import CoordinatorNotAvailable
from strandline.simulation.environment.zookeeper import SimZooKeeper
from strandline.zookeeper.client import Create
from strandline.zookeeper.documents import PRODUCER_IDS

PRODUCERS = 30


class Zk:
    """A ZooKeeper in memory that can be away: then no answer ever comes."""

    def __init__(self, data: bytes = b"") -> None:
        self.server = SimZooKeeper()
        self.server.multi([Create(PRODUCER_IDS, data)], 1)
        self.is_away = False
        self.reads = 0

    async def get(self, path: str, watch: Any = None) -> Any:
        self.reads += 1
        if self.is_away:
            await asyncio.Event().wait()
        return self.server.get(path, 1, None)

    async def multi(self, ops: Any) -> Any:
        await asyncio.sleep(0)
        return self.server.multi(ops, 1)


def ids_from(zk: Any) -> ProducerIds:
    return ProducerIds(zk, BrokerId(1))


async def test_all_who_wait_share_a_fetch() -> None:
    zk = Zk()
    ids = ids_from(zk)
    assert await asyncio.gather(*(ids.take() for _ in range(PRODUCERS))) == list(range(PRODUCERS))
    assert zk.reads == 1


async def test_while_zookeeper_is_away_nobody_waits_for_anothers_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each had its own, one after the other: the last of thirty producers was answered after five minutes."""
    monkeypatch.setattr(producer_ids, "BLOCK_TIMEOUT_S", 0.01)
    zk = Zk()
    ids, zk.is_away = ids_from(zk), True
    told = await asyncio.gather(*(ids.take() for _ in range(PRODUCERS)), return_exceptions=True)
    assert {type(each) for each in told} == {CoordinatorNotAvailable}
    assert {str(each) for each in told} == {
        "COORDINATOR_NOT_AVAILABLE: cannot allocate producer ids: TimeoutError"
    }
    assert zk.reads == 1
    zk.is_away = False
    assert await ids.take() == 0, "who asks again is asked for again"


@pytest.mark.parametrize("end", ["", "x", "9" * 5_000])
async def test_a_block_that_nobody_can_read_ends_no_broker(end: str) -> None:
    zk = Zk(f'{{"version":1,"broker":1,"block_start":"0","block_end":"{end}"}}'.encode())
    with pytest.raises(CoordinatorNotAvailable, match="cannot allocate producer ids"):
        await ids_from(zk).take()

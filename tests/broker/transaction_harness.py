"""Transactions in one partition: a leader, a follower that the test plays, markers as brokers send them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from strandline.client.network.connection import Connection
from strandline.protocol.batches import headers
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages.control import TopicConfigEntry
from strandline.protocol.messages.fetch import ReplicaState
from strandline.protocol.messages.produce import ProduceRequest
from strandline.protocol.messages.transactions import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from tests.broker.replica_harness import (
    TOPIC,
    Cluster,
    ask,
    batch,
    cluster,
    fetch,
    fetched,
    list_offsets,
    produce,
)
from tests.patience import HANG_S

PRODUCER = 7


class Scene:
    """A led partition whose only other replica acknowledges when the test says so."""

    def __init__(self, stage: Cluster, client: Connection, follower: Connection) -> None:
        self.stage = stage
        self.member = stage.members[1]
        self.client = client
        self.follower = follower

    @property
    def partition(self) -> Any:
        return self.member.partition

    async def acknowledge(self, offset: int) -> None:
        """The follower holds everything before `offset`."""
        me = ReplicaState(replica_id=2, replica_epoch=1, counts_starts=True)
        told = fetch(offset, 0, replica_state=me, current_leader_epoch=self.stage.epoch)
        assert fetched(await ask(self.follower, told)).error_code == 0

    async def read(self, offset: int = 0, level: int = 1, **options: Any) -> Any:
        """What a consumer is answered."""
        return fetched(await ask(self.client, fetch(offset, isolation_level=level, **options)))

    def reads(self, offset: int, wait_ms: int, **options: Any) -> asyncio.Future[Any]:
        """The same, with an answer that comes later."""
        soon = asyncio.get_running_loop().time() + HANG_S
        request = fetch(offset, wait_ms, isolation_level=1, **options)
        return self.client.submit(request, deadline=soon)

    async def listed(self, timestamp: int, level: int = 1) -> int:
        """The offset that ListOffsets finds."""
        answer = await ask(self.client, list_offsets(timestamp, isolation_level=level))
        assert answer.topics[0].partitions[0].error_code == 0
        return int(answer.topics[0].partitions[0].offset)

    async def marked(self, by: Connection | None = None, **options: Any) -> int:
        """The answer to one marker."""
        return code_of(await ask(by or self.follower, marker(**options)))

    def marks(self, **options: Any) -> asyncio.Future[Any]:
        """The same, with an answer that comes later."""
        soon = asyncio.get_running_loop().time() + HANG_S
        return self.follower.submit(marker(**options), deadline=soon)


@asynccontextmanager
async def scene(directory: Path, isr: tuple[int, ...] = (1, 2), **configs: str) -> AsyncIterator[Scene]:
    """Partition t-0 led by broker 1, whose follower is played by the test."""
    configs["segment.ms"] = str(1 << 60)  # the tests' records are of 1970, their markers of today
    async with cluster(directory, 2) as stage:
        await stage.elect(1, isr, [TopicConfigEntry(name=n, value=v) for n, v in configs.items()])
        stage.members[2].parts.fetchers.drop(stage.members[2].partition)
        client = await stage.members[1].connect()
        follower = await stage.members[1].connect("PLAINTEXT")
        try:
            yield Scene(stage, client, follower)
        finally:
            await client.close()
            await follower.close()


def transactional(*values: bytes, sequence: int = 0, producer_id: int = PRODUCER, epoch: int = 0) -> bytes:
    """A batch of the producer's transaction."""
    return batch(*values, producer_id=producer_id, sequence=sequence, transactional=True, epoch=epoch)


def sent(records: bytes, acks: int = 1, transactional_id: str | None = "tx") -> ProduceRequest:
    """The produce request of a transactional producer."""
    request = produce(records, acks=acks)
    request.transactional_id = transactional_id  # type: ignore[misc]
    return request


def marker(
    committed: bool = True, producer_id: int = PRODUCER, epoch: int = 0, coordinator_epoch: int = 0,
    topic: str = TOPIC, index: int = 0,
) -> WriteTxnMarkersRequest:  # fmt: skip
    """WriteTxnMarkers for one partition."""
    return WriteTxnMarkersRequest(
        markers=[
            WritableTxnMarker(
                producer_id=producer_id, producer_epoch=epoch, transaction_result=committed,
                topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[index])],
                coordinator_epoch=coordinator_epoch,
            )
        ]
    )  # fmt: skip


def code_of(response: Any) -> int:
    """The result of the only marker."""
    return int(response.markers[0].topics[0].partitions[0].error_code)


def ends(data: Any) -> tuple[int, int, int]:
    """High watermark, last stable offset, and the end of the records in an answer (-1 if it has none)."""
    last = -1
    for _, header in headers(bytes(data.records)):
        last = header.next_offset
    return data.high_watermark, data.last_stable_offset, last


def aborted(data: Any) -> list[tuple[int, int]]:
    """The aborted transactions that an answer names."""
    return [(one.producer_id, one.first_offset) for one in data.aborted_transactions]


class Oracle:
    """Stands for the coordinators: says what the test wants, at once or when the test wants it."""

    def __init__(self, play: Scene) -> None:
        self.says: int | None = 0  # None: later
        self.asked: list[tuple[str, int, int]] = []
        self._waiting: list[tuple[asyncio.Future[Any], Any]] = []
        play.member.broker.verification = self
        play.member.parts.shared.verifies_transactions = True

    def ask(self, transactional_id: str, producer_id: int, producer_epoch: int, partitions: Any) -> Any:
        self.asked.append((transactional_id, producer_id, producer_epoch))
        answer = asyncio.get_running_loop().create_future()
        self._waiting.append((answer, partitions))
        if self.says is not None:
            self.tell(self.says)
        return answer

    @property
    def is_waiting(self) -> bool:
        return bool(self._waiting)

    def tell(self, code: int) -> None:
        """Answer all that wait."""
        for answer, partitions in self._waiting:
            answer.set_result(dict.fromkeys(partitions, ErrorCode(code)))
        self._waiting.clear()

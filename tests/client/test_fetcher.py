"""What a consumer's fetcher makes of answers that come late."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from strandline.base.types import TopicPartition
from strandline.client.config import ConsumerConfig, configure
from strandline.client.consumer.buffer import Handout
from strandline.client.consumer.fetcher import Fetcher
from strandline.client.consumer.positions import PartitionPosition
from strandline.client.consumer.unpacking import Unpacker
from strandline.client.serializers import bytes_in
from strandline.protocol.errors import CorruptMessage, ErrorCode
from strandline.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchEpochEndOffset,
    FetchResponse,
    PartitionData,
)
from strandline.protocol.messages.offsets import EARLIEST
from strandline.protocol.records import BatchBuilder

T0 = TopicPartition("t", 0)


class Leader:
    """A connection that keeps what it is asked."""

    def __init__(self) -> None:
        self.answer: asyncio.Future[FetchResponse] = asyncio.get_running_loop().create_future()

    def submit(
        self, request: object, deadline: float, version: int | None
    ) -> "asyncio.Future[FetchResponse]":
        return self.answer

    def version_for(self, api: int) -> int:
        return 12

    async def says(self, data: PartitionData) -> None:
        topic = FetchableTopicResponse(topic="t", partitions=[data])
        self.answer.set_result(FetchResponse(responses=[topic]))
        await asyncio.sleep(0)


def records(first: int, count: int) -> bytes:
    builder = BatchBuilder()
    for _ in range(count):
        builder.append(0, None, b"x")
    batch = bytearray(builder.build())
    batch[:8] = first.to_bytes(8, "big")
    return bytes(batch)


@pytest.mark.parametrize(
    "late",
    [
        PartitionData(partition_index=0, high_watermark=6, records=records(5, 1)),
        PartitionData(partition_index=0, error_code=ErrorCode.OFFSET_OUT_OF_RANGE, high_watermark=-1),
        PartitionData(
            partition_index=0,
            high_watermark=6,
            diverging_epoch=FetchEpochEndOffset(epoch=0, end_offset=4),
        ),
    ],
    ids=["records", "out-of-range", "parting"],
)
def test_what_an_old_leader_says_late_is_dropped(run: Any, late: PartitionData) -> None:
    """It was asked before leadership moved; the new leader has been asked, and has answered, since."""

    async def story() -> None:
        view = SimpleNamespace(epoch=lambda partition: 0, topics={})
        cluster: Any = SimpleNamespace(now=lambda: 0.0, view=view, served=lambda *_: None)
        fetcher = Fetcher(cluster, configure(ConsumerConfig, "h:1", {}))
        place = PartitionPosition(T0)
        place.seek(5)
        fetcher.places = {T0: place}
        old, new = Leader(), Leader()
        for node, leader in ((1, old), (2, new)):
            connection: Any = leader
            fetcher._ask(node, connection, [place], False)
        await new.says(PartitionData(partition_index=0, high_watermark=8, records=records(5, 3)))
        await old.says(late)
        assert (place.position, place.fetch_at, place.high_watermark, len(place.chunks)) == (5, 8, 8, 1)
        assert fetcher.trouble is None

    run(story())


def test_what_is_ready_of_a_log_that_lost_the_position_is_dropped_with_it(run: Any) -> None:
    """Else the caller's next record would set a position, and another would be looked up in vain."""

    async def story() -> None:
        view = SimpleNamespace(epoch=lambda partition: 0, topics={})
        cluster: Any = SimpleNamespace(now=lambda: 0.0, view=view, served=lambda *_: None)
        config = configure(ConsumerConfig, "h:1", {"auto_offset_reset": "earliest"})
        fetcher = Fetcher(cluster, config)
        handout = Handout(lambda: fetcher.places, Unpacker(bytes_in, bytes_in, True))
        fetcher.on_gone_back = handout.drop
        place = PartitionPosition(T0)
        place.seek(5)
        fetcher.places = {T0: place}
        for answer in (
            PartitionData(partition_index=0, high_watermark=8, records=records(5, 3)),
            PartitionData(partition_index=0, error_code=ErrorCode.OFFSET_OUT_OF_RANGE, high_watermark=-1),
        ):
            leader: Any = Leader()
            fetcher._asked.clear()
            fetcher._ask(1, leader, [place], False)
            await leader.says(answer)
            if place.chunks:
                for most in (1, 3):  # two runs, of which one has begun
                    handout.fill(most)
                assert handout.next().offset == 5
        assert (place.position, place.lost_at, place.reset_to) == (None, 6, EARLIEST)
        assert handout.run.at >= handout.run.end and handout.is_empty

    run(story())


def test_an_answer_that_is_no_batch_is_told_to_the_caller(run: Any) -> None:
    async def story() -> None:
        view = SimpleNamespace(epoch=lambda partition: 0, topics={})
        cluster: Any = SimpleNamespace(
            now=lambda: 0.0, view=view, served=lambda *_: None, pause=lambda failures: 0.0
        )
        fetcher = Fetcher(cluster, configure(ConsumerConfig, "h:1", {}))
        place = PartitionPosition(T0)
        place.seek(5)
        fetcher.places = {T0: place}
        leader: Any = Leader()
        fetcher._ask(1, leader, [place], False)
        old = bytearray(records(5, 3))
        old[16] = 1
        await leader.says(PartitionData(partition_index=0, high_watermark=8, records=bytes(old)))
        assert isinstance(fetcher.trouble, CorruptMessage) and "magic 1" in str(fetcher.trouble)
        assert place.fetch_at == 5 and not place.chunks

    run(story())

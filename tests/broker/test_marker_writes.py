"""Markers: who may write them, when they count, and who hears of it."""

import asyncio
from functools import partial
from pathlib import Path

import pytest

from strandline.base.types import TopicPartition
from strandline.broker.replicas.ending_transactions import Ending, EndingTransactions
from strandline.broker.replicas.local_appends import append_local
from strandline.broker.replicas.marker_writes import write_marker
from strandline.protocol.errors import ErrorCode
from strandline.protocol.markers import EndMarker
from strandline.protocol.messages.transactions import (
    DescribeProducersRequest,
    DescribeProducersTopic,
    WriteTxnMarkersRequest,
)
from tests.broker.replica_harness import TOPIC, TP, ask, batch, outcome, produce, until
from tests.broker.transaction_harness import (
    PRODUCER,
    Scene,
    code_of,
    ends,
    marker,
    scene,
    sent,
    transactional,
)
from tests.patience import HANG_S

COMMITTED, ABORTED = EndMarker(committed=True, coordinator_epoch=0), EndMarker(False, 0)


class Heard:
    """What parts above hear, in order."""

    def __init__(self, play: Scene) -> None:
        self.play = play
        self.all: list[object] = []
        self.offsets: list[int] = []
        play.member.parts.shared.on_transaction_ended.subscribe(self.ended)

    def ended(self, tp: TopicPartition, producer_id: int, committed: bool, marker_offset: int) -> None:
        assert tp == TP
        self.offsets.append(marker_offset)
        self.all.append((producer_id, committed))

    def write(self, seconds: float = 5.0, end: EndMarker = COMMITTED, epoch: int = 0) -> None:
        """Write a marker as the coordinator does for its own partitions."""
        deadline = asyncio.get_running_loop().time() + seconds
        write_marker(self.play.member.replicas.get, TP, PRODUCER, epoch, end, self.all.append, deadline)


async def test_what_ends_is_told_when_it_is_committed_and_before_the_coordinator_hears(
    tmp_path: Path,
) -> None:
    async with scene(tmp_path) as play:
        heard = Heard(play)
        await ask(play.client, sent(transactional(b"a")))
        await play.acknowledge(1)
        heard.write()
        assert heard.all == [] and play.partition.log.end_offset == 2
        await play.acknowledge(2)
        assert heard.all == [(PRODUCER, True), ErrorCode.NONE]


async def test_a_marker_counts_though_nobody_waited_for_it_any_more(tmp_path: Path) -> None:
    async with scene(tmp_path) as play:
        heard = Heard(play)
        await ask(play.client, sent(transactional(b"a")))
        heard.write(seconds=0.01, end=ABORTED)
        await until(lambda: heard.all == [ErrorCode.REQUEST_TIMED_OUT])
        heard.write(end=ABORTED)
        assert play.partition.log.end_offset == 2, "the marker that waits already is not written again"
        await play.acknowledge(2)
        assert heard.all[1:] == [(PRODUCER, False), ErrorCode.NONE]


async def test_a_marker_of_a_later_transaction_is_written_though_it_says_the_same(tmp_path: Path) -> None:
    async with scene(tmp_path) as play:
        heard = Heard(play)
        await ask(play.client, sent(transactional(b"a")))
        heard.write()
        await ask(play.client, sent(transactional(b"b", sequence=1)))
        heard.write()
        assert play.partition.log.end_offset == 4
        await play.acknowledge(4)
        assert heard.all[:2] == [(PRODUCER, True)] * 2 and heard.offsets == [1, 3]
        assert ends(await play.read()) == (4, 4, 4)


async def test_a_leader_that_is_replaced_tells_nobody(tmp_path: Path) -> None:
    """The next leader commits the marker, or has never had it."""

    async with scene(tmp_path) as play:
        heard = Heard(play)
        await ask(play.client, sent(transactional(b"a")))
        heard.write()
        await play.stage.elect(2, [1, 2])
        await until(lambda: heard.all == [ErrorCode.NOT_LEADER_OR_FOLLOWER])
        heard.write()
        assert heard.all[1:] == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
        await play.stage.elect(1, [1, 2])
        play.stage.members[2].parts.fetchers.drop(play.stage.members[2].partition)
        await play.acknowledge(play.partition.log.end_offset)
        assert (PRODUCER, True) not in heard.all


async def test_a_marker_waits_through_a_new_epoch_of_the_same_leader(tmp_path: Path) -> None:
    async with scene(tmp_path) as play:
        heard = Heard(play)
        await ask(play.client, sent(transactional(b"a")))
        heard.write()
        await play.stage.elect(1, [1, 2])
        play.stage.members[2].parts.fetchers.drop(play.stage.members[2].partition)
        await play.acknowledge(2)
        await until(lambda: heard.all == [(PRODUCER, True), ErrorCode.NONE])


async def test_stale_producers_and_coordinators_end_nothing(tmp_path: Path) -> None:
    async with scene(tmp_path, isr=(1,)) as play:
        await ask(play.client, sent(transactional(b"a", epoch=3)))
        assert await play.marked(epoch=2) == ErrorCode.INVALID_PRODUCER_EPOCH
        assert await play.marked(epoch=3, coordinator_epoch=5) == 0
        await ask(play.client, sent(transactional(b"b", epoch=3, sequence=1)))
        stale = await play.marked(epoch=3, coordinator_epoch=4)
        assert stale == ErrorCode.TRANSACTION_COORDINATOR_FENCED
        assert ends(await play.read()) == (3, 2, 2), "its transaction is still open"
        assert await play.marked(epoch=4, coordinator_epoch=5, committed=False) == 0
        late = sent(transactional(b"c", epoch=3, sequence=2))
        assert outcome(await ask(play.client, late))[0] == ErrorCode.INVALID_PRODUCER_EPOCH
        assert play.partition.log.end_offset == 4


async def test_a_marker_needs_a_leader_and_enough_replicas(tmp_path: Path) -> None:
    async with scene(tmp_path, isr=(1,), **{"min.insync.replicas": "2"}) as play:
        assert await play.marked() == ErrorCode.NOT_ENOUGH_REPLICAS
        assert play.partition.log.end_offset == 0
        elsewhere = await play.stage.members[2].connect("PLAINTEXT")
        assert code_of(await ask(elsewhere, marker())) == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert code_of(await ask(elsewhere, marker(topic="no"))) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        await elsewhere.close()


async def test_several_markers_are_answered_together(tmp_path: Path) -> None:
    async with scene(tmp_path, isr=(1,)) as play:
        await ask(play.client, sent(transactional(b"a")))
        both = marker(producer_id=9, index=5).markers + marker().markers
        answer = await ask(play.follower, WriteTxnMarkersRequest(markers=both))
        told = {one.producer_id: one.topics[0].partitions[0] for one in answer.markers}
        assert (told[9].partition_index, told[9].error_code) == (5, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        assert (told[PRODUCER].partition_index, told[PRODUCER].error_code) == (0, 0)
        assert (await ask(play.follower, WriteTxnMarkersRequest(markers=[]))).markers == []


async def test_clients_may_abort_what_hangs_and_nothing_else(tmp_path: Path) -> None:
    async with scene(tmp_path, isr=(1,)) as play:
        by_hand = partial(play.marked, play.client, committed=False)
        assert await by_hand() == ErrorCode.INVALID_TXN_STATE
        await ask(play.client, sent(transactional(b"a", epoch=3)))
        refused = {
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED: await play.marked(play.client, epoch=3),
            ErrorCode.INVALID_PRODUCER_EPOCH: await by_hand(epoch=4),
            ErrorCode.TRANSACTION_COORDINATOR_FENCED: await by_hand(epoch=3, coordinator_epoch=1),
            ErrorCode.INVALID_TXN_STATE: await by_hand(producer_id=8),
        }
        assert list(refused) == list(refused.values())
        assert await by_hand(epoch=2) == ErrorCode.INVALID_PRODUCER_EPOCH
        assert play.partition.log.end_offset == 1
        assert await by_hand(epoch=3) == 0
        assert ends(await play.read()) == (2, 2, 2)
        assert await by_hand(epoch=3) == ErrorCode.INVALID_TXN_STATE, "it has ended"


async def test_what_brokers_write_for_a_producer_has_its_epoch(tmp_path: Path) -> None:
    """Offsets that a transaction commits: no sequence, but a fenced producer commits nothing."""

    async with scene(tmp_path, isr=(1,)) as play:
        await ask(play.client, sent(transactional(b"a", epoch=3)))
        told: list[int] = []
        soon = asyncio.get_running_loop().time() + HANG_S
        for epoch in (2, 3):
            own = bytearray(transactional(b"offset", sequence=-1, epoch=epoch))
            append_local(play.member.replicas.get, TP, own, lambda code, _: told.append(code), soon)
            play.partition.mark()
        await until(lambda: len(told) == 2)
        assert told == [ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.NONE]
        assert play.partition.log.end_offset == 2


async def test_who_writes_to_a_partition(tmp_path: Path) -> None:
    async with scene(tmp_path, isr=(1,)) as play:
        await ask(play.client, produce(batch(b"plain")))
        await ask(play.client, sent(transactional(b"a", b"b", epoch=3)))
        topics = [
            DescribeProducersTopic(name=TOPIC, partition_indexes=[0, 5]),
            DescribeProducersTopic(name="no", partition_indexes=[0]),
            DescribeProducersTopic(name="n o", partition_indexes=[0]),
        ]

        async def describe() -> list[tuple[int, list[tuple[int, ...]]]]:
            answer = await ask(play.client, DescribeProducersRequest(topics=topics))
            return [
                (
                    one.error_code,
                    [
                        (p.producer_id, p.producer_epoch, p.last_sequence, p.coordinator_epoch,
                         p.current_txn_start_offset)
                        for p in one.active_producers
                    ],
                )
                for topic in answer.topics
                for one in topic.partitions
            ]  # fmt: skip

        unknown = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, [])
        known, other, *rest = await describe()
        assert known == (0, [(PRODUCER, 3, 1, -1, 1)])
        assert other[0] in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        assert rest == [unknown, (ErrorCode.INVALID_TOPIC_EXCEPTION, [])]
        assert await play.marked(epoch=3, coordinator_epoch=6) == 0
        assert (await describe())[0] == (0, [(PRODUCER, 3, 1, 6, -1)])


@pytest.mark.parametrize("watermark", [0, 1, 2, 3, 4])
def test_markers_leave_in_the_order_of_the_log(watermark: int) -> None:
    ending = EndingTransactions()
    written = [Ending(1, 5, 0, COMMITTED), Ending(2, 6, 0, ABORTED), Ending(4, 5, 0, ABORTED)]
    for one in written:
        ending.add(one)
    assert list(ending.committed(watermark)) == [one for one in written if one.end_offset <= watermark]
    left = [one for one in written if one.end_offset > watermark]
    assert len(ending.waiting) == len(left)
    assert ending.same(5, 0, ABORTED) == (written[2] if written[2] in left else None)
    assert ending.same(5, 0, COMMITTED) is None, "the newest one counts"

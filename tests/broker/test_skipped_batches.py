"""A batch that was refused for a time, and those that came right behind it."""

import tracemalloc
from pathlib import Path

import pytest

from strandline.base.types import Offset, TopicPartition
from strandline.broker.replicas import skipped_batches
from strandline.broker.replicas.skipped_batches import (
    BATCHES_MAX,
    KEPT_S,
    SEQUENCES_MAX,
    RefusedBatches,
    SkippedBatches,
)
from strandline.protocol.batches import SEQUENCES, BatchHeader, read_header
from strandline.protocol.errors import ErrorCode, NotLeaderOrFollower
from strandline.protocol.messages.control import TopicConfigEntry
from strandline.replication.effects import RestartAt
from strandline.storage.log.producer_state import ProducerStates
from tests.broker.replica_harness import TOPIC, ask, batch, cluster, outcome, produce

NOT_LEADER, OUT_OF_ORDER = ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def header(sequence: int, *, producer_id: int = 5, epoch: int = 0) -> BatchHeader:
    return read_header(memoryview(batch(b"a", producer_id=producer_id, sequence=sequence, epoch=epoch)))


T0, T1 = (TopicPartition("t", number) for number in range(2))


def nothing_refused() -> SkippedBatches:
    return SkippedBatches(T0, RefusedBatches())


def is_skipping(skipped: SkippedBatches, states: ProducerStates, what: BatchHeader, now: float = 1.0) -> bool:
    try:
        skipped.check(what, states.get(what.producer_id), now)
    except NotLeaderOrFollower:
        return True
    return False


@pytest.fixture
def states() -> ProducerStates:
    """The log has the sequences up to 129 of producer 5."""
    known = ProducerStates(100)
    known.update(header(129), 129)
    return known


class TestGaps:
    def test_only_what_is_ahead_of_a_refused_batch_waits(self, states: ProducerStates) -> None:
        skipped = nothing_refused()
        for sequence in (128, 129, 130):
            skipped.refused(header(sequence), 0.0)
        assert [is_skipping(skipped, states, header(s)) for s in (128, 129, 130, 131, 140)] == [
            False, False, False, True, True,
        ]  # fmt: skip
        states.update(header(130), 130)
        assert is_skipping(skipped, states, header(132)), "131 was sent away, and comes again"
        for sequence in (131, 132):
            states.update(header(sequence), sequence)
        assert not is_skipping(skipped, states, header(134)), "a real gap is out of order"

    def test_others_do_not_wait(self, states: ProducerStates) -> None:
        refused = RefusedBatches()
        skipped, other = (SkippedBatches(tp, refused) for tp in (T0, T1))
        skipped.refused(header(130), 0.0)
        skipped.refused(header(-1, producer_id=-1), 0.0)
        assert not is_skipping(skipped, states, header(131, producer_id=6))
        assert not is_skipping(skipped, states, header(1, epoch=1))
        assert len(refused) == 1 and skipped and not other
        other.refused(header(131), 0.0)
        assert is_skipping(skipped, states, header(131)) and not is_skipping(other, states, header(130))

    def test_a_producer_that_is_new_here_begins_with_the_refused_batch(self) -> None:
        skipped, nobody = nothing_refused(), ProducerStates(100)
        skipped.refused(header(0), 0.0)
        assert is_skipping(skipped, nobody, header(1)) and not is_skipping(skipped, nobody, header(0))

    def test_sequences_begin_again_behind_the_last(self) -> None:
        states, skipped = ProducerStates(100), nothing_refused()
        states.update(header(SEQUENCES - 1), 7)
        skipped.refused(header(0), 0.0)
        assert is_skipping(skipped, states, header(1)) and not is_skipping(skipped, states, header(0))

    def test_it_is_not_waited_for_ever(self, states: ProducerStates) -> None:
        skipped = nothing_refused()
        skipped.refused(header(130), 0.0)
        assert is_skipping(skipped, states, header(131), KEPT_S)
        assert not is_skipping(skipped, states, header(131), KEPT_S + 1)
        assert not is_skipping(skipped, states, header(140), 2 * KEPT_S + 1) and not skipped

    def test_who_goes_on_in_order_is_forgotten(self, states: ProducerStates) -> None:
        """Each batch of the partition is looked at as long as anything is remembered."""
        refused = RefusedBatches()
        skipped = SkippedBatches(T0, refused)
        skipped.refused(header(0, producer_id=6), 0.0)
        skipped.refused(header(130), 1.0)
        states.update(header(130), 130)
        assert not is_skipping(skipped, states, header(131), KEPT_S + 0.5)
        assert len(refused) == 1, "the other producer has not been here for longer"
        assert not is_skipping(skipped, states, header(132), KEPT_S + 2) and not skipped

    def test_after_another_leader_any_gap_may_be_filled(self, states: ProducerStates) -> None:
        skipped = nothing_refused()
        assert not skipped
        skipped.taken_over(1.0)
        assert skipped and [is_skipping(skipped, states, header(s), 2.0) for s in (128, 129, 130, 131)] == [
            False, False, False, True,
        ]  # fmt: skip
        assert is_skipping(skipped, states, header(1, epoch=1), 2.0), "a new epoch begins at 0"
        assert not is_skipping(skipped, states, header(0, epoch=1), 2.0)
        assert is_skipping(skipped, states, header(7, producer_id=6), 2.0), "so does who is new here"
        assert not is_skipping(skipped, states, header(0, producer_id=6), 2.0)
        assert is_skipping(skipped, states, header(SEQUENCES - 9, producer_id=6), 2.0), "however far it is"
        assert is_skipping(skipped, states, header(133), KEPT_S + 1)
        assert not is_skipping(skipped, states, header(140, producer_id=7), KEPT_S + 2), "not for ever"
        assert not is_skipping(skipped, states, header(140), 2 * KEPT_S + 2)

    def test_a_fenced_producer_hears_of_its_epoch(self) -> None:
        states, skipped = ProducerStates(100), nothing_refused()
        states.update(header(0, epoch=2), 0)
        skipped.taken_over(0.0)
        skipped.refused(header(1, epoch=1), 0.0)
        assert not is_skipping(skipped, states, header(2, epoch=1)), "for nothing would come of it"

    def test_of_one_producer_it_is_bounded(self) -> None:
        skipped = nothing_refused()
        for sequence in range(SEQUENCES_MAX + 5):
            skipped.refused(header(sequence), 0.0)
        assert not is_skipping(skipped, ProducerStates(100), header(5)), "the oldest made room"
        skipped.refused(header(5), 1.0)
        skipped.refused(header(SEQUENCES_MAX + 5), 1.0)
        assert is_skipping(skipped, ProducerStates(100), header(6)), "not what was refused again meanwhile"

    def test_of_a_broker_it_is_bounded(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(skipped_batches, "BATCHES_MAX", 10)
        refused, nobody = RefusedBatches(), ProducerStates(100)
        partitions = [SkippedBatches(TopicPartition("t", number), refused) for number in range(8)]
        for skipped in partitions:
            for sequence in range(2):
                skipped.refused(header(sequence), 0.0)
        assert len(refused) == 10
        assert [bool(each) for each in partitions] == [False] * 3 + [True] * 5, "the oldest made room"
        assert is_skipping(partitions[3], nobody, header(1)), "and is the newest now"
        partitions[0].refused(header(0), 1.0)
        assert [bool(each) for each in partitions[3:]] == [True, False, True, True, True]
        partitions[1].refused(header(0), 1.1 + KEPT_S)
        assert len(refused) == 1, "what is not waited for goes, whichever partition is asked"


def test_what_is_refused_on_purpose_takes_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """The worst is a producer and a partition of its own for each batch."""
    some = 2_000
    monkeypatch.setattr(skipped_batches, "BATCHES_MAX", some)
    refused, one = RefusedBatches(), header(0)
    tracemalloc.start()
    try:
        for number in range(2 * some):
            tp = TopicPartition(f"{number:0249}", 1000 + number)
            sent = one._replace(producer_id=1000 + number, base_sequence=1000 + number)
            refused.add(tp, sent, 1.0 + number / some)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(refused) == some
    assert held / some * BATCHES_MAX < 64 << 20, f"{held // some} bytes for each"


async def test_a_broker_becomes_the_leader_between_two_batches(tmp_path: Path) -> None:
    async with cluster(tmp_path, 2) as stage:
        await stage.elect(2, [1, 2])
        old = await stage.members[2].connect()
        assert outcome(await ask(old, produce(batch(b"a", producer_id=5, sequence=0)))) == (0, 0)
        new = await stage.members[1].connect()
        early = produce(batch(b"b", producer_id=5, sequence=1))
        late = produce(batch(b"c", producer_id=5, sequence=2))
        assert outcome(await ask(new, early))[0] == NOT_LEADER
        await stage.elect(1, [1, 2])
        assert outcome(await ask(new, late))[0] == NOT_LEADER, "the first one comes again, before this one"
        assert outcome(await ask(new, early)) == (0, 1)
        assert outcome(await ask(new, late)) == (0, 2)
        await old.close()
        await new.close()


async def test_a_broker_makes_the_replica_between_two_batches(tmp_path: Path) -> None:
    """Of a new topic, or after its own start: clients may hear of a leader before it hears of its role."""
    async with cluster(tmp_path, 1) as stage:
        client = await stage.members[1].connect()
        early, late = (produce(batch(b"a", producer_id=5, sequence=number)) for number in range(2))
        assert outcome(await ask(client, early))[0] == NOT_LEADER
        assert outcome(await ask(client, produce(batch(b"plain"))))[0] == NOT_LEADER
        assert outcome(await ask(client, produce(b"none")))[0] == NOT_LEADER
        held = stage.members[1].replicas._shared.refused
        for topic in ("typo", "x" * 250):
            elsewhere = produce(batch(b"a", producer_id=5, sequence=0), topic=topic)
            assert outcome(await ask(client, elsewhere))[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert [tp.topic for tp in held.producers] == [TOPIC, "typo"], "what is no name may be long"
        await stage.elect(1, [1])
        assert outcome(await ask(client, late))[0] == NOT_LEADER, "it may not begin the log"
        assert [outcome(await ask(client, again)) for again in (early, late)] == [(0, 0), (0, 1)]
        await client.close()


async def test_the_leader_before_is_cut_off_with_a_batch(tmp_path: Path) -> None:
    """Nobody else has seen it, and its producer waits for the answer while the next finds the new leader."""
    async with cluster(tmp_path, 2) as stage:
        batches = [produce(batch(b"a", producer_id=5, sequence=number)) for number in range(5)]
        await stage.elect(2, [1, 2])
        old = await stage.members[2].connect()
        assert outcome(await ask(old, batches[0])) == (0, 0)
        assert outcome(await ask(old, batches[2]))[0] == OUT_OF_ORDER, "this one has seen all there is"
        await stage.elect(1, [1, 2])
        new = await stage.members[1].connect()
        for ahead in (2, 3, 2):
            told = await ask(new, batches[ahead])
            assert outcome(told)[0] == NOT_LEADER
            hint = told.responses[0].partition_responses[0].current_leader
            assert hint is None and not told.node_endpoints, (
                "who is named a leader goes there without a pause"
            )
        for place, again in enumerate(batches[1:4], 1):
            assert outcome(await ask(new, again)) == (0, place)
        await old.close()
        await new.close()


@pytest.mark.parametrize("how", ["it goes on leading", "elected uncleanly"])
async def test_a_gap_that_nobody_will_fill_is_out_of_order(tmp_path: Path, how: str) -> None:
    """A leader that goes on has seen all there is; what an unclean election gave up is gone."""
    async with cluster(tmp_path, 2) as stage:
        stage.unclean = how == "elected uncleanly"
        await stage.elect(2 if stage.unclean else 1, [1, 2])
        await stage.elect(1, [1])
        client = await stage.members[1].connect()
        first, gap = (produce(batch(b"a", producer_id=5, sequence=number)) for number in (0, 2))
        assert outcome(await ask(client, first)) == (0, 0)
        assert outcome(await ask(client, gap))[0] == OUT_OF_ORDER
        await client.close()


async def test_a_producer_whose_records_are_gone_goes_on_at_a_replica_that_never_had_them(
    tmp_path: Path,
) -> None:
    """As after a reassignment, or when what a broker missed was deleted meanwhile."""
    async with cluster(tmp_path, 2) as stage:
        await stage.elect(2, [1, 2])
        await stage.silence(1)
        stage.members[1].partition.restart(RestartAt(Offset(40)))
        await stage.elect(1, [1, 2])
        client = await stage.members[1].connect()
        gone, further, refused, behind = (
            produce(batch(b"a", producer_id=producer, sequence=number), acks=1)
            for producer, number in ((5, 20), (5, 23), (6, 8), (6, 9))
        )
        assert outcome(await ask(client, gone)) == (0, 40)
        assert outcome(await ask(client, further))[0] == NOT_LEADER, "what is known must fit"
        stage.members[1].partition.sent_away(memoryview(batch(b"a", producer_id=6, sequence=8)))
        assert outcome(await ask(client, behind))[0] == NOT_LEADER
        assert [outcome(await ask(client, each)) for each in (refused, behind)] == [(0, 41), (0, 42)]
        await client.close()


@pytest.mark.parametrize("why", ["no room", "too few in sync"])
async def test_a_partition_takes_batches_again_between_two(tmp_path: Path, why: str) -> None:
    """Its disk was full, or its ISR too small: what came meanwhile comes again, in its order."""
    async with cluster(tmp_path, 2) as stage:
        two = [TopicConfigEntry(name="min.insync.replicas", value="2")]
        is_full, leader = why == "no room", stage.members[1]
        refused = ErrorCode.KAFKA_STORAGE_ERROR if is_full else ErrorCode.NOT_ENOUGH_REPLICAS
        await stage.elect(1, [1, 2] if is_full else [1], two)
        client = await leader.connect()
        acks = 1 if is_full else -1
        first, early, late, more = (
            produce(batch(b"a", producer_id=5, sequence=number), acks=1 if number == 0 else acks)
            for number in range(4)
        )
        assert outcome(await ask(client, first)) == (0, 0)
        if is_full:
            leader.partition.full = why
        assert outcome(await ask(client, early))[0] == refused
        if is_full:
            assert outcome(await ask(client, late))[0] == NOT_LEADER, "while there is no room, too"
            leader.partition.full = None
        else:
            await stage.elect(1, [1, 2], two)
        for ahead in (late, more):
            assert outcome(await ask(client, ahead))[0] == NOT_LEADER
        for place, again in enumerate((early, late, more), 1):
            assert outcome(await ask(client, again)) == (0, place)
        await client.close()

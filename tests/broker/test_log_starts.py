"""A follower that has nothing so old begins where its leader's log begins, even within a batch, and joins."""

from pathlib import Path
from typing import Any

import pytest

from strandline.broker.fetch import read
from strandline.broker.follower.round import StartRound
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages.offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from strandline.replication.follower import AskRecords
from strandline.storage.log.log import Log
from tests.broker.replica_harness import Cluster, ask, batch, cluster, outcome, produce, until

BATCHES = [batch(*(b"%d" % number for number in range(10))), batch(b"10", b"11")]
END = 12


async def lead(stage: Cluster, start: int) -> None:
    """Broker 1 leads alone, and its log begins at `start`. Broker 2 follows, and has not asked yet."""
    one, two = stage.members[1], stage.members[2]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(two.parts.fetchers, "follow", lambda partition: None)
        await stage.elect(1, [1])
    client = await one.connect()
    for each in BATCHES:
        assert outcome(await ask(client, produce(each)))[0] == ErrorCode.NONE
    await client.close()
    assert one.partition.high_watermark == END and one.partition.log.move_start(start)


def hide_starts(patch: pytest.MonkeyPatch) -> None:
    """Leaders do not say beside an error where their logs begin, as Kafka's do not."""
    refused = read.refused
    patch.setattr(
        read, "refused", lambda partition, error, isolation, start=-1: refused(partition, error, isolation)
    )


@pytest.mark.parametrize("start", [3, 10], ids=["within a batch", "between batches"])
@pytest.mark.parametrize("says", [True, False], ids=["our leader", "as Kafka's"])
async def test_a_new_replica_begins_where_the_leaders_log_begins(
    says: bool, start: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not says:
        hide_starts(monkeypatch)
    async with cluster(tmp_path, 2) as stage:
        await lead(stage, start)
        one, two = (stage.members[id].partition for id in (1, 2))
        stage.members[2].parts.fetchers.follow(two)
        await until(lambda: stage.state().isr == [1, 2])
        assert (two.log.start_offset, two.log.end_offset) == (start, END)
        begins = 0 if start < 10 else 10
        assert [segment.base_offset for segment in two.log.segments] == [begins]
        assert bytes(two.log.read(start, 1 << 20, END)) == bytes(one.log.read(start, 1 << 20, END))
        assert two.log.epochs.latest == one.log.epochs.latest and two.offline is None


@pytest.mark.parametrize("says", [True, False], ids=["our leader", "as Kafka's"])
async def test_who_lags_behind_the_start_begins_anew(
    says: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not says:
        hide_starts(monkeypatch)
    async with cluster(tmp_path, 2) as stage:
        await lead(stage, 0 + 11)
        two = stage.members[2].partition
        old = batch(b"0", b"1")
        two.log.append_replicated(memoryview(bytearray(old)), 0)
        stage.members[2].parts.fetchers.follow(two)
        await until(lambda: stage.state().isr == [1, 2])
        assert (two.log.start_offset, two.log.end_offset) == (11, END)


async def test_a_batch_around_the_start_that_is_damaged_is_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is thrown away for it."""
    sent, whole = [], Log.read

    def damaged(log: Log, offset: int, *how: Any, **more: Any) -> Any:
        found = whole(log, offset, *how, **more)
        if offset != 3 or len(sent) >= 2:
            return found
        sent.append(offset)
        data = bytearray(bytes(found))
        data[80] ^= 1
        return type(found)((memoryview(data),))

    async with cluster(tmp_path, 2) as stage:
        await lead(stage, 3)
        monkeypatch.setattr(Log, "read", damaged)
        two = stage.members[2].partition
        stage.members[2].parts.fetchers.follow(two)
        await until(lambda: stage.state().isr == [1, 2])
        assert sent == [3, 3] and (two.log.start_offset, two.log.end_offset) == (3, END)


async def test_who_is_fenced_when_it_asks_for_the_start_looks_for_its_role(tmp_path: Path) -> None:
    """The leader has another epoch than when it refused the fetch; the controller may not reach us."""
    async with cluster(tmp_path, 2) as stage:
        await lead(stage, 3)
        two, missed = stage.members[2], list[bool]()
        follower = two.partition.following
        assert follower is not None
        question = follower.question()
        assert isinstance(question, AskRecords)
        two.parts.shared.untold.subscribe(lambda: missed.append(True))
        asked = StartRound(two.parts.shared, [(two.partition, follower, question)])
        fenced = ListOffsetsPartitionResponse(
            partition_index=two.partition.tp.partition, error_code=ErrorCode.FENCED_LEADER_EPOCH
        )
        topic = ListOffsetsTopicResponse(name=two.partition.tp.topic, partitions=[fenced])
        assert asked.take(ListOffsetsResponse(topics=[topic])).cuts == []
        assert missed == [True] and follower.question() is None


@pytest.mark.parametrize("start", [3, 10], ids=["within a batch", "between batches"])
async def test_an_epoch_in_which_nothing_was_written_does_not_keep_a_leaders_records_out(
    start: int, tmp_path: Path
) -> None:
    """Both were elected uncleanly. The log of the first is empty, and what the second has is older."""
    async with cluster(tmp_path, 2) as stage:
        await lead(stage, start)
        stage.unclean = True
        one, two = (stage.members[id].partition for id in (1, 2))
        two.log.restart_at(start)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(stage.members[1].parts.fetchers, "follow", lambda partition: None)
            await stage.elect(2, [2])
        assert two.log.epochs.entries == [(1, start)] and one.log.end_offset == END
        await stage.elect(1, [1])
        await until(lambda: stage.state().isr == [1, 2])
        assert (two.log.start_offset, two.log.end_offset) == (start, END)
        assert two.log.epochs.entries == [(0, start)] and two.offline is None

"""Offsets that producers commit in transactions: unseen until the marker, then seen; or never."""

import asyncio
from pathlib import Path
from random import Random

import pytest

from strandline.base.types import TopicPartition
from strandline.broker.groups.offset_loading import LoadedOffsets
from strandline.broker.groups.offsets import CommittedOffsets, GroupOffset
from strandline.broker.groups.transactional_commits import Producer
from strandline.broker.metadata.cache import Picture
from strandline.broker.replicas.verification_guards import Guard
from strandline.protocol.batches import headers, read_header
from strandline.protocol.errors import ErrorCode
from strandline.storage.log.log import Log
from tests.broker.cleaning_harness import Stage as Cleaning
from tests.broker.cleaning_harness import cleaning
from tests.broker.group_harness import SIMPLE, Partition, Stage, plays
from tests.broker.test_group_forgetting import (
    as_a_successor_has_it,
    commit,
    delete_offsets,
    expire,
    kept,
    stable,
    turns,
    written,
)

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
ANN, BOB = 7, 8  # producers


@pytest.fixture(autouse=True)
def short_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strandline.broker.groups.forgetting.PAY_AGAIN_S", (0.02, 0.02))


def pend(
    stage: Stage,
    *partitions: TopicPartition,
    producer: int = ANN,
    offset: int = 7,
    group: str = "g",
    member: tuple = SIMPLE,
    name: str = "tx",
) -> list[ErrorCode]:
    told: list[ErrorCode] = []
    one = GroupOffset(offset=offset, leader_epoch=0, metadata="", commit_ms=stage.clock.ms)
    stage.groups.commit_in_transaction(
        group, member, Producer(name, producer, 0), dict.fromkeys(partitions, one), told.append
    )
    return told


def unsettled(stage: Stage) -> set[TopicPartition]:
    held = stage.groups.find("g")
    return held.offsets.unsettled if held is not None else set()


# Markers


@plays
async def test_offsets_are_unseen_until_the_marker_is_committed_and_seen_from_then_on(stage: Stage) -> None:
    told = pend(stage, T0, T1)
    stage.commit()
    assert told == [ErrorCode.NONE] and kept(stage) == {} and unsettled(stage) == {T0, T1}
    assert await as_a_successor_has_it(stage) == {}
    stage.end_transaction(ANN, committed=True)
    assert kept(stage) == {}, "the marker is in our log only"
    stage.commit()
    assert kept(stage) == await as_a_successor_has_it(stage) == {T0: 7, T1: 7}
    assert not unsettled(stage)
    assert stage.groups.metrics()["offset-commit-count"] == 2


@plays
async def test_nobodys_transaction_is_none(stage: Stage) -> None:
    """Where coordinators are not asked: no marker would come, and readers of stable offsets would wait."""
    before = stage.log.end_offset
    assert pend(stage, T0, producer=-1) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING]
    assert pend(stage, T0, producer=-1, name="") == [ErrorCode.INVALID_REQUEST], "as by Kafka's coordinators"
    assert stage.log.end_offset == before and not unsettled(stage)


@plays
async def test_they_are_written_as_part_of_the_producers_transaction(stage: Stage) -> None:
    pend(stage, T0)
    ((_, header),) = headers(stage.log.batches[-1][1])
    assert header.is_transactional and not header.is_control
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (ANN, 0, -1)


@plays
async def test_an_aborted_transaction_leaves_nothing_behind(stage: Stage) -> None:
    commit(stage, T0, offset=3)
    pend(stage, T0, U0)
    stage.commit()
    stage.end_transaction(ANN, committed=False)
    stage.commit()
    assert kept(stage) == await as_a_successor_has_it(stage) == {T0: 3} and not unsettled(stage)
    stage.end_transaction(ANN, committed=True)
    stage.commit()
    assert kept(stage) == await as_a_successor_has_it(stage) == {T0: 3}, "there is nothing left to commit"


@plays
async def test_a_group_of_which_only_aborted_transactions_are_told_does_not_exist(stage: Stage) -> None:
    pend(stage, T0)
    stage.commit()
    stage.end_transaction(ANN, committed=False)
    stage.commit()
    await expire(stage)
    assert stage.groups.find("g") is None
    successor = await stage.successor()
    assert successor.groups.all_groups() == []
    await successor.groups.stop()


@plays
async def test_the_later_record_wins_whichever_is_seen_later(stage: Stage) -> None:
    pend(stage, T0, U0, offset=1)
    commit(stage, T0, offset=2)
    commit(stage, T1, offset=3)
    pend(stage, T1, producer=BOB, offset=4)
    pend(stage, U0, producer=BOB, offset=5)
    stage.commit()
    assert kept(stage) == {T0: 2, T1: 3}
    stage.end_transaction(BOB, committed=True)
    stage.end_transaction(ANN, committed=True)
    stage.commit()
    assert kept(stage) == await as_a_successor_has_it(stage) == {T0: 2, T1: 4, U0: 5}


@plays
async def test_a_transaction_may_commit_several_times_and_for_several_groups(stage: Stage) -> None:
    pend(stage, T0, offset=1)
    pend(stage, T0, group="h", offset=2)
    pend(stage, T0, offset=3)
    stage.commit()
    stage.end_transaction(ANN, committed=True)
    stage.commit()
    assert kept(stage) == await as_a_successor_has_it(stage) == {T0: 3}
    assert kept(stage, "h") == await as_a_successor_has_it(stage, "h") == {T0: 2}


@plays
async def test_a_marker_says_nothing_of_the_next_transaction(stage: Stage) -> None:
    """It is written, but not committed yet, when the producer writes again."""
    pend(stage, T0, offset=1)
    stage.end_transaction(ANN, committed=True)
    pend(stage, T1, offset=2)
    stage.commit()
    assert kept(stage) == await as_a_successor_has_it(stage) == {T0: 1} and unsettled(stage) == {T1}
    stage.end_transaction(ANN, committed=False)
    stage.commit()
    assert kept(stage) == await as_a_successor_has_it(stage) == {T0: 1} and not unsettled(stage)


# Trouble


@plays
async def test_whoever_coordinates_when_the_marker_comes_applies_it(stage: Stage) -> None:
    """The old coordinator ended between the commit of the transaction and its marker here."""
    pend(stage, T0)
    stage.commit()
    stage.groups.on_resigned(stage.log.partition)
    successor = await stage.successor()
    assert kept(successor) == {} and unsettled(successor) == {T0}
    successor.end_transaction(ANN, committed=True)
    successor.commit()
    assert kept(successor) == await as_a_successor_has_it(successor) == {T0: 7}
    stage.groups.on_transaction_ended(stage.log.partition, ANN, True, 0)  # it comes too late
    await successor.groups.stop()


@plays
async def test_a_marker_may_be_committed_while_the_log_is_read(stage: Stage) -> None:
    pend(stage, T0)
    stage.commit()
    successor = Stage(stage.config, stage.log, stage.clock)
    successor.groups.on_leading(Partition(stage.log))
    await asyncio.sleep(0)  # how far it will read is settled now
    successor.end_transaction(ANN, committed=True)
    successor.commit()
    assert successor.groups.is_loading
    while successor.groups.is_loading:
        await asyncio.sleep(0)
    assert kept(successor) == {T0: 7} and not unsettled(successor)
    await successor.groups.stop()


@plays
async def test_what_the_log_refuses_is_not_pending(stage: Stage) -> None:
    pend(stage, T0, offset=1)
    stage.commit()
    stage.refuses = ErrorCode.INVALID_PRODUCER_EPOCH
    assert pend(stage, T0, T1, offset=2) == [ErrorCode.INVALID_PRODUCER_EPOCH], "a zombie"
    assert unsettled(stage) == {T0}
    stage.refuses = None
    stage.end_transaction(ANN, committed=True)
    stage.commit()
    assert kept(stage) == await as_a_successor_has_it(stage) == {T0: 1}


@plays
async def test_what_is_not_acknowledged_in_time_is_in_the_log_and_so_in_the_transaction(stage: Stage) -> None:
    told = pend(stage, T0)
    stage.commit(ErrorCode.REQUEST_TIMED_OUT)
    assert told == [ErrorCode.COORDINATOR_NOT_AVAILABLE] and unsettled(stage) == {T0}
    stage.end_transaction(ANN, committed=True)
    stage.commit()
    assert kept(stage) == await as_a_successor_has_it(stage) == {T0: 7}


@plays
async def test_only_members_may_name_a_member(stage: Stage) -> None:
    assert pend(stage, T0, member=("nobody", None, 1)) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert stage.groups.find("g") is None
    member = await stable(stage, "t")
    for named, code in (
        ((member, None, 0), ErrorCode.ILLEGAL_GENERATION),
        (("nobody", None, 1), ErrorCode.UNKNOWN_MEMBER_ID),
    ):
        assert pend(stage, T0, member=named) == [code]
    assert not unsettled(stage)
    for named in ((member, None, 1), SIMPLE):
        told = pend(stage, T0, member=named)
        stage.commit()
        assert told == [ErrorCode.NONE]


# Verification


@plays
async def test_nothing_is_written_before_the_coordinator_has_said_that_it_is_part(stage: Stage) -> None:
    stage.partition.guard = guard = Guard(0, -1)
    told = pend(stage, T0)
    assert stage.asked == [("tx", ANN, 0)] and not stage.waiting and not unsettled(stage)
    stage.verdict.set_result({stage.log.partition: ErrorCode.NONE})
    await turns()
    assert stage.guards == [guard] and unsettled(stage) == {T0}
    stage.commit()
    assert told == [ErrorCode.NONE]
    stage.partition.guard = None  # the transaction has begun here
    pend(stage, T1)
    assert len(stage.asked) == 1 and unsettled(stage) == {T0, T1}


@plays
async def test_nothing_is_written_of_what_is_no_part_of_a_transaction(stage: Stage) -> None:
    """A client asks again without a look for the group's coordinator, if a transaction's cannot say."""
    stage.partition.guard = Guard(0, -1)
    for code, hears in (
        (ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.NETWORK_EXCEPTION, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
    ):
        told = pend(stage, T0)
        stage.verdict.set_result({stage.log.partition: code})
        await turns()
        assert told == [hears]
    assert not stage.log.batches and stage.groups.find("g") is None


@plays
async def test_what_has_changed_while_the_coordinator_was_asked_counts(stage: Stage) -> None:
    stage.partition.guard = Guard(0, -1)
    member = await stable(stage, "t")
    told = pend(stage, T0, member=(member, None, 1))
    stage.groups.leave("g", [(member, None)])
    stage.verdict.set_result({stage.log.partition: ErrorCode.NONE})
    await turns()
    assert told == [ErrorCode.UNKNOWN_MEMBER_ID]
    told = pend(stage, T0)
    stage.picture = Picture(is_whole=True, is_said_whole=True)
    stage.verdict.set_result({stage.log.partition: ErrorCode.NONE})
    await turns()
    assert told == [ErrorCode.COORDINATOR_NOT_AVAILABLE] and not unsettled(stage), "its topic is deleted"
    stage.picture = Picture()
    told = pend(stage, T0)
    stage.groups.on_resigned(stage.log.partition)
    stage.verdict.set_result({stage.log.partition: ErrorCode.NONE})
    await turns()
    assert told == [ErrorCode.NOT_COORDINATOR] and not unsettled_in_the_log(stage)


def unsettled_in_the_log(stage: Stage) -> bool:
    return any(header.is_transactional for _, batch in stage.log.batches for _, header in headers(batch))


# What is forgotten meanwhile


@plays
async def test_what_is_pending_does_not_expire_nor_does_its_group(stage: Stage) -> None:
    commit(stage, T0, offset=1)
    pend(stage, T0, offset=2)
    pend(stage, T0, group="h")
    stage.commit()
    await expire(stage)
    assert not stage.waiting and kept(stage) == {T0: 1} and stage.groups.find("h") is not None
    stage.end_transaction(ANN, committed=True)
    stage.commit()
    assert kept(stage) == await as_a_successor_has_it(stage) == {T0: 2}
    assert kept(stage, "h") == await as_a_successor_has_it(stage, "h") == {T0: 7}


@plays
async def test_a_deleted_group_does_not_come_back_with_the_transaction(stage: Stage) -> None:
    commit(stage, T0, offset=1)
    pend(stage, T0, T1, offset=2)
    stage.commit()
    told: list[ErrorCode] = []
    stage.groups.delete("g", told.append)
    assert pend(stage, U0) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    stage.commit()
    assert told == [ErrorCode.NONE]
    stage.end_transaction(ANN, committed=True)
    stage.commit()
    assert stage.groups.find("g") is None and await as_a_successor_has_it(stage) == {}


@plays
async def test_a_deletion_that_is_refused_leaves_the_transaction_as_it_was(stage: Stage) -> None:
    pend(stage, T0)
    stage.commit()
    stage.groups.delete("g", lambda _: None)
    stage.commit(ErrorCode.NOT_ENOUGH_REPLICAS)
    stage.log.cut_last()  # what was refused is in no log
    stage.end_transaction(ANN, committed=True)
    stage.commit()
    assert kept(stage) == await as_a_successor_has_it(stage) == {T0: 7}


@plays
async def test_offsets_that_were_deleted_do_not_come_back_with_the_transaction(stage: Stage) -> None:
    pend(stage, T0, T1, offset=1)
    told = delete_offsets(stage, T0)
    stage.commit()
    assert told == [(ErrorCode.NONE, {})] and unsettled(stage) == {T1}
    pend(stage, U0, offset=2)
    stage.commit()
    stage.end_transaction(ANN, committed=True)
    stage.commit()
    assert kept(stage) == await as_a_successor_has_it(stage) == {T1: 1, U0: 2}


@plays
async def test_a_deleted_topics_offsets_do_not_come_back_with_the_transaction(stage: Stage) -> None:
    pend(stage, T0, U0)
    stage.commit()
    stage.groups.partitions_deleted([T0])
    assert unsettled(stage) == {U0}
    await turns()
    stage.commit()
    stage.end_transaction(ANN, committed=True)
    stage.commit()
    assert kept(stage) == await as_a_successor_has_it(stage) == {U0: 7}


@plays
async def test_what_is_deleted_while_the_log_is_read_is_no_longer_pending(stage: Stage) -> None:
    pend(stage, T0, U0)
    stage.commit()
    successor = Stage(stage.config, stage.log, stage.clock)
    successor.groups.on_leading(Partition(stage.log))
    successor.groups.partitions_deleted([T0])
    while successor.groups.is_loading:
        await asyncio.sleep(0)
    assert unsettled(successor) == {U0}
    await successor.groups.stop()


@plays
async def test_what_was_deleted_before_the_log_was_read_is_no_longer_pending(stage: Stage) -> None:
    pend(stage, T0)
    stage.commit()
    successor = Stage(stage.config, stage.log, stage.clock)
    successor.picture = Picture(is_whole=True, is_said_whole=True)
    await successor.lead()
    assert not unsettled(successor)
    successor.end_transaction(ANN, committed=True)
    successor.commit()
    await turns()
    successor.commit()
    assert kept(successor) == await as_a_successor_has_it(successor) == {}
    await successor.groups.stop()


async def owing(stage: Stage) -> None:
    """The tombstone of a deleted t-0 is owed while a transaction has an offset of the new t-0."""
    commit(stage, T0, offset=100)
    stage.commit()
    stage.groups.partitions_deleted([T0])
    await turns()
    stage.commit(ErrorCode.NOT_ENOUGH_REPLICAS)
    stage.log.cut_last()
    pend(stage, T0, offset=1)
    stage.commit()
    await stage.groups.forgetting.expire(asyncio.get_running_loop().time())
    await turns()
    assert not stage.waiting, "it would void what the transaction writes"


@plays
async def test_a_tombstone_that_is_owed_waits_for_the_transaction_and_is_not_needed(stage: Stage) -> None:
    await owing(stage)
    stage.end_transaction(ANN, committed=True)
    stage.commit()
    await turns()
    assert not stage.waiting, "the new offset hides the old one"
    assert kept(stage) == await as_a_successor_has_it(stage) == {T0: 1}


@plays
async def test_a_tombstone_that_is_owed_waits_for_the_transaction_and_is_needed(stage: Stage) -> None:
    await owing(stage)
    stage.end_transaction(ANN, committed=False)
    stage.commit()
    await written(stage)
    stage.commit()
    assert kept(stage) == await as_a_successor_has_it(stage) == {}


# Anything


def as_loaded(batches: bytes) -> tuple[dict[TopicPartition, int], set[TopicPartition]]:
    """What a coordinator that reads this log finds: offsets that count, and partitions with pending ones."""
    loaded = LoadedOffsets()
    list(loaded.feed(batches))
    found = loaded.offsets.get("g", CommittedOffsets())
    return {tp: one.offset for tp in found if (one := found.get(tp)) is not None}, found.pending


class Crowd:
    """Producers, consumers and administrators without a plan, and what the log alone says of it."""

    def __init__(self, stage: Stage, seed: int) -> None:
        self.stage, self.dice = stage, Random(seed)
        self.told: list[tuple[str, int, TopicPartition | None, int]] = []  # in the order of the log

    def place(self) -> TopicPartition:
        return self.dice.choice((T0, T1, U0))

    async def step(self) -> None:
        dice, stage, number = self.dice, self.stage, len(self.told)
        match dice.randrange(10):
            case 0 | 1:
                commit(stage, place := self.place(), offset=number)
                self.told.append(("commits", -1, place, number))
            case 2 | 3 | 4:
                producer = dice.choice((ANN, BOB))
                if any(producer == each for each, _, _ in stage.markers):
                    stage.commit()  # its coordinator lets none begin before the last has ended everywhere
                pend(stage, place := self.place(), producer=producer, offset=number)
                self.told.append(("commits", producer, place, number))
            case 5 | 6:
                producer, committed = dice.choice((ANN, BOB)), dice.random() < 0.6
                stage.end_transaction(producer, committed)
                self.told.append(("committed" if committed else "aborted", producer, None, number))
            case 7:
                size = len(stage.waiting)
                delete_offsets(stage, place := self.place())
                if len(stage.waiting) > size:
                    self.told.append(("deletes", -1, place, number))
            case 8:
                stage.commit()
            case 9:
                stage.commit()
                stage.groups.on_resigned(stage.log.partition)
                self.stage = await stage.successor()
                await stage.groups.stop()

    def as_the_log_has_it(self) -> dict[TopicPartition, int]:
        """The last record of each partition that is in no transaction, or in one that was committed."""
        found: dict[TopicPartition, int] = {}
        for at, (what, producer, place, number) in enumerate(self.told):
            if place is None:
                continue
            ends = (each[0] for each in self.told[at:] if each[0].endswith("ed") and each[1] == producer)
            if producer >= 0 and next(ends, "open") != "committed":
                continue
            if what == "deletes":
                found.pop(place, None)
            else:
                found[place] = number
        return found


@pytest.mark.parametrize("seed", range(40))
async def test_memory_and_log_never_part_ways(seed: int) -> None:
    crowd = Crowd(await Stage().lead(), seed)
    for _ in range(60):
        await crowd.step()
        if crowd.dice.random() < 0.2:
            crowd.stage.commit()
            expected = crowd.as_the_log_has_it()
            assert kept(crowd.stage) == expected
            assert await as_a_successor_has_it(crowd.stage) == expected
    await crowd.stage.groups.stop()


def whole(log: Log) -> bytes:
    found, at = b"", 0
    while data := bytes(log.read(at, 1 << 30, log.end_offset)):
        found += data
        *_, (_, header) = headers(data)
        at = header.next_offset
    return found


@pytest.mark.parametrize("seed", range(4))
async def test_compaction_changes_nothing(seed: int, tmp_path: Path) -> None:
    crowd = Crowd(await Stage().lead(), seed)
    for _ in range(250):
        await crowd.step()
    await crowd.stage.groups.stop()
    place = Cleaning(tmp_path, segment_bytes=700, min_cleanable_dirty_ratio=0.01, delete_retention_ms=0)
    written = b""
    for _, data in crowd.stage.log.batches:
        batch = bytearray(data)
        place.log.append(batch, read_header(batch), 0, place.clock.now)
        place.commit()
        written += batch
        if crowd.dice.random() < 0.1:
            place.clock.now += 1
            async with cleaning(place) as compactor:
                await compactor.clean_filthiest()
            assert as_loaded(whole(place.log)) == as_loaded(written)
    assert len(whole(place.log)) < 0.8 * len(written)

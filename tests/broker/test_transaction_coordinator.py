"""The coordinator round the rules: its log, those who wait, passes, moves from broker to broker."""

import asyncio

import pytest
import structlog

from strandline.base.types import TopicPartition
from strandline.broker.transactions import coordinator as shell
from strandline.broker.transactions.records import read_key, read_value
from strandline.broker.transactions.state import Answer, ProducerIdentity
from strandline.protocol.batches import seal
from strandline.protocol.errors import (
    CoordinatorLoadInProgress,
    ErrorCode,
    InvalidRequest,
    InvalidTransactionTimeout,
    NotCoordinator,
    NotEnoughReplicas,
)
from strandline.protocol.records import iterate
from tests.broker.coordinator_harness import TP, TransactionStage, X, Y, plays

FINE = Answer(ErrorCode.NONE)


def errors(told: list[Answer]) -> list[str]:
    return [answer.error.name for answer in told]


@plays
async def test_a_transaction_runs(stage: TransactionStage) -> None:
    """Every answer waits until its record is committed; the outcome goes to every partition."""
    asked = await stage.ask_init()
    assert asked == []
    stage.commit()
    assert asked == [Answer(ErrorCode.NONE, ProducerIdentity(7, 0))]
    producer = asked[0].producer
    added = stage.add(producer, X, Y)
    assert added == []
    stage.commit()
    assert added == [FINE] and stage.state() == "Ongoing"
    ended = stage.end(producer)
    assert ended == [] and not stage.markers.sent, "nobody is told before it is decided"
    stage.commit()
    assert ended == [FINE] and stage.state() == "PrepareCommit"
    (errand,) = stage.markers.sent
    assert errand.marker == (True, 1) and errand.marking.waiting == {X, Y}
    stage.deliver()
    assert stage.state() == "CompleteCommit"
    assert stage.coordinator.metrics()["transaction-commit-count"] == 1
    records = [record for _, batch in stage.log.batches for record in iterate(batch)]
    assert {read_key(record.key or b"") for record in records} == {"t"}
    assert [str(read_value(record.value or b"").state) for record in records] == [
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "CompleteCommit",
    ]


@plays
async def test_two_who_begin_at_once(stage: TransactionStage) -> None:
    """Both look for a producer id; only one may begin, the other asks again."""
    stage.given_ids.clear()
    told: list[list[Answer]] = []

    async def begin() -> None:
        told.append(await stage.ask_init())

    async with asyncio.TaskGroup() as both:
        both.create_task(begin())
        both.create_task(begin())
        await asyncio.sleep(0)
        stage.given_ids.set()
    stage.commit()
    assert sorted(answer.error.name for answers in told for answer in answers) == [
        "CONCURRENT_TRANSACTIONS",
        "NONE",
    ]
    assert (await stage.init()).epoch == 1


@plays
async def test_the_partition_moves_while_an_id_is_looked_for(stage: TransactionStage) -> None:
    """What was checked before the wait is checked again after it."""
    stage.given_ids.clear()
    asking = asyncio.ensure_future(stage.ask_init())
    await asyncio.sleep(0)
    stage.resign()
    stage.given_ids.set()
    with pytest.raises(NotCoordinator):
        await asking


@plays
async def test_who_waits_too_long_is_answered(stage: TransactionStage) -> None:
    """The record may still be committed; then the transition is made."""
    producer = await stage.init()
    added = stage.add(producer, X)
    stage.late()
    assert errors(added) == ["COORDINATOR_NOT_AVAILABLE"]
    assert errors(stage.add(producer, X)) == ["CONCURRENT_TRANSACTIONS"]
    stage.commit()
    assert errors(added) == ["COORDINATOR_NOT_AVAILABLE"], "a request is answered once"
    assert stage.state() == "Ongoing" and errors(stage.add(producer, X)) == ["NONE"]


@plays
async def test_a_refused_write_changes_nothing(stage: TransactionStage) -> None:
    stage.refuses = NotEnoughReplicas()
    assert errors(await stage.ask_init()) == ["COORDINATOR_NOT_AVAILABLE"]
    assert stage.coordinator.find("t") is None
    stage.refuses = None
    producer = await stage.init()
    stage.refuses = NotEnoughReplicas()
    assert errors(stage.add(producer, X)) == ["COORDINATOR_NOT_AVAILABLE"]
    assert stage.state() == "Empty"


@plays
async def test_the_end_is_written_until_it_is_there(stage: TransactionStage) -> None:
    """All partitions have their markers, but too few replicas are in sync for the last record."""
    producer = await stage.init()
    stage.add(producer, X)
    stage.commit()
    stage.end(producer)
    stage.commit()
    stage.refuses = NotEnoughReplicas()
    stage.deliver()
    assert stage.state() == "PrepareCommit"
    stage.refuses = None
    async with asyncio.timeout(5 * shell.RETRY_S):
        while not stage.waiting:
            await asyncio.sleep(shell.RETRY_S / 10)
    stage.commit()
    assert stage.state() == "CompleteCommit"


@plays
async def test_the_next_coordinator_tells_what_was_decided(stage: TransactionStage) -> None:
    """In its own epoch, to every partition; what comes back to the old one counts for nothing."""
    producer = await stage.init()
    stage.add(producer, X, Y)
    stage.commit()
    stage.end(producer, committed=False)
    stage.commit()
    old = stage.markers.sent[0]
    old.heard(X, ErrorCode.NONE)
    stage.resign()
    assert old.marking.is_over, "nothing more of it is sent"
    next = await stage.successor()
    assert next.state() == "PrepareAbort"
    (errand,) = next.markers.sent
    assert errand.marker == (False, 2) and errand.marking.waiting == {X, Y}
    old.heard(Y, ErrorCode.NONE)
    assert next.state() == "PrepareAbort"
    next.deliver()
    assert next.state() == "CompleteAbort"
    with pytest.raises(NotCoordinator):
        stage.state()
    await next.coordinator.stop()


@plays
async def test_what_is_read_counts_once_it_is_committed(stage: TransactionStage) -> None:
    """The old leader died with a decision that only the new one has. It may be lost with that one, too."""
    producer = await stage.init()
    stage.add(producer, X)
    stage.commit()
    stage.end(producer)
    end = stage.log.end_offset
    next = await stage.successor(high_watermark=end - 1)
    for _ in range(10):
        await asyncio.sleep(0)
    assert not next.markers.sent
    with pytest.raises(CoordinatorLoadInProgress):
        next.state()
    ((offset, told),) = next.loads
    assert offset == end
    told(ErrorCode.NONE)
    assert next.state() == "PrepareCommit" and len(next.markers.sent) == 1
    await next.coordinator.stop()


@plays
async def test_a_move_ends_the_wait(stage: TransactionStage) -> None:
    """Whoever waits is sent to look for the new coordinator; a late commit of the old one changes nothing."""
    producer = await stage.init()
    added = stage.add(producer, X)
    ((on_outcome, _),) = stage.waiting
    stage.coordinator.on_resigned(TP)
    assert errors(added) == ["NOT_COORDINATOR"]
    stage.coordinator.on_leading(stage.partition)
    while stage.coordinator.is_loading:
        await asyncio.sleep(0)
    on_outcome(ErrorCode.NONE)
    assert stage.state() == "Ongoing", "that is what the log says"
    assert errors(added) == ["NOT_COORDINATOR"]


@plays
async def test_whoever_may_have_a_successor_begins_nothing(stage: TransactionStage) -> None:
    producer = await stage.init()
    stage.partition.may_be_replaced = True
    with pytest.raises(NotCoordinator):
        stage.add(producer, X)
    stage.partition.may_be_replaced = False
    stage.add(producer, X)
    stage.commit()
    assert stage.state() == "Ongoing"
    stage.partition.changing = True  # its successor may have ended the transaction long ago
    with pytest.raises(NotCoordinator):
        stage.coordinator.verify("t", *producer, [X])


@plays
async def test_markers_go_out_again_in_a_new_epoch_of_the_same_leader(stage: TransactionStage) -> None:
    producer = await stage.init()
    stage.add(producer, X, Y)
    stage.commit()
    stage.end(producer)
    stage.commit()
    stage.markers.sent[0].heard(X, ErrorCode.TRANSACTION_COORDINATOR_FENCED)
    assert stage.markers.sent[0].marking.is_over
    stage.partition.leader_epoch = 5
    stage.coordinator.on_leading(stage.partition)
    assert stage.markers.sent[1].marker == (True, 5)
    stage.deliver()
    assert stage.state() == "CompleteCommit"


@plays
async def test_passes(stage: TransactionStage) -> None:
    """What is open for too long is aborted, what is unused for too long is forgotten."""
    idle, busy = await stage.init("idle"), await stage.init("busy")
    stage.add(busy, X, name="busy")
    stage.commit()
    stage.clock.ms += 60_001
    await stage.coordinator.time_out()
    stage.commit()
    assert stage.state("busy") == "PrepareAbort" and stage.state("idle") == "Empty"
    assert errors(stage.end(busy, name="busy")) == ["PRODUCER_FENCED"]
    stage.deliver()
    stage.clock.ms += stage.config.id_expiration_ms - 60_000
    await stage.coordinator.expire()
    assert len(stage.waiting) == 1, "tombstones share a batch"
    assert errors(await stage.ask_init("idle")) == ["CONCURRENT_TRANSACTIONS"]
    stage.commit()
    assert stage.coordinator.find("idle") is None and stage.state("busy") == "CompleteAbort"
    assert errors(stage.add(idle, X, name="idle")) == ["INVALID_PRODUCER_ID_MAPPING"]
    counts = stage.coordinator.metrics()
    assert (counts["transactional-id-expiration-count"], counts["transaction-timeout-count"]) == (1, 1)
    next = await stage.successor()
    assert next.coordinator.find("idle") is None and next.state("busy") == "CompleteAbort"
    await next.coordinator.stop()


@plays
async def test_a_time_out_is_told_once(stage: TransactionStage) -> None:
    """However many passes it takes until the abort is in the log: once for each transaction."""
    producer = await stage.init()
    stage.add(producer, X)
    stage.commit()
    stage.clock.ms += 60_001
    with structlog.testing.capture_logs() as told:
        stage.refuses = NotEnoughReplicas()
        await stage.coordinator.time_out()
        await stage.coordinator.time_out()
        assert stage.state() == "Ongoing" and not told, "nothing is decided"
        stage.refuses = None
        await stage.coordinator.time_out()
        stage.late()
        await stage.coordinator.time_out()
        stage.commit()
        stage.deliver()
        await stage.coordinator.time_out()
    assert [(one["event"], one["transactional_id"]) for one in told] == [("transaction_timed_out", "t")]
    assert stage.coordinator.metrics()["transaction-timeout-count"] == 1
    with structlog.testing.capture_logs() as told:
        stage.add(await stage.init(), X)
        stage.commit()
        await stage.ask_init()
        stage.commit()
        stage.deliver()
        stage.clock.ms += 60_001
        await stage.coordinator.time_out()
    assert not told, "a transaction that its successor has ended has not timed out"


@plays
async def test_questions_that_make_no_sense(stage: TransactionStage) -> None:
    with pytest.raises(InvalidRequest):
        await stage.ask_init("")
    for timeout_ms in (0, -1, stage.config.timeout_ms_max + 1):
        with pytest.raises(InvalidTransactionTimeout, match=r"transaction\.max\.timeout\.ms"):
            await stage.ask_init(timeout_ms=timeout_ms)
    nobody = ProducerIdentity(7, 0)
    assert errors(stage.add(nobody, X)) == errors(stage.end(nobody)) == ["INVALID_PRODUCER_ID_MAPPING"]
    assert stage.coordinator.verify("t", 7, 0, [X]) == {X: ErrorCode.INVALID_PRODUCER_ID_MAPPING}


@plays
async def test_verification(stage: TransactionStage) -> None:
    producer = await stage.init()
    stage.add(producer, X)
    assert stage.coordinator.verify("t", *producer, [X]) == {X: ErrorCode.TRANSACTION_ABORTABLE}
    stage.commit()
    assert stage.coordinator.verify("t", *producer, [X, Y]) == {
        X: ErrorCode.NONE,
        Y: ErrorCode.TRANSACTION_ABORTABLE,
    }
    stage.resign()
    with pytest.raises(NotCoordinator):
        stage.coordinator.verify("t", *producer, [X])


@plays
async def test_there_is_a_limit_of_transactional_ids(stage: TransactionStage) -> None:
    limit, shell.TRANSACTIONAL_IDS_MAX = shell.TRANSACTIONAL_IDS_MAX, 1
    try:
        await stage.init("a")
        with pytest.raises(Exception, match="its limit"):
            await stage.ask_init("b")
    finally:
        shell.TRANSACTIONAL_IDS_MAX = limit


@plays
async def test_a_damaged_record_costs_one_transactional_id(stage: TransactionStage) -> None:
    await stage.init("a")
    await stage.init("b")
    base, batch = stage.log.batches[0]
    (record,) = iterate(batch)
    assert record.value is not None
    broken = bytearray(batch)
    at = batch.index(record.value)
    broken[at + 16] = 6  # Dead, which is never stored
    seal(broken, 0, len(broken))
    stage.log.batches[0] = (base, bytes(broken))
    next = await stage.successor()
    assert next.coordinator.find("a") is None and next.state("b") == "Empty"
    await next.coordinator.stop()


@plays
async def test_other_topics_are_of_no_concern(stage: TransactionStage) -> None:
    stage.coordinator.on_resigned(TopicPartition("x", 0))
    assert (await stage.init()).epoch == 0

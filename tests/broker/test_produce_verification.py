"""No batch begins a transaction in a partition unless its coordinator knows of it (KIP-890 part 1)."""

import asyncio
from pathlib import Path

import pytest

from strandline.broker.replicas.local_appends import append_local
from strandline.broker.replicas.marker_writes import write_marker
from strandline.broker.replicas.verification_guards import EPOCHS_MAX, GUARDS_MAX, VerificationGuards
from strandline.protocol.batches import read_header
from strandline.protocol.errors import ErrorCode, InvalidTxnState, OutOfOrderSequenceNumber
from strandline.protocol.markers import EndMarker
from tests.broker.replica_harness import TP, ask, batch, outcome, produce, until
from tests.broker.transaction_harness import PRODUCER, Oracle, Scene, code_of, scene, sent, transactional
from tests.patience import HANG_S


async def send(play: Scene, records: bytes, version: int | None = None) -> tuple[int, int]:
    return outcome(await ask(play.client, sent(records), version))


async def test_the_first_batch_of_a_transaction_is_asked_about_and_no_other(tmp_path: Path) -> None:
    async with scene(tmp_path, isr=(1,)) as play:
        oracle = Oracle(play)
        assert await send(play, transactional(b"a")) == (0, 0)
        assert oracle.asked == [("tx", PRODUCER, 0)]
        oracle.says = ErrorCode.INVALID_TXN_STATE
        assert await send(play, transactional(b"b", sequence=1)) == (0, 1)
        assert await send(play, transactional(b"a")) == (0, 0), "a copy of what is here"
        assert outcome(await ask(play.client, produce(batch(b"plain")))) == (0, 2)
        assert await play.marked() == 0
        assert (await send(play, transactional(b"c", sequence=2), 10))[0] == ErrorCode.INVALID_TXN_STATE
        assert len(oracle.asked) == 2 and play.partition.log.end_offset == 4


@pytest.mark.parametrize(
    ("said", "version", "answered"),
    [
        (ErrorCode.INVALID_TXN_STATE, 10, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.TRANSACTION_ABORTABLE, 10, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.TRANSACTION_ABORTABLE, 11, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.INVALID_PRODUCER_EPOCH, 11, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, 11, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (ErrorCode.CONCURRENT_TRANSACTIONS, 11, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 11, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, 11, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.NOT_COORDINATOR, 11, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.NETWORK_EXCEPTION, 11, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 11, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.OPERATION_NOT_ATTEMPTED, 11, ErrorCode.NOT_ENOUGH_REPLICAS),
    ],
)
async def test_what_a_producer_is_told(
    tmp_path: Path, said: ErrorCode, version: int, answered: ErrorCode
) -> None:
    """Trouble that passes has an error upon which every producer sends its batch again."""

    async with scene(tmp_path, isr=(1,)) as play:
        Oracle(play).says = said
        assert await send(play, transactional(b"a"), version) == (answered, -1)
        assert play.partition.log.end_offset == 0


async def test_a_held_batch_keeps_its_place_before_those_behind_it(tmp_path: Path) -> None:
    async with scene(tmp_path, isr=(1,)) as play:
        oracle = Oracle(play)
        oracle.says = None
        soon = asyncio.get_running_loop().time() + HANG_S
        both = [
            play.client.submit(sent(transactional(value, sequence=number)), deadline=soon)
            for number, value in enumerate((b"a", b"b"))
        ]
        await until(lambda: oracle.is_waiting)
        assert play.partition.log.end_offset == 0
        oracle.tell(0)
        assert [outcome(await one) for one in both] == [(0, 0), (0, 1)]
        assert len(oracle.asked) == 1


async def test_a_marker_that_comes_meanwhile_makes_the_answer_void(tmp_path: Path) -> None:
    """The coordinator said yes, aborted the transaction, and its marker overtook the answer: the batch would
    open a transaction that nobody ends.
    """

    async with scene(tmp_path, isr=(1,)) as play:
        oracle = Oracle(play)
        oracle.says = None
        soon = asyncio.get_running_loop().time() + HANG_S
        late = play.client.submit(sent(transactional(b"late")), deadline=soon)
        await until(lambda: oracle.is_waiting)
        assert await play.marked(committed=False) == 0
        oracle.tell(0)
        assert outcome(await late) == (ErrorCode.INVALID_TXN_STATE, -1)
        assert play.partition.log.end_offset == 1 and play.partition.last_stable_offset == 1


async def test_a_marker_that_need_not_be_written_again_makes_it_void_too(tmp_path: Path) -> None:
    """Someone has aborted by hand, the batch is asked about, and then the coordinator aborts."""

    async with scene(tmp_path) as play:
        await ask(play.client, sent(transactional(b"a")))
        by_hand = play.marks(committed=False)
        await until(lambda: play.partition.log.end_offset == 2)
        oracle = Oracle(play)
        oracle.says = None
        soon = asyncio.get_running_loop().time() + HANG_S
        late = play.client.submit(sent(transactional(b"late", sequence=1)), deadline=soon)
        await until(lambda: oracle.is_waiting)
        deadline = asyncio.get_running_loop().time() + HANG_S
        told: list[int] = []
        end = EndMarker(committed=False, coordinator_epoch=0)
        write_marker(play.member.replicas.get, TP, PRODUCER, 0, end, told.append, deadline)
        oracle.tell(0)
        assert outcome(await late) == (ErrorCode.INVALID_TXN_STATE, -1)
        assert play.partition.log.end_offset == 2
        await play.acknowledge(2)
        assert (code_of(await by_hand), told) == (0, [0])


async def test_who_no_longer_leads_says_so_whatever_the_coordinator_said(tmp_path: Path) -> None:
    async with scene(tmp_path) as play:
        oracle = Oracle(play)
        oracle.says = None
        soon = asyncio.get_running_loop().time() + HANG_S
        late = play.client.submit(sent(transactional(b"late")), deadline=soon)
        await until(lambda: oracle.is_waiting)
        await play.stage.elect(2, [1, 2])
        await play.stage.elect(1, [1, 2])
        oracle.tell(0)
        assert outcome(await late)[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_a_later_batch_does_not_overtake_one_that_must_be_sent_again(tmp_path: Path) -> None:
    """A producer that is new to a partition may begin with any sequence; the earlier one would never fit."""

    async with scene(tmp_path, isr=(1,)) as play:
        oracle = Oracle(play)
        oracle.says = ErrorCode.CONCURRENT_TRANSACTIONS
        first, second = transactional(b"a"), transactional(b"b", sequence=1)
        assert (await send(play, first))[0] == ErrorCode.NOT_ENOUGH_REPLICAS
        oracle.says = 0
        assert (await send(play, second))[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER, "it is sent again, too"
        assert await send(play, first) == (0, 0)
        assert await send(play, second) == (0, 1)
        assert await play.marked() == 0
        oracle.says = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        third, fourth = (transactional(b"c", sequence=number) for number in (2, 3))
        assert (await send(play, third))[0] == ErrorCode.NOT_ENOUGH_REPLICAS
        oracle.says = 0
        assert (await send(play, fourth))[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER, "nor where it is known"
        assert [await send(play, each) for each in (third, fourth)] == [(0, 3), (0, 4)]


async def test_an_open_transaction_of_an_older_epoch_is_no_proof(tmp_path: Path) -> None:
    async with scene(tmp_path, isr=(1,)) as play:
        oracle = Oracle(play)
        assert await send(play, transactional(b"a", epoch=1)) == (0, 0)
        oracle.says = ErrorCode.INVALID_TXN_STATE
        assert (await send(play, transactional(b"b", epoch=2)))[0] == ErrorCode.TRANSACTION_ABORTABLE
        assert play.partition.log.end_offset == 1


async def test_requests_that_cannot_be_asked_about(tmp_path: Path) -> None:
    async with scene(tmp_path, isr=(1,)) as play:
        oracle = Oracle(play)
        nameless = sent(transactional(b"a"), transactional_id=None)
        assert outcome(await ask(play.client, nameless))[0] == ErrorCode.INVALID_TXN_STATE
        two = sent(transactional(b"a"))
        other = sent(transactional(b"b", producer_id=8)).topic_data[0].partition_data
        two.topic_data[0].partition_data.extend(other)
        answers = (await ask(play.client, two)).responses[0].partition_responses
        assert [one.error_code for one in answers] == [ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 2
        assert (oracle.asked, play.partition.log.end_offset) == ([], 0)
        play.member.parts.shared.verifies_transactions = False
        assert outcome(await ask(play.client, nameless)) == (0, 0), (
            "transaction.partition.verification.enable"
        )


async def test_offsets_that_a_broker_writes_are_verified_too(tmp_path: Path) -> None:
    async with scene(tmp_path, isr=(1,)) as play:
        Oracle(play)
        own = transactional(b"offset", sequence=-1)
        told: list[int] = []
        soon = asyncio.get_running_loop().time() + HANG_S
        guard = play.partition.guard_for(PRODUCER, 0)
        for proof in (None, guard):
            append_local(
                play.member.replicas.get, TP, bytearray(own), lambda code, _: told.append(code), soon, proof
            )
            play.partition.mark()
        await until(lambda: len(told) == 2)
        assert told == [ErrorCode.INVALID_TXN_STATE, ErrorCode.NONE]
        assert play.partition.guard_for(PRODUCER, 0) is None, "it has begun"


async def test_a_refused_batch_of_a_made_up_epoch_stands_in_nobodys_way(tmp_path: Path) -> None:
    async with scene(tmp_path, isr=(1,)) as play:
        oracle = Oracle(play)
        oracle.says = ErrorCode.INVALID_PRODUCER_EPOCH
        assert (await send(play, transactional(b"a", epoch=9)))[0] == ErrorCode.INVALID_PRODUCER_EPOCH
        oracle.says = 0
        assert await send(play, transactional(b"a")) == (0, 0)


def test_a_guard_is_of_the_first_batch_that_has_asked() -> None:
    """However long ago that was."""
    guards = VerificationGuards()
    guard = guards.take(PRODUCER, 0, 3)
    guards.check(read_header(transactional(b"a", sequence=3)), guard)
    with pytest.raises(OutOfOrderSequenceNumber):
        guards.check(read_header(transactional(b"b", sequence=4)), guards.take(PRODUCER, 0, 4))


def test_guards_make_room() -> None:
    guards = VerificationGuards()
    first = guards.take(PRODUCER, 1, 4)
    assert guards.take(PRODUCER, 1, 3) is first and first.lowest_sequence == 3
    newer = guards.take(PRODUCER, 2, 0)
    assert guards.take(PRODUCER, 1, 4) is first and not first.void, "each epoch has its own"
    for epoch in range(EPOCHS_MAX - 1):
        guards.take(PRODUCER, 10 + epoch, 0)
    assert (first.void, newer.void) == (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NONE)
    for number in range(GUARDS_MAX):
        guards.take(100 + number, 0, 0)
    assert (len(guards), newer.void) == (GUARDS_MAX, ErrorCode.NOT_ENOUGH_REPLICAS)
    with pytest.raises(InvalidTxnState):
        guards.check(read_header(transactional(b"a", sequence=4, epoch=1)), None)

"""What readers with read_committed are shown: whole transactions, once their end is committed."""

from pathlib import Path
from typing import Any

from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages.fetch import FetchRequest
from tests.broker.replica_harness import ask, batch, fetch, fetched, outcome, produce, until
from tests.broker.transaction_harness import (
    PRODUCER,
    aborted,
    code_of,
    ends,
    marker,
    scene,
    sent,
    transactional,
)


async def test_a_transaction_is_shown_when_its_marker_is_committed_and_not_before(tmp_path: Path) -> None:
    async with scene(tmp_path) as play:
        assert outcome(await ask(play.client, sent(transactional(b"a", b"b")))) == (0, 0)
        await play.acknowledge(2)
        assert ends(await play.read(level=0)) == (2, 0, 2), "committed records, of an open transaction"
        assert ends(await play.read()) == (2, 0, -1)
        assert (await play.listed(-1), await play.listed(-1, level=0)) == (0, 2)
        assert (await play.listed(1000), await play.listed(1000, level=0)) == (-1, 0)
        written = play.marks()
        await until(lambda: play.partition.log.end_offset == 3)
        assert ends(await play.read()) == (2, 0, -1), "the marker is in the log, but a new leader may lack it"
        assert await play.listed(-1) == 0 and not written.done()
        await play.acknowledge(3)
        assert code_of(await written) == 0
        shown = await play.read()
        assert (ends(shown), aborted(shown)) == ((3, 3, 3), [])
        assert (await play.listed(-1), await play.listed(1000)) == (3, 0)


async def test_aborted_transactions_are_named_to_those_who_read_their_records(tmp_path: Path) -> None:
    async with scene(tmp_path, isr=(1,)) as play:
        await ask(play.client, produce(batch(b"plain")))
        await ask(play.client, sent(transactional(b"a")))
        await ask(play.client, sent(transactional(b"x", producer_id=8)))
        assert await play.marked(committed=False) == 0
        held_back = await play.read()
        assert (ends(held_back), aborted(held_back)) == ((4, 2, 2), [(PRODUCER, 1)])
        assert await play.marked(producer_id=8) == 0
        shown = await play.read()
        assert (ends(shown), aborted(shown)) == ((5, 5, 5), [(PRODUCER, 1)])
        assert aborted(await play.read(1)) == [(PRODUCER, 1)]
        assert aborted(await play.read(4)) == [], "nothing of it is from there on"
        assert aborted(await play.read(5)) == [], "no records, no transactions"
        assert (await play.read(level=0)).aborted_transactions is None


async def test_a_read_names_no_transaction_beyond_the_records_it_brings(tmp_path: Path) -> None:
    """One that begins later is named when its records are."""

    async with scene(tmp_path, isr=(1,)) as play:
        for number in range(40):
            await ask(play.client, sent(transactional(b"v" * 500, sequence=number)))
            assert await play.marked(committed=False) == 0
        play.partition.log.forget_tail()
        small = await play.read(partition_max_bytes=600)
        assert ends(small)[2] <= 4
        assert len(aborted(small)) < 40 and aborted(small)[0] == (PRODUCER, 0)
        assert len(aborted(await play.read())) == 40


async def test_a_parked_reader_is_woken_by_the_end_of_a_transaction(tmp_path: Path) -> None:
    """Committed records of an open transaction do not count for min.bytes: the reader goes on waiting."""

    async with scene(tmp_path) as play:
        waiting = play.reads(0, 5_000)
        await until(lambda: play.partition.parked)
        await ask(play.follower, sent(transactional(b"a")))
        await play.acknowledge(1)
        assert play.partition.high_watermark == 1 and play.partition.parked and not waiting.done()
        written = play.marks(committed=False)
        await until(lambda: play.partition.log.end_offset == 2)
        assert not waiting.done()
        await play.acknowledge(2)
        assert code_of(await written) == 0
        shown = fetched(await waiting)
        assert (ends(shown), aborted(shown)) == ((2, 2, 2), [(PRODUCER, 0)])


async def test_records_between_hold_back_nobody_who_reads_all(tmp_path: Path) -> None:
    """The oldest open transaction holds readers back, whoever else has ended meanwhile."""

    async with scene(tmp_path, isr=(1,)) as play:
        await ask(play.client, sent(transactional(b"old")))
        await ask(play.client, sent(transactional(b"new", producer_id=8)))
        assert await play.marked(producer_id=8) == 0
        await ask(play.client, produce(batch(b"plain")))
        assert ends(await play.read()) == (4, 0, -1)
        assert ends(await play.read(level=0)) == (4, 0, 4)
        assert await play.marked() == 0
        assert ends(await play.read()) == (5, 5, 5)


async def test_a_new_leader_shows_what_the_old_one_did(tmp_path: Path) -> None:
    """Who leads next has the open transactions and the aborted ones from the log that it copied."""

    async with scene(tmp_path, isr=(1, 2)) as play:
        stage = play.stage
        await stage.elect(1, [1, 2])  # broker 2 fetches again
        assert outcome(await ask(play.client, sent(transactional(b"a"), acks=-1))) == (0, 0)
        assert await play.marked(committed=False) == 0
        assert outcome(await ask(play.client, sent(transactional(b"b", sequence=1), acks=-1))) == (0, 2)
        await stage.elect(2, [1, 2])
        led = stage.members[2].partition
        await until(lambda: led.leading is not None and led.leading.committed_whole)
        other = await stage.members[2].connect()
        first, rest = [fetched(await ask(other, fetch(at, isolation_level=1))) for at in (0, 1)]
        assert (first.last_stable_offset, aborted(first)) == (2, [(PRODUCER, 0)])
        assert (ends(rest), aborted(rest)) == ((3, 2, 2), [(PRODUCER, 0)]), "its marker, and nothing behind"
        await other.close()


async def test_a_producer_in_a_transaction_writes_nothing_else(tmp_path: Path) -> None:
    async with scene(tmp_path, isr=(1,)) as play:
        assert outcome(await ask(play.client, sent(transactional(b"a")))) == (0, 0)
        plain = batch(b"b", producer_id=PRODUCER, sequence=1)
        assert outcome(await ask(play.client, produce(plain, acks=1)))[0] == ErrorCode.INVALID_TXN_STATE
        assert play.partition.log.end_offset == 1
        assert code_of(await ask(play.follower, marker())) == 0
        assert outcome(await ask(play.client, produce(plain, acks=1))) == (0, 2)


async def test_deleting_the_records_of_an_open_transaction_does_not_hold_readers_back(tmp_path: Path) -> None:
    async with scene(tmp_path, isr=(1,)) as play:
        await ask(play.client, sent(transactional(b"a")))
        await ask(play.client, produce(batch(b"b"), acks=1))
        await until(lambda: play.partition.high_watermark == 2)
        play.partition.log.move_start(1)
        stable = ends(await play.read(1))[1]
        assert stable >= 1, "before the log there is nothing to wait for"


async def test_a_session_hears_of_a_transaction_when_it_has_ended(tmp_path: Path) -> None:
    """It names the partition once; that records of an open transaction are committed is told without them."""

    async with scene(tmp_path) as play:
        asked = fetch(0, isolation_level=1, session_epoch=0)
        begun = await ask(play.client, asked)

        async def again(epoch: int) -> Any:
            more = FetchRequest(
                max_wait_ms=0, min_bytes=1, isolation_level=1, session_id=begun.session_id,
                session_epoch=epoch, topics=[],
            )  # fmt: skip
            response = await ask(play.client, more)
            return fetched(response) if response.responses else None

        await ask(play.client, sent(transactional(b"a")))
        assert await again(1) is None
        await play.acknowledge(1)
        assert ends(await again(2)) == (1, 0, -1)
        assert await again(3) is None
        written = play.marks(committed=False)
        await until(lambda: play.partition.log.end_offset == 2)
        assert await again(4) is None
        await play.acknowledge(2)
        assert code_of(await written) == 0
        shown = await again(5)
        assert (ends(shown), aborted(shown)) == ((2, 2, 2), [(PRODUCER, 0)])

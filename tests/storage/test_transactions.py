"""Transactions in a log: what is open, how far readers of committed records come, what they leave out."""

import errno
from pathlib import Path
from random import Random

import pytest

from strandline.protocol.batches import headers, read_header
from strandline.protocol.errors import ApiError, ErrorCode
from strandline.protocol.markers import EndMarker
from strandline.storage.config import StorageConfig, TopicConfig
from strandline.storage.directories.log_manager import Logs
from strandline.storage.log.log import DiskFull, Log
from tests.storage.conftest import START_MS, T0, FixedClock, Place, make_batch, put
from tests.storage.faulty_disk import FaultyDisk
from tests.storage.transactions import (
    Truth,
    abort,
    commit,
    data_batch,
    end_transaction,
    put_data,
    raw,
    seen_by_a_reader,
)

A, B, C = 1, 2, 3


def check(log: Log, watermark: int | None = None) -> None:
    """The log against the batches that it holds."""
    truth = Truth(raw(log))
    watermark = log.end_offset if watermark is None else watermark
    assert log.last_stable_offset(watermark) == truth.last_stable(watermark, log.start_offset)
    assert dict(log.producers.open_transactions()) == truth.open
    for start in range(log.start_offset, log.end_offset + 1):
        for end in range(start, log.end_offset + 1, 3):
            assert set(log.aborted(start, end)) == truth.aborted(start, end), (start, end)


def test_readers_of_committed_records_wait_for_the_earliest_open_transaction(place: Place) -> None:
    log = place.log
    put(log, b"plain")
    assert log.last_stable_offset(1) == 1
    put_data(log, A, 0)
    put(log, b"plain")
    put_data(log, B, 0)
    assert log.last_stable_offset(log.end_offset) == 1
    assert list(log.producers.open_transactions()) == [(A, 1), (B, 3)]
    commit(log, A)
    assert log.last_stable_offset(log.end_offset) == 3
    abort(log, B)
    assert log.last_stable_offset(log.end_offset) == log.end_offset == 6
    assert log.aborted(0, 6) == [(B, 3)]
    assert not list(log.producers.open_transactions())


def test_a_marker_above_the_watermark_decides_nothing_yet(place: Place) -> None:
    log = place.log
    put_data(log, A, 0)
    put_data(log, B, 0)
    commit(log, B)
    commit(log, A)
    assert [log.last_stable_offset(watermark) for watermark in range(5)] == [0, 0, 0, 0, 4]


def test_a_later_marker_covers_those_before_it(place: Place) -> None:
    log = place.log
    put_data(log, A, 0)
    for number in range(3):
        put_data(log, B, number)
        commit(log, B)
    assert commit(log, A) == 7
    put_data(log, C, 0)
    commit(log, C)
    assert [log.last_stable_offset(watermark) for watermark in (3, 7, 8, 9, 10)] == [0, 0, 8, 8, 10]


def test_nothing_but_bounds_grows_if_nobody_tells_the_watermark(place: Place) -> None:
    log = place.log
    for number in range(1100):
        put_data(log, A, number)
        commit(log, A)
    assert len(log.producers.unstable._ended) <= 1000
    assert log.last_stable_offset(100) == 0
    assert log.last_stable_offset(log.end_offset) == log.end_offset


def test_a_producer_in_a_transaction_writes_nothing_outside_of_it(place: Place) -> None:
    put_data(place.log, A, 0)
    with pytest.raises(ApiError) as caught:
        place.log.producers.check(read_header(make_batch(b"x", pid=A, seq=1)))
    assert caught.value.code == ErrorCode.INVALID_TXN_STATE
    assert place.log.producers.check(read_header(data_batch(A, 1))) is None
    commit(place.log, A)
    assert place.log.producers.check(read_header(make_batch(b"x", pid=A, seq=1))) is None


def test_a_marker_with_a_newer_epoch_fences_and_begins_sequences_anew(place: Place) -> None:
    log, producers = place.log, place.log.producers
    put_data(log, A, 0)
    put_data(log, A, 1)
    producers.check_marker(A, 1, EndMarker(False, 4))
    abort(log, A, producer_epoch=1, coordinator_epoch=4)
    for check_it in (producers.check, producers.check_epoch):
        with pytest.raises(ApiError) as caught:
            check_it(read_header(data_batch(A, 2)))
        assert caught.value.code == ErrorCode.INVALID_PRODUCER_EPOCH
    for seq, expected in ((0, None), (2, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)):
        header = read_header(data_batch(A, seq, producer_epoch=1))
        if expected is None:
            assert producers.check(header) is None
        else:
            with pytest.raises(ApiError) as caught:
                producers.check(header)
            assert caught.value.code == expected
    producers.check_epoch(read_header(data_batch(A, -1, producer_epoch=1)))


def refused(log: Log, batch: bytearray) -> ErrorCode | None:
    """What the leader's check says against a batch; None if it is new or already stored."""
    try:
        log.producers.check(read_header(batch))
    except ApiError as error:
        return error.code
    return None


@pytest.mark.parametrize(
    "seq", [0, 20, 30], ids=["the first batch", "the last batch", "within the last batch"]
)
@pytest.mark.parametrize("committed", [True, False])
def test_sequences_of_an_ended_transaction_are_no_repetition(place: Place, seq: int, committed: bool) -> None:
    """librdkafka gives the sequences of a batch to new records if a broker dies before it has acknowledged
    that batch, and the transaction is aborted. The new ones were acknowledged, and in no log.
    """
    log = place.log
    put_data(log, A, 0, records=20)
    put_data(log, A, 20, records=20)
    assert log.producers.check(read_header(data_batch(A, 20, records=20))) is not None  # a repetition
    end_transaction(log, A, committed)
    assert refused(log, data_batch(A, seq, records=20)) is ErrorCode.UNKNOWN_PRODUCER_ID
    assert refused(log, data_batch(A, 40, records=20)) is None
    put_data(log, A, 40, records=20)
    assert refused(log, data_batch(A, seq, records=20)) is ErrorCode.UNKNOWN_PRODUCER_ID
    assert log.producers.check(read_header(data_batch(A, 40, records=20))) is not None
    assert refused(log, data_batch(A, 0, records=20, producer_epoch=1)) is None  # its numbers begin anew


def test_sequences_of_an_ended_transaction_are_known_where_numbers_begin_again(place: Place) -> None:
    log = place.log
    last = (1 << 31) - 1
    put_data(log, A, last - 1, records=4)  # the last two numbers, then 0 and 1
    abort(log, A)
    for seq in (last - 1, last, 0, 1):
        assert refused(log, data_batch(A, seq)) is ErrorCode.UNKNOWN_PRODUCER_ID
    assert refused(log, data_batch(A, 2)) is None
    assert refused(log, data_batch(A, last - 2)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_marker_of_an_older_producer_or_coordinator_is_refused(place: Place) -> None:
    log = place.log
    put_data(log, A, 0, producer_epoch=3)
    commit(log, A, producer_epoch=3, coordinator_epoch=7)
    for epoch, coordinator, code in (
        (2, 7, ErrorCode.INVALID_PRODUCER_EPOCH),
        (3, 6, ErrorCode.TRANSACTION_COORDINATOR_FENCED),
    ):
        with pytest.raises(ApiError) as caught:
            log.producers.check_marker(A, epoch, EndMarker(True, coordinator))
        assert caught.value.code == code
    log.producers.check_marker(A, 3, EndMarker(True, 7))
    log.producers.check_marker(B, 0, EndMarker(True, 0))


def test_a_marker_without_a_transaction_is_no_abort(place: Place) -> None:
    abort(place.log, A, producer_epoch=2)
    assert place.log.aborted(0, 10) == []
    known = place.log.producers.get(A)
    assert known is not None and known.epoch == 2


def test_open_transactions_are_never_forgotten(place: Place) -> None:
    producers = place.log.producers
    producers.producers_max = 2
    put_data(place.log, A, 0)
    for pid in (B, C, 4):
        put(place.log, b"x", pid=pid, seq=0)
    assert [pid for pid, _ in producers.items()] == [A, 4]
    producers.producers_max = 1
    put_data(place.log, 4, 1)
    assert [pid for pid, _ in producers.items()] == [A, 4]
    commit(place.log, 4)
    producers.producers_max = 2
    producers.expire(0, 10)
    producers.expire(100, 10)
    assert [pid for pid, _ in producers.items()] == [A]
    commit(place.log, A)
    producers.expire(200, 10)
    producers.expire(300, 10)
    assert not len(producers)


def some_history(log: Log, random: Random, steps: int) -> None:
    """Transactions of three producers, and plain batches."""
    sequences: dict[int, int] = {}
    for _ in range(steps):
        pid = random.choice((A, B, C))
        known = log.producers.get(pid)
        is_open = known is not None and known.transaction_first_offset >= 0
        kind = random.random()
        if kind < 0.2:
            put(log, b"x" * random.randrange(60))
        elif is_open and kind < 0.5:
            end_transaction(log, pid, committed=random.random() < 0.4)
        else:
            count = random.randint(1, 3)
            put_data(log, pid, sequences.get(pid, 0), records=count)
            sequences[pid] = sequences.get(pid, 0) + count


@pytest.mark.parametrize("seed", range(5))
def test_every_range_is_told_what_was_aborted_in_it(place: Place, seed: int) -> None:
    some_history(place.log, Random(seed), 60)
    assert len(place.log.segments) > 3
    check(place.log)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_a_start_finds_what_was_open_and_what_aborted(place: Place, seed: int, clean: bool) -> None:
    some_history(place.log, Random(seed), 60)
    before = place.log.producers.snapshot(), place.log.aborted(0, place.log.end_offset)
    if clean:
        place.stop()
    else:
        place.die()
    log = place.start(clean)
    assert (log.producers.snapshot(), log.aborted(0, log.end_offset)) == before
    check(log)


@pytest.mark.parametrize("seed", range(3))
def test_a_follower_knows_what_its_leader_knows(place: Place, tmp_path: Path, seed: int) -> None:
    some_history(place.log, Random(seed), 40)
    follower = Place(tmp_path / "follower", segment_bytes=700)
    for at, header in headers(data := raw(place.log)):
        follower.log.append_replicated(data[at : at + header.size])
    check(follower.log)
    assert follower.log.producers.snapshot() == place.log.producers.snapshot()
    follower.die()


@pytest.mark.parametrize("seed", range(4))
def test_a_cut_opens_what_was_decided_behind_it(place: Place, seed: int) -> None:
    log, random = place.log, Random(seed)
    watermark = 0
    for _ in range(6):
        some_history(log, random, 40)
        watermark = random.randrange(watermark, log.end_offset)
        check(log, watermark)
        watermark = min(watermark, log.truncate_to(random.randrange(watermark, log.end_offset)))
        check(log, watermark)


def test_a_cut_does_not_make_a_marker_committed(place: Place) -> None:
    """The snapshot of a roll behind the marker knows no longer that it was above the watermark."""
    log = place.log
    put_data(log, A, 0)
    commit(log, A)
    log.roll(START_MS)
    put(log, b"a")
    put(log, b"b")
    log.truncate_to(3)
    assert log.last_stable_offset(1) == 0
    assert log.last_stable_offset(2) == 2


def test_an_old_snapshot_does_not_open_what_ended_in_a_segment_that_is_gone(place: Place) -> None:
    """The state as of a clean stop in the middle of it, and the next segment's snapshot is lost."""
    put_data(place.log, A, 0)
    place.stop()
    log = place.start(clean=True)
    commit(log, A)
    log.roll(START_MS)
    put(log, b"x", pid=B, seq=0)
    put(log, b"y")
    log.retire(1, START_MS)
    assert place.file(f"{1:020d}.snapshot").exists()
    place.file(f"{2:020d}.snapshot").unlink()
    log.truncate_to(3)
    assert log.last_stable_offset(3) == 3
    assert not list(log.producers.open_transactions())


@pytest.mark.parametrize("nbytes", [1, 150, 400, 100_000])
def test_a_read_lies_below_its_upper_bound(place: Place, nbytes: int) -> None:
    some_history(place.log, Random(2), 120)
    log = place.log
    truth, bounds = Truth(raw(log)), set()
    for offset in range(log.end_offset):
        data = bytes(log.read(offset, nbytes, log.end_offset))
        end = [header.next_offset for _, header in headers(data)][-1]
        bound = log.upper_bound(offset, len(data))
        assert end <= bound <= log.end_offset
        bounds.add(bound)
        stable = log.aborted(offset, bound)
        seen = seen_by_a_reader(data, stable, offset)
        assert not seen & truth.aborted_offsets
    assert len(bounds) > 5, "later aborts are not listed"


def test_a_log_without_aborts_has_no_index(place: Place) -> None:
    for number in range(30):
        put_data(place.log, A, number)
        commit(place.log, A)
    assert not list(Path(place.log.directory).glob("*.txnindex"))
    assert place.log.upper_bound(0, 1) == place.log.end_offset


@pytest.mark.parametrize("ends", [True, False])
def test_a_long_transaction_begins_at_its_first_batch_after_a_crash(place: Place, ends: bool) -> None:
    put(place.log, b"x")
    for number in range(9):
        put_data(place.log, A, number)
    assert len(place.log.segments) == 1, "no snapshot tells"
    if ends:
        abort(place.log, A)
    place.die()
    log = place.start()
    assert log.aborted(0, 20) == ([(A, 1)] if ends else [])
    assert log.last_stable_offset(log.end_offset) == (11 if ends else 1)


def aborts_in_three_segments(place: Place) -> list[tuple[int, int]]:
    """Each begins in one segment and ends in the next; all of it is on the medium."""
    for number in range(3):
        put_data(place.log, A, number)
        place.log.roll(START_MS)
        abort(place.log, A)
    place.log.roll(START_MS)
    put(place.log, b"x")
    place.log.flush()
    place.logs.checkpoint_recovery_points()
    return place.log.aborted(0, 100)


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
@pytest.mark.parametrize("spoilt", ["missing", "short", "torn", "of zeros", "of another segment", "empty"])
def test_an_index_of_an_older_segment_that_is_not_whole_is_made_anew(
    place: Place, spoilt: str, clean: bool
) -> None:
    before = aborts_in_three_segments(place)
    assert len(before) == 3
    place.stop() if clean else place.die()
    first, second = sorted(Path(place.log.directory).glob("*.txnindex"))[:2]
    whole = second.read_bytes()
    if spoilt == "missing":
        second.unlink()
    else:
        damaged = {
            "short": whole[:-34], "torn": whole[:-3], "of zeros": bytes(len(whole)),
            "of another segment": first.read_bytes(), "empty": b"",
        }  # fmt: skip
        second.write_bytes(damaged[spoilt])
    log = place.start(clean)
    if spoilt in ("missing", "short", "torn", "empty"):
        assert second.read_bytes() == whole, "by then no reader has to wait for it, nor any event loop"
    assert not place.logs.recovered or not place.logs.recovered[0].losses
    assert log.aborted(0, 100) == before
    assert second.read_bytes() == whole


def test_an_abort_is_on_the_medium_with_the_flush_that_covers_its_marker(tmp_path: Path) -> None:
    disk = FaultyDisk()
    logs = Logs.open(
        [str(tmp_path)], disk, StorageConfig(), FixedClock(), clean=False, before_loss=lambda p, why: None
    )
    log = logs.create(T0, None, TopicConfig.of(logs.config))
    put_data(log, A, 0)
    log.flush()
    assert not disk.asked("sync", "*.txnindex")
    abort(log, A)
    log.flush()
    assert disk.asked("sync", "*.txnindex") == 1
    put(log, b"x")
    log.flush()
    assert disk.asked("sync", "*.txnindex") == 1
    log.truncate_to(1)
    log.flush()
    assert disk.asked("sync", "*.txnindex") == 2
    logs.close(clean=False)


def test_without_room_for_its_entry_an_abort_is_known_all_the_same(tmp_path: Path) -> None:
    disk = FaultyDisk()
    logs = Logs.open(
        [str(tmp_path)], disk, StorageConfig(), FixedClock(), clean=False, before_loss=lambda p, why: None
    )
    log = logs.create(T0, None, TopicConfig.of(logs.config))
    full = disk.fail("pwrite create", "*.txnindex", errno.ENOSPC)
    for number in range(2):
        put_data(log, A, number)
        abort(log, A)
        assert log.aborted(0, 10)[-1] == (A, 2 * number)
    with pytest.raises(DiskFull):
        log.roll(START_MS)
    disk.heal(full)
    log.roll(START_MS)
    (index,) = Path(log.directory).glob("*.txnindex")
    assert len(index.read_bytes()) == 2 * 34
    logs.close(clean=False)

"""What a scan believes of a segment, and where it says that the good ends."""

from pathlib import Path

import pytest

from strandline.protocol.batches import CRC_AT, LEADER_EPOCH, LEADER_EPOCH_AT, read_header
from strandline.storage.disk import RealDisk
from strandline.storage.log.producer_state import ProducerStates
from strandline.storage.recovery.scan_segment import BLOCK_BYTES, Expected, Fault, Scan, scan
from strandline.storage.segment.segment import Segment
from tests.storage.conftest import START_MS, make_batch


def segment_of(root: Path, data: bytes, base: int = 0) -> Segment:
    root.mkdir(exist_ok=True)
    made = Segment(RealDisk(), str(root), base, 0, create=True)
    made.file.append((data,))
    made.close()
    return Segment(RealDisk(), str(root), base, 0, create=False)


def batches(*epochs: int, size: int = 20) -> list[bytearray]:
    return [
        make_batch(b"v" * size, at=START_MS + n, base=n, epoch=epoch, pid=7, seq=n)
        for n, epoch in enumerate(epochs)
    ]


def scanned(root: Path, run: list[bytearray], **expected: object) -> Scan:
    return scan(segment_of(root, b"".join(run)), Expected(offset=0, **expected))  # type: ignore[arg-type]


def set_epoch(batch: bytearray, epoch: int) -> None:
    LEADER_EPOCH.pack_into(batch, LEADER_EPOCH_AT, epoch)


def test_a_good_segment_is_good_to_its_end_whatever_the_blocks(tmp_path: Path) -> None:
    run = batches(*[0] * 10, 1, 1, 3, size=BLOCK_BYTES // 3 + 11)
    run.insert(5, make_batch(b"x" * (2 * BLOCK_BYTES), at=START_MS + 99, base=5, epoch=0, pid=7, seq=5))
    for n, batch in enumerate(run):
        batch[:8] = n.to_bytes(8, "big")
    told: list[int] = []
    segment = segment_of(tmp_path, b"".join(run))
    found = scan(segment, Expected(offset=0), told.append)
    assert (found.fault, found.end_offset, found.valid_bytes) == (Fault.NONE, 14, segment.size)
    assert found.epochs == [(0, 0), (1, 11), (3, 13)]
    assert found.newest == (START_MS + 99, 5)
    assert sum(told) == segment.size


def test_producers_are_what_all_headers_make(tmp_path: Path) -> None:
    run = [
        make_batch(b"v", base=n, pid=n % 3 if n < 40 else 9, seq=n if n % 7 else -1, epoch=0)
        for n in range(60)
    ]
    found = scanned(tmp_path, run, producers_max=3)
    whole, quick = ProducerStates(3), ProducerStates(3)
    for batch in run:
        header = read_header(batch)
        whole.update(header, header.base_offset)
    for header, marker in found.of_producers():
        quick.update(header, header.base_offset, marker=marker)
    assert quick.snapshot() == whole.snapshot()
    assert len(found.producers) <= 3, "as many as a log may know, and no more"


@pytest.mark.parametrize("known", [None, {0: 0, 2: 4}])
def test_one_epoch_that_is_too_high_is_itself_the_lie(tmp_path: Path, known: dict[int, int] | None) -> None:
    run = batches(0, 0, 0, 0, 2, 2)
    set_epoch(run[1], 1 << 24)
    found = scanned(tmp_path, run, epochs=known)
    assert (found.fault, found.end_offset, found.epochs) == (Fault.CORRUPT, 1, [(0, 0)])
    assert "epoch 16777216" in found.reason


def test_an_epoch_that_begins_elsewhere_by_the_history_is_the_lie(tmp_path: Path) -> None:
    run = batches(0, 0, 0, 0, 2, 2)
    set_epoch(run[2], 2)
    found = scanned(tmp_path, run, epochs={0: 0, 2: 4})
    assert (found.fault, found.end_offset, found.epochs) == (Fault.CORRUPT, 2, [(0, 0)])


def test_an_epoch_that_goes_back_ends_the_good(tmp_path: Path) -> None:
    run = batches(0, 1, 1, 1)
    set_epoch(run[3], 0)
    assert scanned(tmp_path, run).end_offset == 3
    assert scan(segment_of(tmp_path / "x", b"".join(batches(0))), Expected(offset=0, epoch=1)).end_offset == 0


def test_the_last_epoch_is_held_against_the_history_unless_power_was_lost(tmp_path: Path) -> None:
    run = batches(0, 0, 1)
    kept = {0: 0}
    assert scanned(tmp_path / "a", run, epochs=kept).end_offset == 2
    assert scanned(tmp_path / "b", run, epochs=kept, same_boot=False).end_offset == 3
    assert scanned(tmp_path / "c", [*run, *batches(0, 0, 1, 1)[3:]], epochs={0: 0, 5: 2}).end_offset == 4, (
        "two batches agree about an epoch for which the history has another number"
    )


@pytest.mark.parametrize("junk", [bytes(500), b"\x02" * 500, b"\xff" * 500])
def test_after_a_power_loss_the_end_may_hold_anything(tmp_path: Path, junk: bytes) -> None:
    run = batches(0, 0, 0)
    spoilt = bytearray(run[2])
    spoilt[CRC_AT] ^= 1
    for place, end in enumerate((junk, bytes(spoilt), bytes(spoilt) + junk)):
        found = scanned(tmp_path / f"torn{place}", [*run[:2], bytearray(end)], same_boot=False)
        assert (found.fault, found.end_offset, found.is_prefix) == (Fault.TORN, 2, False)
        found = scanned(tmp_path / f"corrupt{place}", [*run[:2], bytearray(end)])
        assert (found.fault, found.end_offset) == (Fault.CORRUPT, 2)


def test_a_good_batch_behind_a_bad_one_was_no_torn_end(tmp_path: Path) -> None:
    run = batches(*[0] * 5)
    run[2][CRC_AT] ^= 1
    assert scanned(tmp_path, run, same_boot=False).fault is Fault.CORRUPT


def test_offsets_too_far_from_the_first_are_refused(tmp_path: Path) -> None:
    run = [make_batch(b"x", base=0), make_batch(b"x", base=1 << 31)]
    found = scanned(tmp_path, run, gaps=True)
    assert (found.fault, found.end_offset) == (Fault.CORRUPT, 1)

"""Rings are bounded, keep their order, count what repeats, and take up whatever a file still holds."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.storage.decision_log import (
    FLIGHT_RECORDER,
    HEADER,
    OVERHEAD,
    DecisionLog,
    Note,
    RingFile,
    read_rings,
)
from strandline.storage.disk import RealDisk


def filled(count: int, rings: DecisionLog | None = None) -> DecisionLog:
    rings = rings or DecisionLog(1 << 20, 1 << 20)
    for number in range(count):
        rings.add(Note(f"t-{number % 3}", "became_leading", {"epoch": number}), 1000 + number)
    return rings


def epochs(rings: DecisionLog, ring: str) -> list[int]:
    return [decision.values["epoch"] for decision in rings.of(ring)]


def test_a_ring_forgets_its_oldest_and_no_other_rings() -> None:
    rings = DecisionLog(1 << 20, 10 * (OVERHEAD + 25))
    rings.add(Note("quiet-0", "became_leading", {"epoch": -1}), 1)
    for number in range(500):
        rings.add(Note("busy-0", "became_leading", {"epoch": number}), number)
    kept = epochs(rings, "busy-0")
    assert kept == list(range(500 - len(kept), 500)) and 5 < len(kept) < 15
    assert epochs(rings, "quiet-0") == [-1]


def test_all_rings_together_are_bounded_and_the_oldest_of_all_goes_first() -> None:
    rings = filled(3000, DecisionLog(30 * (OVERHEAD + 25), 1 << 20))
    assert rings.nbytes <= rings.bytes_max
    kept = sorted(epoch for name in rings.names() for epoch in epochs(rings, name))
    assert kept == list(range(3000 - len(kept), 3000)) and len(kept) > 20


def test_a_ring_that_is_empty_is_no_ring() -> None:
    rings = DecisionLog(20 * (OVERHEAD + 25), 1 << 20)
    for number in range(1000):
        rings.add(Note(f"t-{number}", "stopped", {}), number)
    assert len(rings.names()) < 30


def test_what_repeats_is_counted() -> None:
    rings = DecisionLog(1 << 20, 1 << 20)
    frames = [rings.add(Note("t-0", "isr_refused", {"asked": (1, 2)}), at) for at in range(100)]
    (decision,) = rings.of("t-0")
    assert (decision.times, decision.at_ms, decision.until_ms) == (100, 0, 99)
    assert sum(frame is not None for frame in frames) == 7  # 1, 2, 4 … 64
    again = DecisionLog(1 << 20, 1 << 20)
    again.take_up(HEADER + b"".join(frame for frame in frames if frame))
    assert again.of("t-0")[0].times == 64


def test_what_is_too_long_for_a_decision_leaves_a_word() -> None:
    rings = DecisionLog(1 << 20, 1 << 20)
    rings.add(Note("t-0", "elected", {"why": "x" * 100_000}), 1)
    assert rings.of("t-0")[0].what == "too_long"


def test_a_file_is_taken_up_by_the_next_process(tmp_path: Path) -> None:
    file, rings = RingFile(RealDisk(), str(tmp_path)), DecisionLog(1 << 20, 1 << 20)
    file.read(rings)
    file.begin([])
    for number in range(10):
        frame = rings.add(Note("t-0", "became_leading", {"epoch": number}), number)
        assert frame is not None
        file.append([frame])
    later = read_rings(RealDisk(), str(tmp_path))  # nobody has closed or synced anything
    assert later is not None and epochs(later, "t-0") == list(range(10))
    assert later.of("t-0") == rings.of("t-0")
    assert file.size == (tmp_path / FLIGHT_RECORDER).stat().st_size


@pytest.mark.parametrize("cut", [1, 5, 20])
def test_nothing_is_appended_behind_a_torn_end(tmp_path: Path, cut: int) -> None:
    path = tmp_path / FLIGHT_RECORDER
    path.write_bytes((HEADER + b"".join(filled(9).frames()))[:-cut])
    file, rings = RingFile(RealDisk(), str(tmp_path)), DecisionLog(1 << 20, 1 << 20)
    file.read(rings)
    assert sum(len(rings.of(name)) for name in rings.names()) == 8
    assert file.size == 0, "so whoever writes begins anew"


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_whatever_stands_in_the_file_it_is_read_up_to_there(data: st.DataObject) -> None:
    whole = HEADER + b"".join(filled(20).frames())
    damaged = bytearray(whole)
    at = data.draw(st.integers(0, len(whole) - 1))
    damaged[at] ^= data.draw(st.integers(1, 255))
    rings = DecisionLog(1 << 20, 1 << 20)
    end = rings.take_up(bytes(damaged))
    assert end <= at
    told = [d for name in rings.names() for d in rings.of(name)]
    assert all(d.what == "became_leading" for d in told)


def test_a_whole_frame_of_another_version_is_left_out() -> None:
    from crc32c import crc32c

    from strandline.storage.decision_log import FRAME

    strange = b"\x93\x01\x02\x03"
    data = HEADER + FRAME.pack(len(strange), crc32c(strange)) + strange + b"".join(filled(1).frames())
    rings = DecisionLog(1 << 20, 1 << 20)
    assert rings.take_up(data) == len(data)
    assert epochs(rings, "t-0") == [0]

"""What is read from a file is held to its checksums once; which bytes have matched is remembered."""

import random
from pathlib import Path

import pytest
from crc32c import crc32c

from strandline.protocol.batches import headers
from strandline.storage.disk import LogDamaged
from strandline.storage.segment.checksums import RUNS_MAX, MatchedBytes
from tests.storage.test_read_checks import COUNT, flip, sealed, served_rightly


def test_runs_are_what_a_set_of_bytes_would_be() -> None:
    """After any calls a run ends where the set's does."""
    chosen = random.Random(7)
    matched, known = MatchedBytes(), set[int]()
    for _ in range(3000):
        start = chosen.randrange(200)
        if chosen.random() < 0.05:
            matched.cut(start)
            known = {each for each in known if each < start}
        else:
            stop = start + chosen.randrange(1, 12)
            matched.add(start, stop)
            known.update(range(start, stop))
        position = chosen.randrange(220)
        end = position
        while end in known:
            end += 1
        assert matched.after(position) == end
    matched.clear()
    assert matched.after(0) == 0


def test_few_runs_are_kept() -> None:
    matched = MatchedBytes()
    for start in range(0, 4 * RUNS_MAX, 2):
        matched.add(start, start + 1)
    assert len(matched._runs) == RUNS_MAX
    assert matched.after(4 * RUNS_MAX - 2) == 4 * RUNS_MAX - 1


@pytest.mark.parametrize("batch", [0, 5, 13])
@pytest.mark.parametrize("at", [17, 22, 57, 62], ids=["checksum", "attributes", "count", "a record"])
@pytest.mark.parametrize("wait", [True, False])
def test_a_flipped_byte_is_never_served_to_who_wants_it_checked(
    tmp_path: Path, batch: int, at: int, wait: bool
) -> None:
    bare = sealed(tmp_path)
    whole = bytes(bare.log.read(0, 1 << 20, COUNT))
    places = [position for position, _ in headers(whole)]
    bare.reopen()
    flip(bare.log.segments[0], places[batch] + at, 0x01)
    assert bytes(bare.log.read(batch, 1, COUNT)) not in whole, "it is served as it is"
    bare.log.verifies = True
    noticed = [
        offset
        for offset in range(len(places))
        for bytes_max in (1, 500, 1 << 20)
        if not served_rightly(bare, offset, bytes_max, wait, whole, places)
    ]
    assert batch in noticed and max(noticed) == batch
    apart = bare.log.apart(batch, 1 << 20, COUNT)
    apart.warm()
    apart.settle()
    assert isinstance(apart.error, LogDamaged), "a thread looks, too"


def test_each_byte_is_looked_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers that come later pay nothing; what was cut off and written again is new."""
    looked: list[int] = []

    def counted(data: bytes) -> int:
        looked.append(len(data))
        return crc32c(data)

    bare = sealed(tmp_path)
    bare.log.verifies = True
    monkeypatch.setattr("strandline.storage.segment.checksums.crc32c", counted)
    last = bare.log.segments[-1].base_offset
    for offset in (last, last + 1, last, last + 2):
        bare.log.read(offset, 1 << 20, COUNT)
    assert len(looked) == COUNT - last
    bare.log.truncate_to(last + 1)
    bare.fill(1)
    bare.log.read(last, 1 << 20, COUNT)
    assert len(looked) == COUNT - last + 1

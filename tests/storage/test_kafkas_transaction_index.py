"""What an index of aborted transactions says of records that have gone must go with them, or readers hide
those that have come in their place.
"""

from struct import Struct

import pytest

from tests.storage.conftest import Place, put

ENTRY = Struct(">hqqqq")  # version, producer id, first, last and last stable offset


def entry(first: int, last: int) -> bytes:
    return ENTRY.pack(0, 7, first, last, last)


@pytest.mark.parametrize(("end", "kept"), [(9, 2), (8, 1), (5, 1), (4, 0), (1, 0)])
def test_a_cut_takes_along_what_ended_behind_it(place: Place, end: int, kept: int) -> None:
    entries = [entry(1, 4), entry(5, 8)]
    for _ in range(10):
        put(place.log, b"x")
    index = place.file(f"{0:020d}.txnindex")
    place.stop()
    index.write_bytes(b"".join(entries))
    log = place.start(clean=True)
    assert log.truncate_to(end) == end
    assert log.aborted(0, 10) == [(7, 1), (7, 5)][:kept]
    assert index.read_bytes() == b"".join(entries[:kept])


@pytest.mark.parametrize("anew", [False, True], ids=["rolled again", "begun anew"])
def test_a_segment_that_is_made_has_none(place: Place, anew: bool) -> None:
    put(place.log, b"x")
    place.log.roll(0)
    put(place.log, b"y")
    index = place.file(f"{1:020d}.txnindex")
    index.write_bytes(entry(1, 1))
    if anew:
        place.log.restart_at(1)
    else:
        place.log.truncate_to(0)
        put(place.log, b"z")
        place.log.roll(0)
    assert [segment.base_offset for segment in place.log.segments][-1] == 1
    assert not index.exists()

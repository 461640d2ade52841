"""The audit of logs whose brokers have stopped: what a scan finds is what files beside the log say.

Batches follow each other, and match their checksums; an index points to where batches begin. Left to others:
the comparison of replicas (testing/verify/replicas.py).
"""

from collections.abc import Iterator
from pathlib import Path

from strandline.protocol.batches import crc_ok, headers
from strandline.storage.segment_files import offset_entries

SHOWN_MAX = 5


def assert_logs_are_sound(data: Path) -> None:
    """Every partition's log in a log directory. AssertionError with what is wrong."""
    wrong = [sentence for place in sorted(data.iterdir()) if place.is_dir() for sentence in troubles(place)]
    assert not wrong, f"{data}: {'; '.join(wrong[:SHOWN_MAX])}"


def troubles(place: Path) -> Iterator[str]:
    """A sentence for everything that is wrong about one log."""
    expected = 0
    for segment in sorted(place.glob("*.log")):
        base, text = int(segment.stem), segment.read_bytes()
        if base < expected:
            yield f"{place.name}: segment {base} begins before the end of the one before, {expected}"
        begins: dict[int, int] = {}
        at = 0
        for at_batch, header in headers(text):
            begins[at_batch] = header.last_offset
            if header.base_offset < max(expected, base):
                yield f"{place.name}: batch {header.base_offset} comes after {expected}"
            if not crc_ok(text, at_batch, header):
                yield f"{place.name}: batch {header.base_offset} does not match its checksum"
            expected, at = header.next_offset, at_batch + header.size
        if at != len(text):
            yield f"{place.name}: {len(text) - at} bytes behind the last batch of segment {base}"
        index = segment.with_suffix(".index")
        for relative, position in offset_entries(index.read_bytes()) if index.exists() else ():
            if begins.get(position) != base + relative:
                yield f"{place.name}: the index of {base} is wrong about offset {base + relative}"

"""DecisionLog: the newest decisions, in memory and in one file, so that one can ask much later why.

Each partition, the controller's view of each partition, and the broker have a ring. The oldest entries go
first, when a ring or all rings together are too long. A repeated decision is counted, not stored again. The
file is appended without a sync, so it survives the death of the process. When it is twice as long as the
rings may be, it is rewritten from them. Its end may be torn, or it may be damaged: what can be read counts.
Left to others: what is a decision (broker/, controller/), when the file is written (broker/recorder.py).
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from heapq import heappush, heapreplace
from struct import Struct
from typing import Any, NamedTuple

import msgpack
from crc32c import crc32c

from ..base.values import dataclass
from .disk import Disk, File

FLIGHT_RECORDER = "flight-recorder"
HEADER = b"strandline flight recorder 1\n"
FRAME = Struct(">II")  # bytes of the body, their CRC-32C
BODY_BYTES_MAX = 1 << 16  # a longer body is not ours
DECODING = {"strict_map_key": False, "raw": False}
BROKER = "broker"  # the ring of decisions about no partition
CONTROLLER = "controller"  # the ring of the controller's decisions about brokers
POWERS = frozenset(1 << n for n in range(64))  # a repeated decision is written again at these counts

Values = Mapping[str, Any]


def controllers_ring(partition: str) -> str:
    """The ring of the controller's decisions about a partition; no topic's name has a slash."""
    return f"{CONTROLLER}/{partition}"


class Note(NamedTuple):
    """A decision that has just been made."""

    ring: str
    what: str
    values: Values


@dataclass(frozen=True, slots=True)
class Decision:
    """A decision as kept, with the `values` behind it. Made `times` times in a row, last at `until_ms`."""

    ring: str
    at_ms: int
    until_ms: int
    times: int
    what: str
    values: Values

    def as_dict(self) -> dict[str, Any]:
        """As plain values for a response."""
        repeated = {"times": self.times, "until_ms": self.until_ms} if self.times > 1 else {}
        return {"at_ms": self.at_ms, "what": self.what, **repeated, **self.values}


class _Entry:
    """One place in a ring. `said` is what and values, packed."""

    __slots__ = ("at_ms", "number", "said", "times", "until_ms")

    def __init__(self, number: int, at_ms: int, until_ms: int, times: int, said: bytes) -> None:
        self.number = number
        self.at_ms = at_ms
        self.until_ms = until_ms
        self.times = times
        self.said = said


class _Ring:
    """One ring, and its bytes."""

    __slots__ = ("entries", "nbytes")

    def __init__(self) -> None:
        self.entries: deque[_Entry] = deque()
        self.nbytes = 0


OVERHEAD = 64  # bytes that an entry counts beside its content


class DecisionLog:
    """All rings of a broker, bounded for each and in total."""

    def __init__(self, bytes_max: int, ring_bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.ring_bytes_max = ring_bytes_max
        self.nbytes = 0
        self._rings: dict[str, _Ring] = {}
        self._order: dict[int, str] = {}  # the number of each entry and its ring, the oldest first
        self._next = 0

    def add(self, note: Note, at_ms: int) -> bytes | None:
        """Keep a decision; returns the frame to be written, None if there is nothing new to write."""
        entry = self._put(note.ring, at_ms, at_ms, 1, _packed([note.what, dict(note.values)]))
        return _framed(note.ring, entry) if entry.times in POWERS else None

    def _put(self, ring: str, at_ms: int, until_ms: int, times: int, said: bytes) -> _Entry:
        if len(said) + len(ring) > BODY_BYTES_MAX // 2:
            said = _packed(["too_long", {"bytes": len(said)}])
        kept = self._rings.get(ring)
        if kept is None:
            kept = self._rings[ring] = _Ring()
        last = kept.entries[-1] if kept.entries else None
        if last is not None and last.said == said:
            last.until_ms = until_ms
            last.times = max(last.times + 1, times)  # a frame from the file includes the earlier ones
            return last
        entry = _Entry(self._next, at_ms, until_ms, times, said)
        self._next += 1
        kept.entries.append(entry)
        self._order[entry.number] = ring
        kept.nbytes += len(said) + OVERHEAD
        self.nbytes += len(said) + OVERHEAD
        while kept.nbytes > self.ring_bytes_max and len(kept.entries) > 1:
            self._forget_oldest(ring)
        while self.nbytes > self.bytes_max and len(self._order) > 1:
            self._forget_oldest(self._order[next(iter(self._order))])
        return entry

    def _forget_oldest(self, ring: str) -> None:
        kept = self._rings[ring]
        gone = kept.entries.popleft()
        del self._order[gone.number]
        kept.nbytes -= len(gone.said) + OVERHEAD
        self.nbytes -= len(gone.said) + OVERHEAD
        if not kept.entries:
            del self._rings[ring]

    def names(self) -> list[str]:
        """The rings that hold something."""
        return sorted(self._rings)

    def of(self, ring: str) -> list[Decision]:
        """What a ring holds, the oldest first."""
        kept = self._rings.get(ring)
        return [] if kept is None else [_decision(ring, entry) for entry in kept.entries]

    def size(self, ring: str) -> int:
        """How many bytes a ring counts."""
        return self._rings[ring].nbytes

    def newest(self, count: int, wanted: Callable[[str], bool]) -> list[Decision]:
        """The `count` newest of all rings that are wanted, oldest first.

        Looks at one entry of a ring that has none of them, so its cost depends little on their number.
        """
        heap: list[tuple[int, int, str, _Entry]] = []  # the oldest of those found first
        for name, ring in self._rings.items():
            if count <= 0 or not wanted(name):
                continue
            for entry in reversed(ring.entries):
                one = (entry.at_ms, entry.number, name, entry)
                if len(heap) < count:
                    heappush(heap, one)
                elif one[:2] > heap[0][:2]:
                    heapreplace(heap, one)
                else:
                    break
        return [_decision(name, entry) for _, _, name, entry in sorted(heap, key=lambda one: one[:2])]

    def frames(self) -> Iterator[bytes]:
        """Everything, as it is written: each ring in its order."""
        for name, ring in self._rings.items():
            for entry in ring.entries:
                yield _framed(name, entry)

    def take_up(self, data: bytes) -> int:
        """Add what a file holds; returns up to where it could be read."""
        end = 0
        for at, body in _bodies(data):
            end = at
            try:
                ring, at_ms, until_ms, times, said = msgpack.unpackb(body, **DECODING)
                what, values = msgpack.unpackb(said, **DECODING)
                assert isinstance(ring, str) and isinstance(what, str) and isinstance(values, dict)
                self._put(ring, int(at_ms), int(until_ms), int(times), said)
            except (ValueError, TypeError, AssertionError, msgpack.UnpackException):
                continue  # complete, but of another version: skip it
        return end


def _packed(value: object) -> bytes:
    data: bytes = msgpack.packb(value, default=_plain)
    return data


def _plain(value: object) -> object:
    """Sets and whatever else values may be."""
    if isinstance(value, set | frozenset):
        return sorted(value)
    return list(value) if isinstance(value, tuple) else str(value)


def _framed(ring: str, entry: _Entry) -> bytes:
    body = _packed([ring, entry.at_ms, entry.until_ms, entry.times, entry.said])
    return FRAME.pack(len(body), crc32c(body)) + body


def _decision(ring: str, entry: _Entry) -> Decision:
    what, values = msgpack.unpackb(entry.said, **DECODING)
    return Decision(ring, entry.at_ms, entry.until_ms, entry.times, what, values)


def _bodies(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The complete frames of a file from its beginning on, each with its end position."""
    if not data.startswith(HEADER):
        return
    at = len(HEADER)
    while at + FRAME.size <= len(data):
        size, checksum = FRAME.unpack_from(data, at)
        body = data[at + FRAME.size : at + FRAME.size + size]
        if size > BODY_BYTES_MAX or len(body) < size or crc32c(body) != checksum:
            return
        at += FRAME.size + size
        yield at, body


class RingFile:
    """The file behind the rings of a broker. Every method blocks; one thread at a time may use it."""

    def __init__(self, disk: Disk, log_dir: str) -> None:
        self.path = f"{log_dir}/{FLIGHT_RECORDER}"
        self.size = 0
        self._disk = disk
        self._file: File | None = None

    def read(self, rings: DecisionLog) -> None:
        """Load what an earlier process has left. Nothing is appended after a torn end."""
        try:
            data = self._disk.read(self.path)
        except FileNotFoundError:
            return
        whole = rings.take_up(data)
        self.size = whole if whole == len(data) else 0

    def append(self, frames: Sequence[bytes]) -> None:
        """Add to the file; it must have been begun."""
        assert self.size, "a new file starts with all known decisions"
        if self._file is None:
            self._file = self._disk.open(self.path)
        self.size += self._file.append(frames)

    def begin(self, frames: Sequence[bytes]) -> None:
        """Put a new file in place of the old one."""
        self.close()
        self.size = 0
        data = HEADER + b"".join(frames)
        self._disk.replace(self.path, data, sync=False)
        self.size = len(data)

    def failed(self) -> None:
        """A write failed, so the file's content is unknown: the next write begins a new file."""
        self.size = 0
        self.close()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def read_rings(disk: Disk, log_dir: str) -> DecisionLog | None:
    """The decisions recorded in a log directory, without a broker; None if there is no file."""
    try:
        data = disk.read(f"{log_dir}/{FLIGHT_RECORDER}")
    except FileNotFoundError:
        return None
    rings = DecisionLog(1 << 40, 1 << 40)
    rings.take_up(data)
    return rings

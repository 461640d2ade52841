"""Transactions put into a log, and what a reader of committed records may see, by brute force."""

from collections.abc import Iterable

from strandline.protocol.batches import headers, read_header, stamp
from strandline.protocol.markers import EndMarker, marker_batch, read_marker
from strandline.protocol.records import BatchBuilder
from strandline.storage.log.log import Log
from tests.storage.conftest import START_MS


def data_batch(
    pid: int, seq: int, *, producer_epoch: int = 0, records: int = 1, key: bytes | None = None, base: int = 0,
    leader_epoch: int = 0,
) -> bytearray:  # fmt: skip
    """A transactional batch."""
    builder = BatchBuilder(
        producer_id=pid, producer_epoch=producer_epoch, base_sequence=seq, transactional=True
    )
    for place in range(records):
        builder.append(START_MS + place, key, b"v%d" % seq, ())
    batch = bytearray(builder.build())
    stamp(batch, 0, base, leader_epoch)
    return batch


def put_data(
    log: Log, pid: int, seq: int, *, producer_epoch: int = 0, records: int = 1, key: bytes | None = None
) -> int:
    """Append a transactional batch as leader; returns its base offset."""
    batch = data_batch(pid, seq, producer_epoch=producer_epoch, records=records, key=key)
    return log.append(memoryview(batch), read_header(batch), 0, START_MS)


def end_transaction(
    log: Log, pid: int, committed: bool, *, producer_epoch: int = 0, coordinator_epoch: int = 0
) -> int:
    """Append a marker as leader; returns its offset."""
    batch = marker_batch(pid, producer_epoch, EndMarker(committed, coordinator_epoch), START_MS)
    return log.append(memoryview(batch), read_header(batch), 0, START_MS)


def commit(log: Log, pid: int, **more: int) -> int:
    return end_transaction(log, pid, committed=True, **more)


def abort(log: Log, pid: int, **more: int) -> int:
    return end_transaction(log, pid, committed=False, **more)


def raw(log: Log, start: int | None = None, end: int | None = None) -> bytes:
    """The log's batches."""
    found, offset = b"", log.start_offset if start is None else start
    end = log.end_offset if end is None else end
    while data := bytes(log.read(offset, 1 << 20, end)):
        found += data
        offset = [header.next_offset for _, header in headers(data)][-1]
    return found


class Truth:
    """What the batches of a log say of its transactions, seen one by one from the first."""

    def __init__(self, data: bytes) -> None:
        self.data: list[tuple[int, int, int]] = []  # producer, first and last offset of each data batch
        self.ended: list[tuple[int, int, int, bool]] = []  # producer, first offset, marker, whether committed
        self.open: dict[int, int] = {}
        self.aborted_offsets: set[int] = set()
        of_open: dict[int, set[int]] = {}
        for at, header in headers(data):
            pid, base = header.producer_id, header.base_offset
            marker = read_marker(data, at, header) if header.is_control else None
            if header.is_transactional and not header.is_control:
                self.open.setdefault(pid, base)
                if header.record_count:
                    of_open.setdefault(pid, set()).update(range(base, header.next_offset))
            elif marker is not None:
                first = self.open.pop(pid, None)
                gone = of_open.pop(pid, set())
                if first is not None:
                    self.ended.append((pid, first, base, marker.committed))
                if not marker.committed:
                    self.aborted_offsets |= gone

    def last_stable(self, watermark: int, start: int = 0) -> int:
        unstable = [*self.open.values(), *(f for _, f, marker, _ in self.ended if marker >= watermark)]
        return min(watermark, max(start, min(unstable, default=watermark)))

    def aborted(self, start: int, end: int) -> set[tuple[int, int]]:
        return {
            (pid, first)
            for pid, first, marker, done in self.ended
            if not done and first < end and marker >= start
        }


def seen_by_a_reader(data: bytes, aborted: Iterable[tuple[int, int]], start: int) -> set[int]:
    """The offsets of data records that a consumer hands out, as the Java client does it."""
    waiting = sorted(aborted, key=lambda entry: entry[1])
    inside: set[int] = set()
    seen: set[int] = set()
    for at, header in headers(data):
        while waiting and waiting[0][1] <= header.last_offset:
            inside.add(waiting.pop(0)[0])
        if header.is_control:
            marker = read_marker(data, at, header)
            if marker is not None and not marker.committed:
                inside.discard(header.producer_id)
        elif header.record_count and not (header.is_transactional and header.producer_id in inside):
            seen.update(range(max(start, header.base_offset), header.next_offset))
    return seen

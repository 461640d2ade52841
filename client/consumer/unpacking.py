"""Batches become the records that callers get: by the compiled kernel, or one by one by the reference.

The kernel refuses what it does not accept; the reference (protocol/records.py) reads on from there, and says
what is wrong when it gets to it. So records before damage are handed out, whichever of them reads.
Left to others: which batches (positions.py), whole fetches as columns (protocol/columns.py), who gets the
records (buffer.py).
"""

from array import array
from collections.abc import Iterator

from ...base.types import TopicPartition
from ...protocol import kernel
from ...protocol.batches import BatchHeader
from ...protocol.compression import CAP
from ...protocol.primitives import Buffer
from ...protocol.records import Record, open_batch, records_of
from ..results import ConsumerRecord, TimestampType
from ..serializers import Deserializer, bytes_in

_CREATE_TIME, _LOG_APPEND_TIME = TimestampType  # looked up once, not for every batch
_LEFT, _LEAST = 2, 8  # of the kernel's row: records to come, least offset wanted


class Unpacker:
    """How a consumer wants its records: deserialized by what, with or without a look at checksums."""

    def __init__(self, key_in: Deserializer, value_in: Deserializer, verify: bool) -> None:
        self.key_in = None if key_in is bytes_in else key_in
        self.value_in = None if value_in is bytes_in else value_in
        self.verify = verify
        self.kernel = kernel.compiled()

    def opened(
        self, partition: TopicPartition, records: Buffer, pos: int, header: BatchHeader, least: int
    ) -> "OpenBatch":
        """The batch at `pos`, of which records from offset `least` on are wanted."""
        section = open_batch(records, pos, header, verify=self.verify, cap=CAP)
        return OpenBatch(self, partition, section, header, least)


class OpenBatch:
    """A batch of which some records are handed out already."""

    __slots__ = ("_common", "_header", "_kernel", "_reference", "_section", "_state")

    def __init__(
        self,
        unpacker: Unpacker,
        partition: TopicPartition,
        section: Buffer,
        header: BatchHeader,
        least: int,
    ) -> None:
        kind = _LOG_APPEND_TIME if header.is_log_append_time else _CREATE_TIME
        how = unpacker.key_in, unpacker.value_in
        self._common = (*partition, kind, header.leader_epoch, *how)
        self._header = header
        self._kernel = unpacker.kernel
        self._section = memoryview(section)
        self._reference: Iterator[Record] | None = None
        row = array("q", (0, len(section), header.record_count, header.base_offset, header.base_timestamp))
        row.extend((kind, header.max_timestamp, header.last_offset_delta, least))
        self._state = memoryview(row)

    @property
    def least(self) -> int:
        """The offset at which it goes on: after the last record taken, or of one that cannot be."""
        return self._state[_LEAST]

    def take(self, most: int, out: list[ConsumerRecord]) -> bool:
        """Append up to `most` records to `out`. True when there are no more."""
        if self._kernel is not None:
            before = len(out)
            done = self._kernel.tuples(self._section, self._state, most, ConsumerRecord, self._common, out)
            if done != kernel.REFUSED:
                return not self._state[_LEFT]
            self._kernel = None  # the reference says what is wrong
            most -= len(out) - before
        return self._take_slowly(most, out)

    def _take_slowly(self, most: int, out: list[ConsumerRecord]) -> bool:
        topic, partition, kind, epoch, key_in, value_in = self._common
        state = self._state
        rows = self._reference
        if rows is None:
            rows = records_of(self._section, self._header)
        self._reference = None  # if the next one cannot be had, the batch is read again from its beginning
        for offset, timestamp, key, value, headers in rows:
            if offset < state[_LEAST]:
                continue
            state[_LEAST] = offset
            if key is not None and key_in is not None:
                key = key_in(key)
            if value is not None and value_in is not None:
                value = value_in(value)
            out.append(ConsumerRecord(topic, partition, offset, timestamp, key, value, headers, kind, epoch))
            state[_LEAST] = offset + 1
            most -= 1
            if most <= 0:
                self._reference = rows
                return False
        return True

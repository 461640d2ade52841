"""Records between the fetcher and the caller: decoded ahead, handed out one by one. Pure.

A position moves when a record is handed out, not when it is decoded; a record counts as processed when the
caller comes back for more. Left to others: where the bytes come from (fetcher.py), waiting (consumer.py).
"""

from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from ...base.types import TopicPartition
from ...protocol.batches import BatchHeader, headers
from ...protocol.errors import ApiError
from ...protocol.records import Record
from ..results import ConsumerRecord, TimestampType
from ..serializers import Deserializer
from .positions import PartitionPosition

if TYPE_CHECKING:
    from ...protocol.columns import Columns


_CREATE_TIME, _LOG_APPEND_TIME = TimestampType  # looked up once, not for every record


class Batch(NamedTuple):
    """Records of one partition as columns, keys and values undecoded."""

    partition: TopicPartition
    columns: "Columns"


class Handout:
    """The decoded records that wait for the caller: `ready`."""

    def __init__(
        self,
        places: Callable[[], Mapping[TopicPartition, PartitionPosition]],
        key_in: Deserializer,
        value_in: Deserializer,
        verify: bool,
    ) -> None:
        self.ready: deque[ConsumerRecord] = deque()
        self._places = places
        self._key_in, self._value_in = key_in, value_in
        self._verify = verify
        self._handed: dict[TopicPartition, PartitionPosition] = {}
        self._turn = 0

    def fill(self, most: int) -> None:
        """Decode until `most` records are ready. The partitions take turns in being first."""
        if not self.ready:
            self._catch_up()
        for place in self._in_turn():
            while len(self.ready) < most:
                try:
                    row = place.next_record(self._verify)
                    if row is None:
                        break
                    self.ready.append(self._decoded(place, *row))
                except BaseException:  # raised again once these are handed out
                    if self.ready:
                        return
                    raise
        if not self.ready:
            self._catch_up()

    @property
    def in_hand(self) -> Mapping[TopicPartition, PartitionPosition]:
        """The positions whose records the caller may still be working on."""
        return self._handed

    def next(self) -> ConsumerRecord:
        """The next ready record; the position moves past it."""
        record = self.ready.popleft()
        partition = TopicPartition(record.topic, record.partition)
        place = self._places().get(partition)
        if place is not None:
            place.position = record.offset + 1
            self._handed[partition] = place
        return record

    def columns(self) -> list[Batch]:
        """One complete fetch of each partition that has one."""
        self.send_back(set(self._places()))
        batches: list[Batch] = []
        for place in self._in_turn():
            try:
                columns = self._columns(place)
            except BaseException:  # raised again once these are handed out
                if batches:
                    return batches
                raise
            place.position = place.cursor
            self._handed[place.partition] = place
            if columns is not None:
                batches.append(Batch(place.partition, columns))
        return batches

    def came_back(self) -> None:
        """The caller wants more, so it is done with the records it had."""
        for place in self._handed.values():
            place.came_back()
        self._handed.clear()

    def drop(self, partitions: set[TopicPartition]) -> None:
        """These are no longer read, or are read from another offset. The caller still has the records already
        handed out: they count as done when it comes back, even if a partition was revoked and given again."""
        if self.ready:
            self.ready = deque(one for one in self.ready if (one.topic, one.partition) not in partitions)

    def send_back(self, partitions: set[TopicPartition]) -> None:
        """Drop records that were decoded but not handed out; they are fetched again, from the position."""
        back = {TopicPartition(one.topic, one.partition) for one in self.ready} & partitions
        self.ready = deque(one for one in self.ready if (one.topic, one.partition) not in back)
        for partition in back:
            place = self._places()[partition]
            place.go_on()

    def _catch_up(self) -> None:
        """Everything decoded is handed out: move positions past what callers do not see."""
        for place in self._places().values():
            if place.position is not None and place.position < place.cursor:
                place.position = place.cursor
                self._handed[place.partition] = place

    def _columns(self, place: PartitionPosition) -> "Columns | None":
        try:
            return place.next_columns(self._verify)
        except BaseException:
            sound = _columns_before_damage(place, self._verify)
            if sound is None:
                raise
            return sound

    def _decoded(self, place: PartitionPosition, record: Record, header: BatchHeader) -> ConsumerRecord:
        topic, partition = place.partition
        key, value = record.key, record.value
        try:
            return ConsumerRecord(
                topic,
                partition,
                record.offset,
                record.timestamp,
                None if key is None else self._key_in(key),
                None if value is None else self._value_in(value),
                record.headers,
                _LOG_APPEND_TIME if header.is_log_append_time else _CREATE_TIME,
                header.leader_epoch,
            )
        except BaseException:
            place.unread(record)
            raise

    def _in_turn(self) -> list[PartitionPosition]:
        """The readable positions, another one first each time: one that fails does not block the others."""
        places = self._readable()
        self._turn = (self._turn + 1) % max(len(places), 1)
        return places[self._turn :] + places[: self._turn]

    def _readable(self) -> list[PartitionPosition]:
        return [place for place in self._places().values() if place.chunks and not place.is_paused]


def _columns_before_damage(place: PartitionPosition, verify: bool) -> "Columns | None":
    """After decoding failed: the records of the batches before the first damaged one, or as many of them as
    are decoded at once. None if there are none: then the position is at the damage."""
    from ...protocol.columns import decode, runs

    records = memoryview(place.chunks[0].records)
    end = 0
    try:
        for at, header in headers(records):
            decode(records[at : at + header.size], lo=place.cursor, verify=verify)
            end = at + header.size
    except (ApiError, ValueError, ArithmeticError, LookupError):
        pass  # it is raised when the position gets there
    columns = next(runs(records[:end], lo=place.cursor, verify=verify), None)
    if columns is None or not len(columns):
        return None
    place.cursor = columns.next_offset
    return columns

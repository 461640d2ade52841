"""Records between the fetcher's places and the caller: decoded ahead, handed out one by one. Pure.

A position moves when a record is handed out, not when it is decoded; a record counts as processed when the
caller comes back for more. Left to others: where the bytes come from (fetcher.py), waiting (consumer.py).
"""

from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from ..protocol.kinds import TopicPartition
from ..protocol.records import Record
from .positions import Place
from .serializers import Deserializer
from .shapes import ConsumerRecord

if TYPE_CHECKING:
    from ..protocol.columns import Columns


class Batch(NamedTuple):
    """Records of one partition as columns, keys and values undecoded."""

    partition: TopicPartition
    columns: "Columns"


class Handout:
    """What is decoded and waits for the caller: `ready`."""

    def __init__(
        self,
        places: Callable[[], Mapping[TopicPartition, Place]],
        key_in: Deserializer,
        value_in: Deserializer,
        verify: bool,
    ) -> None:
        self.ready: deque[ConsumerRecord] = deque()
        self._places = places
        self._key_in, self._value_in = key_in, value_in
        self._verify = verify
        self._handed: dict[TopicPartition, Place] = {}
        self._turn = 0

    def fill(self, most: int) -> None:
        """Decode until `most` records are ready, every partition in turn getting its chance to be first."""
        if not self.ready:
            self._catch_up()
        places = self._readable()
        if not places:
            return
        self._turn = (self._turn + 1) % len(places)
        for place in places[self._turn :] + places[: self._turn]:
            while len(self.ready) < most:
                record = place.next_record(self._verify)
                if record is None:
                    break
                if not self._decode(place, record):
                    return
        if not self.ready:
            self._catch_up()

    @property
    def in_hand(self) -> Mapping[TopicPartition, Place]:
        """Where the records came from that the caller may still be working on."""
        return self._handed

    def next(self) -> ConsumerRecord:
        """The next ready record; the position is behind it now."""
        record = self.ready.popleft()
        partition = TopicPartition(record.topic, record.partition)
        place = self._places().get(partition)
        if place is not None:
            place.position = record.offset + 1
            self._handed[partition] = place
        return record

    def columns(self) -> list[Batch]:
        """One fetch of each partition that has one, as a whole."""
        self.send_back(set(self._places()))
        batches: list[Batch] = []
        for place in self._readable():
            columns = place.next_columns(self._verify)
            place.position = place.cursor
            self._handed[place.partition] = place
            if columns is not None:
                batches.append(Batch(place.partition, columns))
        return batches

    def came_back(self) -> None:
        """The caller wants more, so it is done with what it had."""
        for place in self._handed.values():
            place.came_back()
        self._handed.clear()

    def drop(self, partitions: set[TopicPartition]) -> None:
        """These are no longer read, or are read from elsewhere. What was handed out of them is still with the
        caller: when it comes back it is done with that, also if they were taken and given meanwhile."""
        if self.ready:
            self.ready = deque(one for one in self.ready if (one.topic, one.partition) not in partitions)

    def send_back(self, partitions: set[TopicPartition]) -> None:
        """What was decoded and not handed out is to be fetched again, from the position."""
        back = {TopicPartition(one.topic, one.partition) for one in self.ready} & partitions
        self.ready = deque(one for one in self.ready if (one.topic, one.partition) not in back)
        for partition in back:
            place = self._places()[partition]
            place.go_on()

    def _catch_up(self) -> None:
        """All that was decoded is handed out: positions move over what nobody is to see."""
        for place in self._places().values():
            if place.position is not None and place.position < place.cursor:
                place.position = place.cursor
                self._handed[place.partition] = place

    def _decode(self, place: Place, record: Record) -> bool:
        """False when the record cannot be decoded and others are to be handed out before that is raised."""
        topic, partition = place.partition
        key, value = record.key, record.value
        try:
            whole = ConsumerRecord(
                topic,
                partition,
                record.offset,
                record.timestamp,
                None if key is None else self._key_in(key),
                None if value is None else self._value_in(value),
                record.headers,
            )
        except BaseException:
            place.unread(record)
            if not self.ready:
                raise
            return False
        self.ready.append(whole)
        return True

    def _readable(self) -> list[Place]:
        return [place for place in self._places().values() if place.chunks and not place.is_paused]

"""Records between the fetcher and the caller: decoded ahead, handed out one by one or many at once. Pure.

A position moves when a record is handed out, not when it is decoded; a record counts as processed when the
caller comes back for more. Left to others: where the bytes come from (fetcher.py), what they say
(unpacking.py, protocol/columns.py), waiting (consumer.py).
"""

from collections import deque
from collections.abc import Callable, Mapping

from ...base.types import TopicPartition
from ..results import ConsumerRecord
from .batch import Batch
from .positions import PartitionPosition, Run
from .unpacking import Unpacker


class Handout:
    """The decoded records that wait for the caller.

    `run` is the one that an iterator may take the next record from by itself, while its `at` is below its
    `end`: nothing else has to happen between two records of a run.
    """

    def __init__(
        self,
        places: Callable[[], Mapping[TopicPartition, PartitionPosition]],
        unpacker: Unpacker,
        observed: bool = False,
    ) -> None:
        self.run = self._nothing = Run(None, [])
        self._ready: deque[Run] = deque()
        self._places = places
        self._unpacker = unpacker
        self._observed = observed  # somebody sees each record before it is handed out
        self._handed: dict[TopicPartition, PartitionPosition] = {}
        self.returns = 0  # so often the caller came back
        self._turn = 0
        self._taken_from = 0  # runs

    @property
    def is_empty(self) -> bool:
        """Whether nothing is ready."""
        self._pass_over()
        return not self._ready

    def fill(self, most: int) -> bool:
        """Decode until `most` records are ready. The partitions take turns in being first. True if there is
        room for another fetch now."""
        if self.is_empty:
            self._catch_up()
        wanted = most - sum(run.end - run.at for run in self._ready)
        before = self._chunks()
        for place in self._in_turn():
            if wanted <= 0:
                break
            found: list[ConsumerRecord] = []
            try:
                place.take(wanted, self._unpacker, found)
            except Exception:  # raised again once these are handed out; an interrupt is not
                if self._ready or found:
                    break
                raise
            finally:
                if found:
                    self._ready.append(Run(place, found))
                    wanted -= len(found)
        if not self._ready:
            self._catch_up()
        return self._chunks() < before

    @property
    def in_hand(self) -> Mapping[TopicPartition, PartitionPosition]:
        """The positions whose records the caller may still be working on."""
        return self._handed

    @property
    def progress(self) -> tuple[int, int]:
        """Another value than before, if an iterator has taken records since."""
        return self._taken_from, self.run.at

    def next(self) -> ConsumerRecord:
        """The next ready record; the position moves past it."""
        run = self._first()
        if not self._observed:
            self.run = run
            self._taken_from += 1
        at = run.at
        run.at = at + 1
        return run.records[at]

    def take(self, most: int) -> list[ConsumerRecord]:
        """Up to `most` of the records that are ready; the positions move past them."""
        self.run = self._nothing
        handed: list[ConsumerRecord] = []
        while len(handed) < most and not self.is_empty:
            place = self._first().place
            assert place is not None, "a run that has records is of a partition"
            part = place.hand_out(most - len(handed))
            handed = handed + part if handed else part
        self._pass_over()
        return handed

    def columns(self) -> list[Batch]:
        """One complete fetch of each partition that has one."""
        self.send_back(set(self._places()))
        batches: list[Batch] = []
        for place in self._in_turn():
            try:
                columns = place.next_columns(self._unpacker.verify)
            except Exception:
                columns = place.columns_before_damage(self._unpacker.verify)
                if columns is None:  # raised again once these are handed out
                    if batches:
                        return batches
                    raise
            place.catch_up()
            self._handed[place.partition] = place
            if columns is not None:
                batches.append(Batch(place.partition, columns))
        return batches

    def came_back(self) -> None:
        """The caller wants more, so it is done with the records it had."""
        self.returns += 1
        self.run = self._nothing
        for place in self._handed.values():
            place.came_back()
        self._handed.clear()

    def take_back(self, returns: int) -> None:
        """What was handed out since the caller had come back so often did not reach it: it is fetched again.
        If it did not come back since, what it has is of before."""
        if self.returns == returns:
            return
        self.run = self._nothing
        lost, self._handed = self._handed, {}
        self.drop(set(lost))
        for place in lost.values():
            if place.processed is not None:
                place.go_on(place.processed, place.processed_epoch)

    def drop(self, partitions: set[TopicPartition]) -> None:
        """These are no longer read, or are read from another offset. The caller still has the records already
        handed out: they count as done when it comes back, even if a partition was revoked and given again."""
        for run in self._ready:
            if run.place is not None and run.place.partition in partitions:
                run.place.leave(run)
        self._ready = deque(run for run in self._ready if run.end)

    def send_back(self, partitions: set[TopicPartition]) -> None:
        """Drop records that were decoded but not handed out; they are fetched again, from the position."""
        if self.is_empty:
            return
        back = {run.place.partition: run.place for run in self._ready if run.place is not None}
        self.drop(partitions)
        for partition, place in back.items():
            if partition in partitions:
                place.go_on()

    def end(self) -> None:
        """Hand out nothing more, and hold nothing."""
        self.run = self._nothing
        self.drop({run.place.partition for run in self._ready if run.place is not None})

    def _pass_over(self) -> None:
        """Let go of runs that are at their end."""
        ready = self._ready
        while ready and ready[0].at >= ready[0].end:
            run = ready.popleft()
            if run.place is not None:
                run.place.leave(run)

    def _first(self) -> Run:
        """The run that is handed out now."""
        assert not self.is_empty, "who hands out has looked whether there is something"
        run = self._ready[0]
        place = run.place
        if run.at == 0 and place is not None:
            place.begin(run)
        if place is not None:
            self._handed[place.partition] = place
        return run

    def _catch_up(self) -> None:
        """Everything decoded is handed out: move positions past what callers do not see."""
        for place in self._places().values():
            if place.position is not None and place.position < place.cursor:
                place.catch_up()
                self._handed[place.partition] = place

    def _chunks(self) -> int:
        return sum(len(place.chunks) for place in self._places().values())

    def _in_turn(self) -> list[PartitionPosition]:
        """The readable positions, another one first each time: one that fails does not block the others."""
        places = self._readable()
        self._turn = (self._turn + 1) % max(len(places), 1)
        return places[self._turn :] + places[: self._turn]

    def _readable(self) -> list[PartitionPosition]:
        return [
            place
            for place in self._places().values()
            if place.chunks and not place.is_paused and not place.is_withheld
        ]

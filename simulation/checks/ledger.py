"""What the clients of a world were told: acknowledged at an offset, read at an offset, not yet answered.

It is kept while they work, so that the checks can compare brokers with it at any moment. Contradictions are
noted at once. Left to others: sending and reading (`clients/workload.py`, `clients/errands.py`), judging the
whole history (`history.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...base.types import TopicPartition
from ...client.results import ConsumerRecord, Receipt
from .history import History

TOPIC = "numbers"
PARTITIONS = 2
EXTRA = "extra-"
"""Topics whose names begin so come and go (`clients/errands.py`)."""


def is_extra(tp: TopicPartition) -> bool:
    """Whether it belongs to a topic that comes and goes."""
    return tp.topic.startswith(EXTRA)


class Ledger:
    """The judged topic, `numbers`, and what was acknowledged in the extra topics."""

    def __init__(self) -> None:
        self.partitions = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
        self.acknowledged: dict[tuple[TopicPartition, int], int] = {}  # (partition, offset) -> number
        self.refused: list[str] = []
        self.seen: dict[tuple[TopicPartition, int], int] = {}  # what the reader has read
        self.forgotten: dict[tuple[TopicPartition, int], int] = {}  # read, then forgiven; may still be there
        self.contradictions: list[str] = []
        self.history = History()
        self.has_lost_power = False
        self.answered_s: dict[TopicPartition, float] = {}  # when the producer got its last answer
        self.extra: dict[tuple[str | None, TopicPartition, int], int] = {}  # (topic's id, where) -> number
        self._open: dict[TopicPartition, dict[int, float]] = {tp: {} for tp in self.partitions}

    # ------------------------------------------------------------ the producer

    def sending(self, number: int, tp: TopicPartition, at_s: float) -> None:
        """The producer is about to send this number."""
        self.history.sending(number, tp, at_s)
        self._open[tp][number] = at_s

    def answered(self, number: int, at_s: float) -> None:
        """The producer knows what became of this number."""
        tp = self.history.sends[number].partition
        self._open[tp].pop(number)
        self.answered_s[tp] = at_s

    def acknowledge(self, number: int, receipt: Receipt, at_s: float) -> None:
        """This number was acknowledged. A second one at the same offset is a contradiction."""
        self.history.acknowledged(number, receipt.offset, at_s)
        place = (TopicPartition(receipt.topic, receipt.partition), receipt.offset)
        if place in self.acknowledged:
            self.contradictions.append(
                f"{place} was acknowledged for {self.acknowledged[place]} and {number}"
            )
        self.acknowledged[place] = number
        self._compare(place, number)

    def promised(self, tp: TopicPartition) -> dict[int, int]:
        """Records acknowledged in this partition and not forgiven: offset -> number."""
        return {at: number for (of, at), number in self.acknowledged.items() if of == tp}

    def oldest_open(self, tp: TopicPartition) -> float | None:
        """Since when the oldest number waits for its acknowledgement there; None if none waits."""
        return min(self._open[tp].values(), default=None)

    # ------------------------------------------------------------ the reader

    def polled(self, records: Sequence[ConsumerRecord]) -> None:
        """The reader was handed these records."""
        self.history.polled(
            (TopicPartition(record.topic, record.partition), record.offset, int(record.value))
            for record in records
        )

    def read(self, tp: TopicPartition, offset: int, number: int) -> None:
        """One of them: it must be what was acknowledged there, and what was read there before."""
        self._compare((tp, offset), number)
        self.seen[tp, offset] = number

    def has_seen_all(self, starts: Mapping[TopicPartition, int]) -> bool:
        """Whether the reader has read all acknowledged records; those it read before a power loss count.

        `starts`: retention may have removed what lies before.
        """
        missed = self.acknowledged.items() - self.seen.items()
        return all(
            self.forgotten.get(place) == number or place[1] < starts.get(place[0], 0)
            for place, number in missed
        )

    # ------------------------------------------------------------ both

    def forgive(self, flushed: dict[tuple[TopicPartition, int], set[int]], at_s: float) -> None:
        """All machines lost power: acknowledged or read records that were not flushed count no more."""
        self.has_lost_power = True
        self.forgotten.update(self.seen)
        for told in (self.acknowledged, self.seen):
            for place, number in list(told.items()):
                if number not in flushed.get(place, ()):
                    del told[place]
        self.history.forgive(flushed, at_s=at_s)
        self.extra.clear()

    def _compare(self, place: tuple[TopicPartition, int], number: int) -> None:
        """What was acknowledged at an offset and what was read there must be the same, at any time."""
        for told in (self.acknowledged.get(place), self.seen.get(place)):
            if told is not None and told != number:
                self.contradictions.append(f"{place} held {told}, then {number}")

"""Batches that a producer was told to send again, here or elsewhere, and what came right behind them. Pure.

A producer has several requests on their way to a broker. If the broker becomes the leader between two of
them, the first is refused with NOT_LEADER_OR_FOLLOWER and will be sent again, while the second finds a leader
and a gap before it. So it is when the ISR is large enough again, or the disk has room again, or has none any
more: then no later batch is appended either. OUT_OF_ORDER_SEQUENCE_NUMBER would be right, and does harm:
librdkafka begins a new producer epoch then, and sends all that is not acknowledged under new sequences, also
what is stored already: then it is there twice. A producer that is new to the log may even begin with the
second batch, and the first one is out of order for ever. So while the batch that belongs before it is one
that was refused here, the second is refused with NOT_LEADER_OR_FOLLOWER: both come again, in their order.
It may be refused before this broker has a replica (replicas.py), or because the coordinator of its
transaction cannot be asked. No leader is named to the producer: one that is told of a leader need not pause.
What the leader before has been sent, and has not replicated, nobody else has seen: it may be cut off, and the
producer waits for its answer. So for a time after another broker has led, every gap is refused that way.
Left to others: the checks of sequences (storage/log/producer_state.py), the append (partition.py).
Why: docs/decisions/0062-who-was-sent-away-is-waited-for.md,
docs/decisions/0066-a-new-leader-waits-for-what-the-old-one-was-sent.md
"""

from ...base.types import TopicPartition
from ...protocol.batches import SEQUENCES, BatchHeader
from ...protocol.errors import NotLeaderOrFollower
from ...storage.log.producer_state import ProducerState

KEPT_S = 30.0  # a producer sends again within its backoff, or begins a new epoch
BATCHES_MAX = 50_000  # of a broker; those of the producer that was refused longest ago make room
SEQUENCES_MAX = 64  # per producer and partition, likewise; clients have at most five requests on their way

Place = tuple[TopicPartition, int, int]  # and producer id and epoch


class RefusedBatches:
    """What a broker has refused, in all partitions together, also in those that have no replica here (yet):
    by partition, producer id and epoch the first sequences, and when.
    """

    __slots__ = ("_batches", "_of", "producers")

    def __init__(self) -> None:
        self.producers: dict[TopicPartition, int] = {}  # how many were refused in a partition
        self._of: dict[Place, dict[int, float]] = {}  # the latest stand last, here and of each producer
        self._batches = 0

    def __len__(self) -> int:
        return self._batches

    def add(self, tp: TopicPartition, header: BatchHeader, now: float) -> None:
        """This batch was refused, and will be sent again."""
        if header.producer_id < 0:
            return
        self.forget(now)
        place = tp, header.producer_id, header.producer_epoch
        sequences = self._drop(place)
        sequences.pop(header.base_sequence, None)
        sequences[header.base_sequence] = now
        if len(sequences) > SEQUENCES_MAX:
            del sequences[next(iter(sequences))]
        self._of[place] = sequences
        self._batches += len(sequences)
        self.producers[tp] = self.producers.get(tp, 0) + 1
        while self._batches > BATCHES_MAX:
            self._drop(next(iter(self._of)))

    def awaited(self, tp: TopicPartition, header: BatchHeader, now: float) -> set[int]:
        """The first sequences of what this producer will send again."""
        sequences = self._of.get((tp, header.producer_id, header.producer_epoch), {})
        return {sequence for sequence, at in sequences.items() if at + KEPT_S >= now}

    def forget(self, now: float) -> None:
        """What is not waited for any more. Producers that go on in their order do not ask for it again, and
        `check` costs each batch of a partition something as long as anything of it is here.
        """
        while self._of:
            place, sequences = next(iter(self._of.items()))
            if next(reversed(sequences.values())) + KEPT_S >= now:
                return
            self._drop(place)

    def _drop(self, place: Place) -> dict[int, float]:
        sequences = self._of.pop(place, None)
        if sequences is None:
            return {}
        self._batches -= len(sequences)
        tp = place[0]
        left = self.producers.pop(tp) - 1
        if left:
            self.producers[tp] = left
        return sequences


class SkippedBatches:
    """Which batches of one partition come too early."""

    __slots__ = ("_elsewhere_until", "_lacks_producers", "_refused", "_tp")

    def __init__(self, tp: TopicPartition, refused: RefusedBatches) -> None:
        self._tp = tp
        self._refused = refused
        self._lacks_producers = False  # who wrote only what this replica never had is unknown to it
        self._elsewhere_until = 0.0  # until then the leader before may hold what is missing; 0: it has none

    def __bool__(self) -> bool:
        """Whether `check` could refuse anything."""
        producers = self._refused.producers
        return self._elsewhere_until > 0 or (len(producers) > 0 and self._tp in producers)

    def taken_over(self, now: float) -> None:
        """Another broker has led until now, and may have been sent batches that are not here."""
        self._elsewhere_until = now + KEPT_S

    def began_later(self) -> None:
        """The log begins behind records that this replica has not seen. Whoever is unknown to it has probably
        written those, and goes on in its order: a gap is no surprise, and nobody fills it.
        """
        self._lacks_producers = True

    def refused(self, header: BatchHeader, now: float) -> None:
        """This batch was refused, and will be sent again."""
        self._refused.add(self._tp, header, now)

    def check(self, header: BatchHeader, known: ProducerState | None, now: float) -> None:
        """Raises NotLeaderOrFollower if the batch that should come before this one was refused, or may be on
        its way from the leader before; then this one comes again, too.
        """
        self._refused.forget(now)
        if self._elsewhere_until and now > self._elsewhere_until:
            self._elsewhere_until = 0.0
        if known is not None and known.epoch > header.producer_epoch:
            return  # fenced
        is_new = known is None or known.epoch != header.producer_epoch
        expected = 0 if known is None or is_new else (known.last_sequence + 1) % SEQUENCES
        ahead = (header.base_sequence - expected) % SEQUENCES
        if ahead == 0 or (ahead >= SEQUENCES // 2 and not is_new):
            return  # what was sent long ago comes again
        awaited = self._refused.awaited(self._tp, header, now)
        missing = min(awaited, default=SEQUENCES) < header.base_sequence if is_new else expected in awaited
        if missing or (self._elsewhere_until and not (known is None and self._lacks_producers)):
            self.refused(header, now)
            raise NotLeaderOrFollower("a batch before this one is to be sent again: send both")

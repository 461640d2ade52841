"""Which partition a record goes to: by hash of its key as in Kafka, or sticky when it has none.

A key goes to the same partition as from a Java client (murmur2, seed 0x9747b28c). Records without a key stay
with one partition until a batch is full, then move on, so that batches fill. Where batches leave before they
are full, for records are few, they move on after as many bytes as would fill one (KIP-794): else all would go
to one partition for ever.
"""

from collections.abc import Sequence
from functools import lru_cache
from random import Random
from struct import Struct

from ...base.types import TopicPartition

SEED = 0x9747B28C
M = 0x5BD1E995
MASK = 0xFFFFFFFF
REMEMBERED_BYTES_MAX = 256  # larger keys would stay in memory, thousands of them
_WORD = Struct("<I")


def murmur2(data: bytes) -> int:
    """Kafka's murmur2 as an unsigned 32-bit integer."""
    return _remembered(data) if len(data) <= REMEMBERED_BYTES_MAX else _murmur2(data)


def _murmur2(data: bytes) -> int:
    length = len(data)
    h = SEED ^ length
    end = length & ~3
    for (k,) in _WORD.iter_unpack(data[:end]):
        k = k * M & MASK
        k = (k ^ (k >> 24)) * M & MASK
        h = (h * M & MASK) ^ k
    if tail := data[end:]:
        h = (h ^ int.from_bytes(tail, "little")) * M & MASK
    h = (h ^ (h >> 13)) * M & MASK
    return h ^ (h >> 15)


_remembered = lru_cache(maxsize=4096)(_murmur2)


def partition_for_key(key: bytes, partitions: int) -> int:
    """As Kafka's default partitioner does it: over all partitions, led or not."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


class Sticky:
    """Chooses the partition of records without a key, per topic."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._chosen: dict[str, int] = {}
        self._had: dict[str, int] = {}  # bytes that have left since the last move
        self._before: dict[str, int] = {}  # the partition that had its share, until another one is chosen

    def current(self, topic: str, partitions: int) -> int | None:
        """The partition that is being filled, if one is."""
        chosen = self._chosen.get(topic)
        return chosen if chosen is not None and chosen < partitions else None

    def choose(self, topic: str, led: Sequence[int], partitions: int) -> int:
        """The partition to fill now: preferably one of those that have a leader (`led`)."""
        chosen = self.current(topic, partitions)
        if chosen is None:
            before = self._before.pop(topic, None)
            chosen = self._chosen[topic] = self._pick(led or range(partitions), before)
        return chosen

    def left(self, partition: TopicPartition, size: int, enough: int) -> None:
        """A batch of so many bytes was sent and nothing else waits there. After `enough` bytes the next
        record goes to another partition.
        """
        topic, number = partition
        if self._chosen.get(topic) != number:
            return
        had = self._had.get(topic, 0) + size
        if had >= enough:
            self._before[topic] = self._chosen.pop(topic)
            had = 0
        self._had[topic] = had

    def move_on(self, topic: str, led: Sequence[int], filled: int) -> None:
        """A batch for `filled` was closed: go to another partition if it is the one being filled."""
        if led and self._chosen.get(topic) == filled:
            self._had[topic] = 0
            self._chosen[topic] = self._pick(led, filled)

    def _pick(self, among: Sequence[int], besides: int | None) -> int:
        others = [partition for partition in among if partition != besides] or list(among)
        return others[self._random.randrange(len(others))]

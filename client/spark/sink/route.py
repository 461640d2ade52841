"""Where rows go, many at once: their partitions as Kafka's producer chooses them, and their batches.

A partition that the row names wins. A key goes where Kafka's murmur2 sends it. Rows without a key stay with
one partition for the size of a batch, then move on, so that batches fill.
Pure: randomness is handed in. Left to others: hashing one key at a time (../../producer/partitioner.py).
"""

from collections.abc import Sequence
from random import Random

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...producer.partitioner import SEED, M, Sticky, murmur2
from .encode import Ints
from .option_table import Spread

FEW_KEYS = 16  # are hashed one by one: numpy gains nothing
POSITIVE = 0x7FFFFFFF


class Router:
    """The partitions of rows; remembers where rows without a key go now."""

    def __init__(self, spread: Spread, batch_bytes: int, random: Random) -> None:
        self._spread = spread
        self._batch_bytes = batch_bytes
        self._sticky = Sticky(random)
        self._filled: dict[str, int] = {}  # bytes since the last move
        self._turn: dict[str, int] = {}

    def choose(
        self, topic: str, partitions: int, led: Sequence[int], keys: pa.Array | None, sizes: Ints
    ) -> Ints:
        """A partition for each row of a topic; those in `led` have a leader. `sizes` are bytes of records."""
        if self._spread is Spread.ROUND_ROBIN:
            return self._in_turn(topic, partitions, led, len(sizes))
        if keys is None or self._spread is Spread.STICKY:
            return self._stick(topic, partitions, led, sizes)
        chosen: Ints = (hashes(keys) & np.uint32(POSITIVE)).astype(np.int64) % partitions
        if keys.null_count:
            without = np.asarray(keys.is_null())
            chosen[without] = self._stick(topic, partitions, led, sizes[without])
        return chosen

    def _stick(self, topic: str, partitions: int, led: Sequence[int], sizes: Ints) -> Ints:
        if not len(sizes):
            return sizes
        ends = self._filled.get(topic, 0) + np.cumsum(sizes)
        turn = (ends - sizes) // self._batch_bytes
        moves = np.cumsum(np.diff(turn, prepend=0) > 0)  # a row may be as large as many batches
        places = [self._sticky.choose(topic, led, partitions)]
        for _ in range(int(moves[-1])):
            self._sticky.move_on(topic, led, places[-1])
            places.append(self._sticky.choose(topic, led, partitions))
        self._filled[topic] = int(ends[-1]) - int(turn[-1]) * self._batch_bytes
        chosen: Ints = np.array(places, np.int64)[moves]
        return chosen

    def _in_turn(self, topic: str, partitions: int, led: Sequence[int], rows: int) -> Ints:
        among = np.array(led or range(partitions), np.int64)
        begin = self._turn.get(topic, 0)
        self._turn[topic] = (begin + rows) % len(among)
        return among[(begin + np.arange(rows)) % len(among)]


def hashes(keys: pa.Array) -> npt.NDArray[np.uint32]:
    """Kafka's murmur2 of binary values; of null it is anything."""
    _, offsets, content = keys.buffers()
    ends = np.frombuffer(offsets, np.int32, len(keys) + 1, 4 * keys.offset).astype(np.int64)
    data = np.frombuffer(content or b"", np.uint8)
    length = np.diff(ends)
    longest = np.argsort(-length, kind="stable")
    length, start = length[longest], ends[:-1][longest]
    sorted_hash = _hashes(data, start, length)
    found = np.empty(len(keys), np.uint32)
    found[longest] = sorted_hash
    return found


def _hashes(data: npt.NDArray[np.uint8], start: Ints, length: Ints) -> npt.NDArray[np.uint32]:
    """Of values in the order of their lengths, the longest first: those with an nth word are the first."""
    found = (length ^ SEED).astype(np.uint32)
    words = length >> 2
    word_at: npt.NDArray[np.uint32] = np.ndarray((max(0, len(data) - 3),), "<u4", data, strides=(1,))
    factor, few = np.uint32(M), 0
    for nth, live in enumerate(_at_least(words).tolist()):
        if live <= FEW_KEYS:
            few = live
            break
        k = word_at[start[:live] + 4 * nth] * factor
        k ^= k >> np.uint32(24)
        k *= factor
        found[:live] *= factor
        found[:live] ^= k
    end = start + 4 * words
    for byte in (2, 1, 0):
        rest = np.flatnonzero((length & 3) > byte)
        found[rest] ^= data[end[rest] + byte].astype(np.uint32) << np.uint32(8 * byte)
    found[(length & 3) > 0] *= factor
    found ^= found >> np.uint32(13)
    found *= factor
    found ^= found >> np.uint32(15)
    for at in range(few):
        found[at] = murmur2(data[start[at] : start[at] + length[at]].tobytes())
    return found


def _at_least(words: Ints) -> Ints:
    """How many values have more than n words, for each n up to the largest number."""
    most = int(words[0]) if len(words) else 0
    return np.searchsorted(-words, -np.arange(most), side="left").astype(np.int64)


def batches(place: Ints, sizes: Ints, batch_bytes: int) -> tuple[Ints, Ints]:
    """Rows in the order of their batches, and where each batch begins, with the end.

    A batch has one place, keeps the order of its rows, and is at most so large, unless it is a single row.
    """
    kind = np.uint16 if len(place) and int(place.max()) < 1 << 16 else np.int64
    order = np.argsort(place.astype(kind), kind="stable")
    there = place[order]
    ends = np.cumsum(sizes[order])
    last_of_place = np.flatnonzero(np.append(there[1:] != there[:-1], True)) + 1
    first = [0]
    for stop in last_of_place.tolist():
        while first[-1] < stop:
            begin = first[-1]
            room = batch_bytes + (int(ends[begin - 1]) if begin else 0)
            full = int(np.searchsorted(ends, room, side="right"))
            first.append(min(stop, max(full, begin + 1)))
    return order, np.array(first, np.int64)

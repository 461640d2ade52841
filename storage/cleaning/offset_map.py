"""OffsetMap: the last offset of each key, by the key's hash. Twenty-four bytes a slot, within a given limit.

An open-addressed table as three numpy arrays. A run of keys is put or looked up at once; those that collide
go on together to their next slots.
Left to others: the hash of a key (keys.py), how far a map reaches (clean.py).
Why: docs/decisions/0021-keys-by-keyed-hash.md
"""

import numpy as np

from ...protocol.column_fields import Ints
from .keys import Hashes, Words

SLOT_BYTES = 24
SLOTS_MIN = 5
ABSENT = -1


class OffsetMap:
    """A map with `room` for so many keys. Up to offset `latest` it has the last offset of every key."""

    def __init__(self, bytes_max: int, load_factor: float) -> None:
        slots = _prime_up_to(max(bytes_max // SLOT_BYTES, SLOTS_MIN))
        self.room = min(max(int(slots * load_factor), 1), slots - 1)  # a search ends at an empty slot
        self.count = 0
        self.latest = ABSENT
        self._slots = np.uint64(slots)
        self._low = np.zeros(slots, np.uint64)
        self._high = np.zeros(slots, np.uint64)
        self._offset = np.full(slots, ABSENT, np.int64)

    @property
    def nbytes(self) -> int:
        """The bytes of the table."""
        return self._low.nbytes + self._high.nbytes + self._offset.nbytes

    def put(self, keys: Hashes, offset: Ints) -> int:
        """Store offsets, which rise and are above all earlier ones; returns how many were stored.

        The first key without room is left out, and so is everything after it.
        """
        assert len(keys.low) == len(keys.high) == len(offset), "each key has its offset"
        fits, left = len(offset), self.room - self.count
        first, last = _occurrences(keys)
        if len(first) > left:
            unknown = np.sort(first[self.get(_at(keys, first)) == ABSENT])
            if len(unknown) > left:
                fits = int(unknown[left])
                keys, offset = Hashes(keys.low[:fits], keys.high[:fits]), offset[:fits]
                _, last = _occurrences(keys)
        self._store(_at(keys, last), offset[last])
        assert self.count <= self.room, "a search ends at an empty slot"
        return fits

    def get(self, keys: Hashes) -> Ints:
        """The last offset of each key; ABSENT if it is not in the map."""
        found = np.full(len(keys.low), ABSENT, np.int64)
        at, step = self._path(keys)
        left = np.arange(len(found))
        while left.size:
            slot = at[left]
            offset = self._offset[slot]
            same = (self._low[slot] == keys.low[left]) & (self._high[slot] == keys.high[left])
            taken = offset != ABSENT
            hit = same & taken
            found[left[hit]] = offset[hit]
            left = left[~same & taken]
            at[left] = (at[left] + step[left]) % self._slots
        return found

    def _store(self, keys: Hashes, offset: Ints) -> None:
        """Store distinct keys with distinct offsets, for which there is room."""
        at, step = self._path(keys)
        left = np.arange(len(offset))
        while left.size:
            slot, mine = at[left], offset[left]
            empty = self._offset[slot] == ABSENT
            same = ~empty & (self._low[slot] == keys.low[left]) & (self._high[slot] == keys.high[left])
            self._offset[slot[same]] = mine[same]
            self._offset[slot[empty]] = mine[empty]  # several may want a slot: the last one written wins
            won = empty & (self._offset[slot] == mine)
            self._low[slot[won]] = keys.low[left[won]]
            self._high[slot[won]] = keys.high[left[won]]
            self.count += int(won.sum())
            left = left[~won & ~same]
            at[left] = (at[left] + step[left]) % self._slots

    def _path(self, keys: Hashes) -> tuple[Words, Words]:
        """First slot and step of each key's search; the number of slots is prime, so it visits all."""
        one = np.uint64(1)
        return keys.low % self._slots, keys.high % (self._slots - one) + one


def _at(keys: Hashes, places: Ints) -> Hashes:
    return Hashes(keys.low[places], keys.high[places])


def _occurrences(keys: Hashes) -> tuple[Ints, Ints]:
    """The places of the first and of the last occurrence of each key."""
    order = np.argsort(keys.low, kind="stable")
    low, high = keys.low[order], keys.high[order]
    differs = low[1:] != low[:-1]
    if bool((~differs & (high[1:] != high[:-1])).any()):
        order = np.lexsort((keys.high, keys.low))
        low, high = keys.low[order], keys.high[order]
        differs = (low[1:] != low[:-1]) | (high[1:] != high[:-1])
    edge = np.ones(len(order) + 1, bool)
    edge[1:-1] = differs
    if not len(order):
        return order, order
    return order[edge[:-1]], order[edge[1:]]


def _prime_up_to(number: int) -> int:
    while any(number % divisor == 0 for divisor in range(2, int(number**0.5) + 1)):
        number -= 1
    return number

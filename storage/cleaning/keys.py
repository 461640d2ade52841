"""Keys as 128-bit numbers: SipHash-2-4 with a secret, over many keys at once with numpy.

A cleaner keeps no keys, only these numbers, and takes equal numbers for equal keys. The secret is drawn for
each cleaning, so nobody can prepare two keys that collide. By chance two of a billion keys collide once in
10^20 cleanings.
Left to others: where the keys are (protocol/columns.py), what is kept for each (offset_map.py).
"""

from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from ...protocol.column_fields import Bytes, Ints

Words: TypeAlias = npt.NDArray[np.uint64]

SECRET_BYTES = 16
WORD = 8
ROUNDS_A_WORD = 2
ROUNDS_AT_END = 4
_INIT = (0x736F6D6570736575, 0x646F72616E646F6D, 0x6C7967656E657261, 0x7465646279746573)
_WIDE = np.uint64(0xEE)  # tells the 128-bit form from the other one
_WIDER = np.uint64(0xDD)
_TOP = np.uint64(56)
_BITS = np.uint64(64)
_MASK = np.array([(1 << 8 * count) - 1 for count in range(WORD)], np.uint64)


class Hashes(NamedTuple):
    """The two halves of each key's number."""

    low: Words
    high: Words


def hash_keys(array: Bytes, start: Ints, length: Ints, secret: bytes) -> Hashes:
    """The hash of each key `array[start : start + length]`; a null key counts as an empty one."""
    length = np.maximum(length, 0)
    if len(array) < WORD:
        array = np.concatenate([array, np.zeros(WORD, np.uint8)])
    words: Words = np.ndarray((len(array) - WORD + 1,), "<u8", np.ascontiguousarray(array), strides=(1,))
    state = _begun(secret, len(start))
    whole = length // WORD
    for nth in range(int(whole.max(initial=0))):
        here = np.flatnonzero(whole > nth)
        if len(here) == len(start):
            _take(state, words[start + WORD * nth])  # `take` would copy an unaligned array first
        else:
            part = [each[here] for each in state]
            _take(part, words[start[here] + WORD * nth])
            for each, changed in zip(state, part, strict=True):
                each[here] = changed
    _take(state, _last_words(words, start + WORD * whole, length))
    return _ended(state)


def _begun(secret: bytes, count: int) -> list[Words]:
    low, high = (np.uint64(int.from_bytes(secret[at : at + WORD], "little")) for at in (0, WORD))
    keyed = zip(_INIT, (low, high, low, high), strict=True)
    state = [np.full(count, np.uint64(constant) ^ half, np.uint64) for constant, half in keyed]
    state[1] ^= _WIDE
    return state


def _last_words(words: Words, at: Ints, length: Ints) -> Words:
    """The last, incomplete word of each key, with the key's length in the top byte."""
    rest = length % WORD
    reach = np.clip(at, 0, len(words) - 1)  # a key may end with the buffer: read earlier, and shift
    shift = np.minimum(at - reach, WORD - 1).astype(np.uint64) * np.uint64(8)
    found: Words = (words[reach] >> shift) & _MASK.take(rest)
    found |= length.astype(np.uint64) << _TOP
    return found


def _take(state: list[Words], word: Words) -> None:
    state[3] ^= word
    for _ in range(ROUNDS_A_WORD):
        _round(state)
    state[0] ^= word


def _ended(state: list[Words]) -> Hashes:
    state[2] ^= _WIDE
    halves = []
    for _ in range(2):
        for _ in range(ROUNDS_AT_END):
            _round(state)
        halves.append(state[0] ^ state[1] ^ state[2] ^ state[3])
        state[1] ^= _WIDER
    return Hashes(*halves)


def _round(state: list[Words]) -> None:
    a, b, c, d = state
    a += b
    b = _rotated(b, 13)
    b ^= a
    a = _rotated(a, 32)
    c += d
    d = _rotated(d, 16)
    d ^= c
    a += d
    d = _rotated(d, 21)
    d ^= a
    c += b
    b = _rotated(b, 17)
    b ^= c
    c = _rotated(c, 32)
    state[:] = a, b, c, d


def _rotated(word: Words, bits: int) -> Words:
    turned = word << np.uint64(bits)
    turned |= word >> (_BITS - np.uint64(bits))
    return turned

"""The receive memory of one connection, and the frames in it.

A frame is a view, not a copy, valid until the next `room()`. The bytearray is never resized, because views of
it exist; a larger frame gets a new one. A peer cannot make us allocate by announcing a huge frame: beyond
`TRUSTED_BYTES` the memory only doubles as bytes really arrive.
Left to others: when to read at all (connection.py), what a frame says (protocol/connection.py).
"""

from struct import Struct

from ...protocol.primitives import Malformed

START_BYTES = 64 << 10
BUSY_BYTES_MAX = 256 << 10  # a connection whose reads fill the arena gets up to this much
TRUSTED_BYTES = 4 << 20
FRAME_BYTES_MIN = 8  # the shortest request header: key, version, correlation id
TLS_HANDSHAKE = b"\x16\x03"
HTTP_VERBS = (b"GET ", b"POST", b"HEAD", b"PUT ", b"OPTI", b"DELE", b"CONN", b"PATC", b"PRI ")

_size_at = Struct(">i").unpack_from


class Arena:
    """Receive memory of one connection; `start` to `end` holds bytes that are not cut into frames yet."""

    __slots__ = ("_buffer", "_filled", "_frame_bytes_max", "_view", "end", "start", "wanted")

    def __init__(self, frame_bytes_max: int) -> None:
        self._frame_bytes_max = frame_bytes_max
        self._buffer = bytearray()
        self._view = memoryview(self._buffer)
        self.wanted = 0  # bytes of the frame that has begun, with its size field, once that is known
        self._filled = False
        self.start = 0
        self.end = 0

    @property
    def capacity(self) -> int:
        """Bytes of memory held now."""
        return len(self._buffer)

    @property
    def partial(self) -> bool:
        """Whether bytes are waiting for the rest of their frame, or for their turn."""
        return self.end > self.start

    def room(self) -> memoryview:
        """Where the next bytes go; never empty. All earlier views are invalid from here on."""
        if self.start == self.end:
            self.start = self.end = 0
        if self.end == 0 and self._filled and len(self._buffer) < BUSY_BYTES_MAX:
            self._replace(2 * len(self._buffer))
        elif self.end == len(self._buffer) or self.start + self.wanted > len(self._buffer):
            self._make_room()
        return self._view[self.end :]

    def received(self, count: int) -> None:
        """`count` bytes were written at the beginning of the last `room()`."""
        self.end += count
        self._filled = self.end == len(self._buffer)

    def frame(self) -> memoryview | None:
        """The next complete frame without its size field, or None. Raises Malformed for a bad size."""
        start = self.start
        have = self.end - start
        if have < 4:
            self.wanted = 4
            return None
        size: int = _size_at(self._buffer, start)[0]
        if not FRAME_BYTES_MIN <= size <= self._frame_bytes_max:
            raise Malformed(self._why_not(size))
        if have - 4 < size:
            self.wanted = 4 + size
            return None
        self.wanted = 0
        start += 4
        self.start = start + size
        return self._view[start : start + size]

    def release(self) -> None:
        """Give the memory back while the connection is idle."""
        if not self.partial:
            self._replace(0)

    def _make_room(self) -> None:
        have = self.end - self.start
        need = max(self.wanted, have + 1, START_BYTES)
        if need > len(self._buffer):
            self._replace(need if need <= TRUSTED_BYTES else min(need, max(TRUSTED_BYTES, 2 * have)))
        if self.start:
            self._view[:have] = self._view[self.start : self.end]
            self.start, self.end = 0, have

    def _replace(self, capacity: int) -> None:
        have = self.end - self.start
        buffer = bytearray(capacity)
        view = memoryview(buffer)
        view[:have] = self._view[self.start : self.end]
        self._buffer, self._view = buffer, view
        self._filled = False
        self.start, self.end = 0, have

    def _why_not(self, size: int) -> str:
        first = bytes(self._view[self.start : self.start + 4])
        if first in HTTP_VERBS:
            return "received HTTP: this port speaks the Kafka protocol"
        if first.startswith(TLS_HANDSHAKE):
            return "received TLS: this listener is PLAINTEXT"
        return f"a request of {size} bytes: expected {FRAME_BYTES_MIN} to {self._frame_bytes_max}"

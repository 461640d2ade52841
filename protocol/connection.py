"""Both ends of a connection without the socket: framing, headers, matching responses to requests.

A frame is a size of four bytes and that many bytes. Responses come in the order of the requests. So a client
keeps a queue, and a correlation id other than the oldest request's ends the connection.
Left to others: sockets, deadlines, bounds on requests in flight (broker/network/server.py,
client/network/connection.py).
Why memory is used again: docs/decisions/0068-memory-that-nobody-holds-is-filled-again.md
"""

import struct
from collections import deque
from typing import Any, NamedTuple

from .apis import APIS, Api, header_version, response_header_version
from .error_codes import ErrorCode
from .messages.produce import ProduceRequest
from .primitives import Buffer, Malformed, skip_tags
from .schema import DAMAGE, SPECS, decode, why_damaged

SIZE = struct.Struct(">i")
SIZE_AND_CORRELATION = struct.Struct(">ii")
SIZE_AND_CORRELATION_FLEXIBLE = struct.Struct(">iiB")
HEAD = struct.Struct(">hhih")
ERROR = struct.Struct(">h")
CORRELATION_MODULUS = 1 << 31
CHUNK_BYTES_MIN = 16 << 10
CHUNK_BYTES_MAX = 4 << 20  # allocated for a frame that has not arrived, if there was none so large before
KEPT_BYTES_MAX = 8 << 20  # of a chunk that is filled again, and of one for a frame that has not begun
KEPT_MAX = 4  # chunks: one is filled, two may wait for a consumer, one is in its hands
KEPT_EXCESS_MAX = 4  # a chunk so many times as large as is usual now is let go
USUAL_FADES = 4  # with each read that ends a frame a 16th of what was usual is forgotten
NOTHING = memoryview(b"")
UNSUPPORTED = int(ErrorCode.UNSUPPORTED_VERSION)


class RequestHead(NamedTuple):
    """The header of a request, and the position of its body."""

    api_key: int
    version: int
    correlation_id: int
    client_id: str | None
    body_at: int


# Whether the header of a request (api, version) has a tag buffer, and the header of its response.
_FLEXIBLE_REQUEST: dict[tuple[int, int], bool] = {
    (api, v): header_version(api, v) == 2 for api, entry in APIS.items() for v in entry.spec.versions
}
_FLEXIBLE_RESPONSE: dict[tuple[int, int], bool] = {
    (api, v): response_header_version(api, v) == 1 for api, entry in APIS.items() for v in entry.spec.versions
}
_RESPONSES: dict[int, type[Any]] = {api: entry.response for api, entry in APIS.items()}


def parse_head(frame: Buffer) -> RequestHead:
    """Read the header of a request. If we do not know the request, the tag buffer counts as body."""
    try:
        key, version, correlation_id, size = HEAD.unpack_from(frame, 0)
        body_at, client_id = HEAD.size, None
        if size >= 0:
            body_at += size
            if body_at > len(frame):
                raise Malformed("client_id ends beyond the frame")
            client_id = str(frame[HEAD.size : body_at], "utf-8")
        elif size != -1:
            raise Malformed("client_id has a negative length")
        if _FLEXIBLE_REQUEST.get((key, version)):
            body_at = body_at + 1 if frame[body_at] == 0 else _behind_tags(frame, body_at)
    except DAMAGE as error:
        raise Malformed(f"request header: {why_damaged(error)}") from error
    return RequestHead(key, version, correlation_id, client_id, body_at)


def _behind_tags(frame: Buffer, pos: int) -> int:
    """Skip the tag buffer of a header; we know no header tags."""
    if frame[pos] == 0:
        return pos + 1
    return skip_tags(frame, pos + 1, frame[pos], len(frame), "Header", None)


def frame_response(api: int, version: int, correlation_id: int, response: object) -> list[Buffer]:
    """The parts of a framed response, its size first. Only records are separate parts, never copied."""
    parts: list[Buffer] = [b""]
    spec = SPECS[type(response)]
    spec.encoder(version)(response, parts)
    size = sum(map(len, parts))
    if _FLEXIBLE_RESPONSE[api, version]:
        parts[0] = SIZE_AND_CORRELATION_FLEXIBLE.pack(size + 5, correlation_id, 0)
    else:
        parts[0] = SIZE_AND_CORRELATION.pack(size + 4, correlation_id)
    return parts if spec.carries_records else [b"".join(parts)]


class Waiting(NamedTuple):
    """A request without a response yet."""

    correlation_id: int
    api: int
    version: int


class ClientEnd:
    """Frames requests and reads the responses, which come in the same order."""

    def __init__(self, client_id: str | None) -> None:
        name = (client_id or "").encode()
        self._client_id = name
        self._client_id_size = -1 if client_id is None else len(name)
        self._next_correlation_id = 0
        self._waiting: deque[Waiting] = deque()

    @property
    def waiting(self) -> int:
        """How many requests have no response yet."""
        return len(self._waiting)

    def send(self, request: object, version: int) -> list[Buffer]:
        """The parts of the framed request. Only a produce with acks=0 gets no response."""
        spec = SPECS[type(request)]
        correlation_id = self._next_correlation_id
        self._next_correlation_id = (correlation_id + 1) % CORRELATION_MODULUS
        head = HEAD.pack(spec.key, version, correlation_id, self._client_id_size) + self._client_id
        if _FLEXIBLE_REQUEST[spec.key, version]:
            head += b"\0"
        parts: list[Buffer] = [b""]
        spec.encoder(version)(request, parts)
        parts[0] = SIZE.pack(sum(map(len, parts)) + len(head)) + head
        if not (isinstance(request, ProduceRequest) and request.acks == 0):
            self._waiting.append(Waiting(correlation_id, spec.key, version))
        return parts if spec.carries_records else [b"".join(parts)]

    def receive(self, frame: Buffer) -> tuple[int, Any]:
        """The correlation id and the response in `frame`."""
        if not self._waiting:
            raise Malformed("a response without a pending request")
        waiting = self._waiting.popleft()
        if len(frame) < SIZE.size:
            raise Malformed("a response without a correlation id")
        (correlation_id,) = SIZE.unpack_from(frame, 0)
        if correlation_id != waiting.correlation_id:
            raise Malformed(
                f"correlation id {correlation_id} in a response: expected {waiting.correlation_id}"
            )
        response, end = _read_response(waiting, frame)
        if end != len(frame):
            raise Malformed(
                f"{len(frame) - end} bytes are left after {type(response).__name__} v{waiting.version}"
            )
        return correlation_id, response


def _read_response(waiting: Waiting, frame: Buffer) -> tuple[Any, int]:
    api, version, body_at = waiting.api, waiting.version, SIZE.size
    try:
        if _FLEXIBLE_RESPONSE[api, version]:
            body_at = _behind_tags(frame, body_at)
        elif api == Api.API_VERSIONS and ERROR.unpack_from(frame, body_at)[0] == UNSUPPORTED:
            version = 0  # a broker that does not know our version answers in version 0
    except DAMAGE as error:
        raise Malformed(f"response header: {why_damaged(error)}") from error
    return decode(_RESPONSES[api], version, frame, body_at)


class FrameSplitter:
    """Splits a stream of bytes into frames. The work is linear in the bytes, however they arrive.

    Bytes are received in place, and a frame is a view that stays valid as long as somebody holds it. A chunk
    of which nobody holds a frame is filled again: for a new one Python writes zeroes, and the system finds
    pages. It has room for the largest frame of late and some more. A frame that is larger moves to another
    chunk, soon after its size is known. A large claimed size costs nothing: beyond what earlier frames had,
    memory doubles only as bytes really arrive.
    """

    __slots__ = ("_chunk", "_end", "_kept", "_start", "_usual", "_wanted", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._chunk = NOTHING
        self._kept: list[bytearray] = []  # the chunks, also those whose frames are in use
        self._start = 0  # of the first frame that is not complete
        self._end = 0  # of the received bytes
        self._wanted = SIZE.size  # bytes needed from `_start` on before parsing is worth it
        self._usual = SIZE.size  # bytes for a frame like the largest of late, or somewhat larger

    def room(self) -> memoryview:
        """Where the next bytes go; never empty."""
        size, left = len(self._chunk), len(self._chunk) - self._start
        if self._end > self._start:
            fits = left >= self._believed()
        else:
            ahead = min(self._usual, KEPT_BYTES_MAX)
            fits = left >= ahead and size <= KEPT_EXCESS_MAX * max(ahead, CHUNK_BYTES_MIN)
        if not fits or self._end == size:
            self._move()
        return self._chunk[self._end :]

    def received(self, count: int) -> list[memoryview]:
        """`count` bytes were written at the start of the last `room()`; returns the frames they complete."""
        self._end += count
        frames: list[memoryview] = []
        if self._end - self._start < self._wanted:
            return frames
        view, pos, end = self._chunk, self._start, self._end
        self._wanted = SIZE.size
        self._usual -= self._usual >> USUAL_FADES
        while end - pos >= SIZE.size:
            (size,) = SIZE.unpack_from(view, pos)
            if not 0 <= size <= self.limit:
                raise Malformed(f"a frame of {size} bytes exceeds the limit of {self.limit}")
            if size > end - pos - SIZE.size:
                self._wanted = SIZE.size + size
                break
            pos += SIZE.size
            frames.append(view[pos : pos + size].toreadonly())
            pos += size
            self._usual = max(self._usual, SIZE.size + size + (size >> 2))
        self._start = pos
        return frames

    def feed(self, data: Buffer) -> list[memoryview]:
        """The frames that `data` completes, for a caller that has bytes instead of receiving into `room`."""
        frames: list[memoryview] = []
        left = memoryview(data)
        while left:
            room = self.room()
            count = min(len(room), len(left))
            room[:count] = left[:count]
            frames += self.received(count)
            left = left[count:]
        return frames

    def _believed(self) -> int:
        """What the frame that has begun says it needs, as far as that is like what came before."""
        return min(self._wanted, max(self._usual, CHUNK_BYTES_MAX))

    def _move(self) -> None:
        have = self._end - self._start
        begun = self._chunk[self._start : self._end] if have else NOTHING
        ahead = min(self._usual, KEPT_BYTES_MAX)
        need = max(ahead, self._believed(), min(self._wanted, 2 * have), CHUNK_BYTES_MIN)
        self._chunk = NOTHING  # without a frame in it, its memory may be the next
        self._chunk = memoryview(self._memory(need))
        self._chunk[:have] = begun
        self._start, self._end = 0, have

    def _memory(self, size: int) -> bytearray:
        """At least `size` bytes: a chunk of which nobody holds a frame, or a new one."""
        kept = [memory for memory in self._kept if size <= len(memory) <= KEPT_EXCESS_MAX * size]
        found = next(filter(_is_free, kept), None)
        if found is None:
            found = bytearray(size)
            if size <= KEPT_BYTES_MAX:
                kept.append(found)
        self._kept = kept[-KEPT_MAX:]  # whoever holds a frame of an earlier one keeps that alive
        return found


def _is_free(memory: bytearray) -> bool:
    """Whether nobody has a view of it, nor an array, nor a Buffer of Arrow: Python resizes it only then."""
    try:
        memory.append(memory.pop())
    except BufferError:
        return False
    return True

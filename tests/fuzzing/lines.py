"""Connections side by side: each gets many frames in one write, and in the end one that must close it.

While the broker works on the frames of one connection, those of the next are drawn. What may not be sent
together is not: a frame that ends the connection waits until all before it are answered.
Left to others: what is sent (drawing.py), what answers are worth (judging.py).
"""

import socket
import struct
from collections import Counter, deque
from dataclasses import dataclass, field
from random import Random

from tests.fuzzing.drawing import Drawing
from tests.fuzzing.judging import Judge
from tests.fuzzing.model import Asked

LINES = 12
TOGETHER = (1, 8, 16, 16, 24, 32)
WRITES = (1, 2, 3)  # of a connection, before the frame that ends it
BROKEN_SHARE = 0.2
ENDLESS_SHARE, SILENT_SHARE = 0.06, 0.04  # of the frames that end a connection
SPARE_MAX = 200
ANSWER_S = 30.0
RECEIVE_BYTES = 1 << 18
ANSWER_BYTES_MAX = 64 << 20


@dataclass
class Sent:
    """What the broker has read: it has answered it, or has closed the connection because of it."""

    whole: Counter[tuple[str, int]] = field(default_factory=Counter)  # by API and version
    damaged: int = 0  # and a request all the same; among the whole ones
    ended: Counter[str] = field(default_factory=Counter)  # how connections were ended

    @property
    def frames(self) -> int:
        return self.whole.total() + self.ended.total()


class Gone(Exception):
    """The connection has ended before it should have, or the broker does not answer."""


class Line:
    """One connection after the other."""

    def __init__(self, port: int, timeout_s: float) -> None:
        self.port, self.timeout_s = port, timeout_s
        self.socket: socket.socket | None = None
        self.writes_left = 0
        self.correlation_id = 0
        self.asked: deque[Asked] = deque()
        self.last: tuple[str, bytes] | None = None  # the frame that ends it, once it is sent
        self._data = bytearray()
        self._room = memoryview(bytearray(RECEIVE_BYTES))

    def opened(self) -> socket.socket:
        """The connection, a new one if need be."""
        if self.socket is None:
            self.socket = socket.create_connection(("127.0.0.1", self.port), self.timeout_s)
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._data.clear()
        return self.socket

    def answers(self, count: int) -> list[bytes]:
        """The next answers. Raises Gone with those that have come, if others have not."""
        data, found, pos = self._data, list[bytes](), 0
        while len(found) < count:
            have = len(data) - pos
            size = struct.unpack_from(">i", data, pos)[0] if have >= 4 else 0
            if not 0 <= size <= ANSWER_BYTES_MAX:
                raise Gone(found, f"an answer of {size} bytes")
            if have >= 4 and have - 4 >= size:
                found.append(bytes(memoryview(data)[pos + 4 : pos + 4 + size]))
                pos += 4 + size
            elif not (more := self._received()):
                raise Gone(found, "the connection ended" if more == 0 else "nothing came")
            else:
                data += self._room[:more]
        del data[:pos]
        return found

    def ended(self) -> str | None:
        """Wait for the end of the connection. Returns what is wrong about it."""
        more = self._received()
        if self._data or more:
            return f"{len(self._data) + (more or 0)} bytes came"
        return "it stayed open" if more is None else None

    def close(self) -> None:
        if self.socket is not None:
            self.socket.close()
        self.socket = None
        self.asked.clear()
        self.last = None

    def _received(self) -> int | None:
        """Receive something: 0 at the end of the connection, None if nothing comes."""
        assert self.socket is not None
        try:
            return self.socket.recv_into(self._room)
        except TimeoutError:
            return None
        except ConnectionError:
            return 0


class Lines:
    """All connections, and what was sent on them."""

    def __init__(
        self, random: Random, drawing: Drawing, judge: Judge, port: int, wait_s: float = ANSWER_S
    ) -> None:
        self.random, self.drawing, self.judge = random, drawing, judge
        self.sent = Sent()
        self.lines = [Line(port, wait_s) for _ in range(LINES)]
        self._spare: deque[bytes] = deque(maxlen=SPARE_MAX)  # frames that must end a connection

    def round(self) -> None:
        """On each connection: take the answers to what was sent, send more."""
        for line in self.lines:
            self._collect(line)
            if self.judge.complaints:
                return  # the others might wait for as long as this one
            try:
                self._send(line)
            except OSError as error:
                self.judge.complaints.append(f"the broker takes no frames: {error}")
                line.close()
                return

    def settle(self) -> None:
        """Take all answers: then nothing is on its way."""
        for line in self.lines:
            if not self.judge.complaints:
                self._collect(line)

    def close(self) -> None:
        for line in self.lines:
            line.close()

    def _send(self, line: Line) -> None:
        if line.socket is None:
            line.writes_left = self.random.choice(WRITES)
        if line.writes_left == 0:
            return self._send_last(line)
        line.writes_left -= 1
        frames: list[bytes] = []
        for _ in range(self.random.choice(TOGETHER)):
            asked = self._drawn(line)
            if asked is not None:
                line.asked.append(asked)
                frames.append(asked.frame)
        line.opened().sendall(b"".join(frames))
        return None

    def _drawn(self, line: Line) -> Asked | None:
        line.correlation_id += 1
        if self.random.random() >= BROKEN_SHARE:
            return self.drawing.whole(line.correlation_id)
        frame, asked = self.drawing.broken(line.correlation_id)
        if asked is None:
            self._spare.append(frame)
        else:
            self.sent.damaged += 1
        return asked

    def _send_last(self, line: Line) -> None:
        way, opened = self.random.random(), line.opened()
        line.correlation_id += 1
        if way < ENDLESS_SHARE:
            line.last = "endless", self.drawing.endless(line.correlation_id)
        elif way < ENDLESS_SHARE + SILENT_SHARE:
            line.last = "silent", self.drawing.silent(line.correlation_id)
        else:
            line.last = "malformed", self._malformed(line)
        opened.sendall(line.last[1])
        if line.last[0] != "malformed":
            opened.shutdown(socket.SHUT_WR)  # the broker may wait for the rest, or for more

    def _malformed(self, line: Line) -> bytes:
        while not self._spare:
            frame, asked = self.drawing.broken(line.correlation_id)
            if asked is None:
                return frame
        return self._spare.popleft()

    def _collect(self, line: Line) -> None:
        if line.socket is None:
            return
        if line.last is not None:
            self._collect_end(line, *line.last)
            return
        try:
            answers = line.answers(len(line.asked))
        except Gone as gone:
            answers, why = gone.args
            self._look(line, answers)
            self.judge.complain(line.asked[0], f"no answer, {why}")
            line.close()
            return
        self._look(line, answers)

    def _look(self, line: Line, answers: list[bytes]) -> None:
        whole = self.sent.whole
        for answer in answers:
            asked = line.asked.popleft()
            whole[asked.api.name, asked.version] += 1
            self.judge.look(asked, answer)

    def _collect_end(self, line: Line, kind: str, frame: bytes) -> None:
        if (wrong := line.ended()) is None:
            self.sent.ended[kind] += 1
        else:
            self.judge.complaints.append(f"{wrong} after a frame that is {kind}: {frame[:2000].hex()}")
        line.close()

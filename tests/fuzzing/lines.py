"""Connections side by side: each gets many frames in one write, and in the end one that must close it.

While the broker works on the frames of one connection, those of the next are drawn. What may not be sent
together is not: a frame that ends the connection waits until all before it are answered.
Left to others: what is sent (drawing.py), what answers are worth (judging.py).
"""

import select
import socket
import struct
import time
from collections import Counter, deque
from dataclasses import dataclass, field
from random import Random

from tests.fuzzing.drawing import Drawing
from tests.fuzzing.judging import Judge
from tests.fuzzing.model import Asked

LINES = 12
TOGETHER = (1, 16, 32, 32, 48, 64)
WRITES = (1, 1, 2)  # of a connection, before the frame that ends it
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
    """The connection has ended before it should have, or what came on it is no answer."""


class Line:
    """One connection after the other."""

    def __init__(self, port: int, wait_s: float) -> None:
        self.port, self.wait_s = port, wait_s
        self.socket: socket.socket | None = None
        self.writes_left = 0
        self.correlation_id = 0
        self.asked: deque[Asked] = deque()
        self.last: tuple[str, bytes] | None = None  # the frame that ends it, once it is sent
        self.overdue_at = 0.0
        self._data = bytearray()
        self._room = memoryview(bytearray(RECEIVE_BYTES))

    @property
    def waits(self) -> bool:
        """Whether something must come."""
        return bool(self.asked) or self.last is not None

    def write(self, data: bytes) -> None:
        """Send on the connection, a new one if need be."""
        if self.socket is None:
            self.socket = socket.create_connection(("127.0.0.1", self.port), self.wait_s)
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._data.clear()
        self.socket.sendall(data)
        self.overdue_at = time.monotonic() + self.wait_s

    def answers(self) -> list[bytes]:
        """Receive once; the answers that are complete now. Raises Gone with those before the trouble."""
        received, data, found, pos = self._received(), self._data, list[bytes](), 0
        data += self._room[:received]
        while (have := len(data) - pos) >= 4:
            size = struct.unpack_from(">i", data, pos)[0]
            if not 0 <= size <= ANSWER_BYTES_MAX or len(found) == len(self.asked):
                raise Gone(found, f"an answer of {size} bytes came")
            if have - 4 < size:
                break
            found.append(bytes(memoryview(data)[pos + 4 : pos + 4 + size]))
            pos += 4 + size
        del data[:pos]
        if not received:
            raise Gone(found, "the connection ended")
        return found

    def ended(self) -> str | None:
        """The connection must have ended. Returns what is wrong about it."""
        received = self._received()
        return f"{received} bytes came" if received else None

    def close(self) -> None:
        if self.socket is not None:
            self.socket.close()
        self.socket = None
        self.asked.clear()
        self.last = None

    def _received(self) -> int:
        """Receive something; 0 at the end of the connection."""
        assert self.socket is not None
        try:
            return self.socket.recv_into(self._room)
        except ConnectionError:
            return 0


class Lines:
    """All connections, and what was sent on them."""

    def __init__(
        self, random: Random, drawing: Drawing, judge: Judge, port: int, wait_s: float = ANSWER_S
    ) -> None:
        self.random, self.drawing, self.judge = random, drawing, judge
        self.sent = Sent()
        self.wait_s = wait_s
        self.lines = [Line(port, wait_s) for _ in range(LINES)]
        self._spare: deque[bytes] = deque(maxlen=SPARE_MAX)  # frames that must end a connection

    def round(self) -> None:
        """Send on each connection on which nothing is awaited, then take what has come."""
        for line in self.lines:
            if not line.waits and not self.judge.complaints:
                self._send(line)
        self._take()

    def settle(self) -> None:
        """Take all answers: then nothing is on its way."""
        while not self.judge.complaints and any(line.waits for line in self.lines):
            self._take()

    def close(self) -> None:
        for line in self.lines:
            line.close()

    def _take(self) -> None:
        """Wait until something comes on a connection, and take what has come on all of them."""
        waiting = {line.socket: line for line in self.lines if line.waits}
        if not waiting or self.judge.complaints:
            return
        ready, _, _ = select.select(list(waiting), [], [], self.wait_s)
        for each in ready:
            self._collect(waiting[each])
        now = time.monotonic()
        for line in waiting.values():
            if line.waits and line.overdue_at < now and not self.judge.complaints:
                self._overdue(line)

    def _overdue(self, line: Line) -> None:
        if line.last is None:
            self.judge.complain(line.asked[0], "no answer, nothing came")
        else:
            kind, frame = line.last
            self.judge.complaints.append(f"it stayed open after a frame that is {kind}: {frame[:2000].hex()}")
        line.close()

    def _send(self, line: Line) -> None:
        if line.socket is None:
            line.writes_left = self.random.choice(WRITES)
        try:
            if line.writes_left == 0:
                self._send_last(line)
            else:
                line.writes_left -= 1
                self._send_some(line)
        except OSError as error:
            self.judge.complaints.append(f"the broker takes no frames: {error}")
            line.close()

    def _send_some(self, line: Line) -> None:
        frames: list[bytes] = []
        for _ in range(self.random.choice(TOGETHER)):
            asked = self._drawn(line)
            if asked is not None:
                line.asked.append(asked)
                frames.append(asked.frame)
        line.write(b"".join(frames))

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
        way = self.random.random()
        line.correlation_id += 1
        if way < ENDLESS_SHARE:
            line.last = "endless", self.drawing.endless(line.correlation_id)
        elif way < ENDLESS_SHARE + SILENT_SHARE:
            line.last = "silent", self.drawing.silent(line.correlation_id)
        else:
            line.last = "malformed", self._malformed(line)
        line.write(line.last[1])
        if line.last[0] != "malformed" and line.socket is not None:
            line.socket.shutdown(socket.SHUT_WR)  # the broker may wait for the rest, or for more

    def _malformed(self, line: Line) -> bytes:
        while not self._spare:
            frame, asked = self.drawing.broken(line.correlation_id)
            if asked is None:
                return frame
        return self._spare.popleft()

    def _collect(self, line: Line) -> None:
        if line.last is not None:
            return self._collect_end(line, *line.last)
        try:
            return self._look(line, line.answers())
        except Gone as gone:
            answers, why = gone.args
            self._look(line, answers)
            if line.asked:
                self.judge.complain(line.asked[0], f"no answer, {why}")
            else:
                self.judge.complaints.append(f"after all answers, {why}")
            return line.close()

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

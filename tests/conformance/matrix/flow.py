"""Records that flow in the background: a sender that goes on sending, members that go on reading."""

import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self

from driving import Read, until

EVERY_S = 0.005
LOOK_S = 1.0


class Background:
    """Threads that run until the end; what one of them raises is raised to who waits or ends them."""

    def __init__(self) -> None:
        self.ended = threading.Event()
        self.threads: list[threading.Thread] = []
        self.errors: list[Exception] = []

    def work(self) -> None:
        """What each thread does; told apart by what the subclass starts."""

    def begin(self, *works: Any) -> None:
        for one in works:
            self.threads.append(threading.Thread(target=self._guarded, args=(one,), daemon=True))
            self.threads[-1].start()

    def _guarded(self, one: Any) -> None:
        try:
            one()
        except Exception as error:  # told by `wait` or `end`
            self.errors.append(error)

    def wait(self, true: Any, what: str, wait_s: float = 60) -> None:
        """Until it is true, or a thread has failed."""
        until(lambda: self.errors or true(), what, wait_s)
        if self.errors:
            raise AssertionError(f"while waited for: {what}") from self.errors[0]

    def end(self) -> None:
        """No more; raises what a thread has raised."""
        self.ended.set()
        for thread in self.threads:
            thread.join(90)
            assert not thread.is_alive(), "a call of the client did not return within 90 s"
        if self.errors:
            raise self.errors[0]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.ended.set()
        for thread in self.threads:
            thread.join(90)


class Writing(Background):
    """Numbered records, one every few milliseconds; `acked` tells when each was acknowledged."""

    def __init__(self, sender: Any) -> None:
        super().__init__()
        self.sender = sender
        self.sent = 0
        self.acked: dict[bytes, float] = {}
        self.flows = threading.Event()
        self.flows.set()
        self.begin(self._send)

    def _send(self) -> None:
        while not self.ended.is_set():
            if not self.flows.wait(LOOK_S):
                continue
            self._send_one(f"{self.sent}".encode())
            self.sent += 1
            time.sleep(EVERY_S)

    def _send_one(self, value: bytes) -> None:
        self.sender.send(value, lambda: self.acked.setdefault(value, time.monotonic()))

    def more(self, count: int, what: str) -> None:
        """Wait for so many more acknowledgements of what is sent from now on."""
        first = self.sent
        self.wait(lambda: sum(int(value) >= first for value in [*self.acked]) >= count, what)

    def pause(self) -> None:
        """Send nothing more until `flows` is set; return when everything is acknowledged."""
        self.flows.clear()
        self.wait(lambda: len(self.acked) == self.sent, "everything is acknowledged")

    def finish(self) -> None:
        """Stop, and wait until everything is settled."""
        self.end()
        self.sender.flush()


class Feeding(Writing):
    """The same by the bundled client, to one partition after the other."""

    def __init__(self, sender: Any, partitions: int) -> None:
        self.partitions = partitions
        super().__init__(sender)

    def _send_one(self, value: bytes) -> None:
        partition = self.sent % self.partitions
        self.sender.send(value, lambda: self.acked.setdefault(value, time.monotonic()), partition)


class Reading(Background):
    """Members that read, each in a thread of its own, from which alone it is called (Java's refuses others,
    and librdkafka's hangs); `reads` tells who read what when, `assigned` what each has.
    """

    def __init__(self, *members: Any) -> None:
        super().__init__()
        self.members = members
        self.reads: list[tuple[float, int, Read]] = []
        self.assigned: list[set[int]] = [set() for _ in members]
        self.leaving = [threading.Event() for _ in members]
        self.begin(*(lambda number=number: self._read(number) for number in range(len(members))))

    def _read(self, number: int) -> None:
        while not self.ended.is_set() and not self.leaving[number].is_set():
            self._keep(number, self.members[number].poll())
            self.assigned[number] = self.members[number].assignment()

    def _keep(self, number: int, found: list[Read]) -> None:
        at = time.monotonic()
        self.reads.extend((at, number, one) for one in found)

    def leave(self, number: int, close: Callable[[], None]) -> None:
        """This member is polled no more, and closed."""
        self.leaving[number].set()
        self.threads[number].join(60)
        close()
        if hasattr(self.members[number], "rest"):
            self._keep(number, self.members[number].rest())

    @property
    def values(self) -> set[bytes]:
        """Everything that was read."""
        return {one.row.value for _, _, one in [*self.reads] if one.row.value is not None}

    def lines(self, partitions: Sequence[int]) -> list[list[float]]:
        """When each partition brought something that it had not brought before."""
        seen: set[tuple[int, int]] = set()
        lines: dict[int, list[float]] = {one: [] for one in partitions}
        for at, _, one in [*self.reads]:
            if (one.partition, one.offset) not in seen:
                seen.add((one.partition, one.offset))
                lines[one.partition].append(at)
        return list(lines.values())

    def more(self, partitions: Sequence[int], count: int, what: str) -> None:
        """Wait until each partition has brought so many more records."""
        before = [len(line) for line in self.lines(partitions)]

        def flows() -> bool:
            now = map(len, self.lines(partitions))
            return all(after - first >= count for first, after in zip(before, now, strict=True))

        self.wait(flows, what)

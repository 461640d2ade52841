"""Who dials the ports that users have, 9092 to 9094, is found out: the compose cluster may stand there.

A test that means a cluster of its own and forgets to say so is refused as a rule, and now and then answered
by the cluster of tests/docker, which stays up beside other files. So while tests run somebody listens there,
takes down who comes, and hangs up; a broker without `listeners` of its own does not start beside that.
tests/docker borrows the ports. A run with callers fails and names them. `make test` watches, and so does any
run with `-n`.
Where another process has the ports, nobody watches: of two runs on one machine the second does not.
"""

import os
import select
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PORTS = (9092, 9093, 9094, 9192, 9193, 9194)
VARIABLE = "TESTS_BORROW_PORTS_BY"
"""Where tests find how to borrow the ports."""

LOOK_S = 0.1
LEND_S = 30.0


class Watch:
    """Listens on `ports` of 127.0.0.1 in a thread, from `start` to `stop`. `callers` says who came."""

    def __init__(self, ports: tuple[int, ...] = PORTS) -> None:
        self.ports, self.callers = ports, list[str]()
        self._place = tempfile.TemporaryDirectory(prefix="tests-ports-")
        self._wanted, self._lent = _files(Path(self._place.name) / "ports")
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="default ports", daemon=True)

    def start(self) -> None:
        os.environ[VARIABLE] = str(Path(self._place.name) / "ports")
        self._thread.start()

    def stop(self) -> None:
        """End, once everybody who has come is noted."""
        self._ended.set()
        self._thread.join()
        os.environ.pop(VARIABLE, None)
        self._place.cleanup()

    def _run(self) -> None:
        doors: dict[int, socket.socket] = {}
        while True:
            last = self._ended.is_set()
            self._hear(doors, 0 if last else LOOK_S)
            if last or self._wanted.exists():
                for door in doors.values():
                    door.close()
                doors.clear()
                if last:
                    return
                self._lent.touch()
            else:
                self._lent.unlink(missing_ok=True)
                for port in self.ports:
                    if port not in doors:
                        with suppress(OSError):  # another process has it
                            doors[port] = socket.create_server(("127.0.0.1", port))

    def _hear(self, doors: dict[int, socket.socket], wait_s: float) -> None:
        if not doors:
            self._ended.wait(wait_s)
            return
        while ready := select.select(list(doors.values()), [], [], wait_s)[0]:
            for door in ready:
                caller, (_, port) = door.accept()
                with caller:
                    self.callers.append(f"{door.getsockname()[1]} was dialled by {process_at(port)}")
            wait_s = 0


def process_at(port: int) -> str:
    """The process whose connection has this local port: the test that began it, if known; its command."""
    inode = next((each for local, each in _connections() if local == port), None)
    for found in Path("/proc").glob("[0-9]*/fd/*") if inode else ():
        with suppress(OSError):
            if os.readlink(found) == f"socket:[{inode}]":
                process = found.parents[1]
                told = dict(each.partition("=")[::2] for each in _words(process / "environ"))
                test = told.get("PYTEST_CURRENT_TEST", f"PID {process.name}")
                return f"{test}: {' '.join(_words(process / 'cmdline'))[:300]}"
    return "a process that was gone by then"


def _words(file: Path) -> list[str]:
    return file.read_bytes().decode(errors="replace").rstrip("\0").split("\0")


def _connections() -> Iterator[tuple[int, str]]:
    """Local port and inode of each connection of this machine by IPv4."""
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        words = line.split()
        yield int(words[1].rpartition(":")[2], 16), words[9]


@contextmanager
def lent() -> Iterator[None]:
    """The ports are the caller's meanwhile."""
    if VARIABLE not in os.environ:
        yield
        return
    wanted, given = _files(Path(os.environ[VARIABLE]))
    wanted.touch()
    try:
        deadline = time.monotonic() + LEND_S
        while not given.exists():
            assert time.monotonic() < deadline, "who watches the default ports does not let them go"
            time.sleep(LOOK_S)
        yield
    finally:
        wanted.unlink()


def _files(place: Path) -> tuple[Path, Path]:
    """The one by which the ports are asked for, and the one that says that they are given."""
    return place.with_suffix(".wanted"), place.with_suffix(".lent")

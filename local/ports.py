"""Free ports for processes on this machine, outside the kernel's ephemeral range.

A killed broker needs its port back when it starts again. A port from the ephemeral range could by then be the
local end of some outgoing connection; and another process that looks for a free port could be given it. So
whoever was given a port keeps it until its process ends: a lock on the byte with that number in a file that
all share. Who listens without asking here is seen by trying.
"""

import fcntl
import os
import random
import socket
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path

FIRST_PORT = 15_000
RANGE_FILE = Path("/proc/sys/net/ipv4/ip_local_port_range")


def _last_port() -> int:
    try:
        ephemeral_from = int(RANGE_FILE.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        ephemeral_from = 32_768
    return ephemeral_from - 1 if ephemeral_from > FIRST_PORT + 1000 else 65_000


def is_free(port: int, host: str = "127.0.0.1") -> bool:
    """Whether a server could listen there now."""
    return why_not_bound(host, port) is None


def why_not_bound(host: str, port: int = 0) -> OSError | None:
    """Why no server could listen there now; None if one could. Port 0 asks of the host alone."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.create_server((host, port), family=family):
            return None
    except OSError as error:
        return error


ELSEWHERE = {socket.AF_INET: "192.0.2.1", socket.AF_INET6: "2001:db8::1"}  # nobody's (RFC 5737, RFC 3849)


def own_address(any_address: str) -> str:
    """The address by which others reach this machine: that of the route to the world, or else its name.

    Nothing is sent: a datagram socket that is connected only chooses a route.
    """
    family = socket.AF_INET6 if ":" in any_address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as sock:
            sock.connect((ELSEWHERE[family], 9))
            return str(sock.getsockname()[0])
    except OSError:
        return socket.gethostname()


@cache
def _locks(process: int) -> int:
    """The file of locks; a forked process has none of its parent's, and opens it for itself."""
    path = Path(tempfile.gettempdir()) / f"strandline-ports-{os.getuid()}"
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


_KEPT: set[tuple[int, int]] = set()  # the ports of this process, and of those that it was forked from


def keep(port: int) -> bool:
    """Keep a port until this process ends. False if it has been kept before, here or by another process."""
    process = os.getpid()
    if (process, port) in _KEPT:
        return False
    with suppress(BlockingIOError, PermissionError):
        fcntl.lockf(_locks(process), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
        _KEPT.add((process, port))
        return True
    return False


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """`count` ports that are free now, chosen at random; no other caller is given them meanwhile."""
    drawn = random.Random(os.getpid() ^ random.SystemRandom().getrandbits(32))
    found: list[int] = []
    while len(found) < count:
        port = drawn.randint(FIRST_PORT, _last_port())
        if keep(port) and is_free(port, host):
            found.append(port)
    return found

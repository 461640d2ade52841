"""Free ports for processes on this machine, outside the kernel's ephemeral range.

A killed broker needs its port back when it starts again. A port from the ephemeral range could by then be the
local end of some outgoing connection.
"""

import os
import random
import socket
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
    try:
        with socket.create_server((host, port)):
            return True
    except OSError:
        return False


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """`count` ports that are free now, chosen at random so that two callers seldom collide."""
    drawn = random.Random(os.getpid() ^ random.SystemRandom().getrandbits(32))
    found: list[int] = []
    while len(found) < count:
        port = drawn.randint(FIRST_PORT, _last_port())
        if port not in found and is_free(port, host):
            found.append(port)
    return found

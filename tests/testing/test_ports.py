"""Ports of this machine: who was given one keeps it, also while nobody listens there."""

import subprocess
import sys

from strandline.local.ports import free_ports, is_free, keep

KEEP = "import sys; from strandline.local.ports import keep; print(keep(int(sys.argv[1])))"


def elsewhere(port: int) -> bool:
    """Whether another process is given it."""
    done = subprocess.run([sys.executable, "-c", KEEP, str(port)], capture_output=True, text=True, check=True)
    return done.stdout.strip() == "True"


def test_a_port_is_given_once_as_long_as_its_process_lives() -> None:
    (port,) = free_ports(1)
    assert is_free(port), "nobody listens there"
    assert not elsewhere(port) and not keep(port)
    free = next(number for number in range(64_000, 64_500) if elsewhere(number))
    assert keep(free), "the process that had it has ended"
    assert not elsewhere(free)

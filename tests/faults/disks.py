"""Disks of brokers that can be filled, made to fail, and robbed of their power.

Each is a directory with a tmpfs of a certain size, or one whose calls a library looks at
(`strandline.testing.faults`). Left to others: what is expected then.
"""

import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from strandline.local.cluster import LocalCluster
from strandline.local.processes import BrokerProcess
from strandline.testing.faults.disk import DiskFaults

BALLAST = "ballast"


def data(broker: BrokerProcess) -> Path:
    return broker.directory / "data"


def mount_small(cluster: LocalCluster, megabytes: int) -> None:
    """Each broker's log directory is a file system of its own; they go with the tests' processes."""
    for broker in cluster.brokers.values():
        data(broker).mkdir(parents=True, exist_ok=True)
        words = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(data(broker))]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"a tmpfs cannot be mounted here: {done.stderr.strip()}")


def fill(broker: BrokerProcess) -> None:
    """Leave no byte on the broker's disk."""
    with (data(broker) / BALLAST).open("wb", buffering=0) as file:
        for size in (1 << 20, 1 << 12, 1):
            with suppress(OSError):
                while True:
                    file.write(bytes(size))


def make_room(broker: BrokerProcess) -> None:
    (data(broker) / BALLAST).unlink(missing_ok=True)


def breakable(cluster: LocalCluster, *, journal: bool = False) -> dict[int, DiskFaults]:
    """The faults of each broker of a cluster that has not started."""
    found = {}
    for id, broker in cluster.brokers.items():
        found[id] = DiskFaults(broker.directory / "faults" / "table", data(broker), journal=journal)
        broker.environment |= found[id].environment
    return found

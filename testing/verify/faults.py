"""The faults, by name: what each does and what the place of the brokers must be able to do for it.

Left to others: doing them (nemesis.py), choosing when (schedule.py), who can do what (places/).
"""

from dataclasses import dataclass
from enum import StrEnum


class Power(StrEnum):
    """What can be done to brokers where they live."""

    PROCESSES = "processes"  # kill, stop, start
    PAUSES = "pauses"  # stand still and go on
    LINKS = "links"  # cut one from another, from clients, from ZooKeeper
    ISOLATION = "isolation"  # cut one from everybody
    DISKS = "disks"  # lose what is on them
    SYNCS = "syncs"  # lose what was not synced to them


@dataclass(frozen=True)
class Fault:
    """A kind of fault."""

    what: str
    needs: frozenset[Power] = frozenset()


PROCESSES = frozenset({Power.PROCESSES})
PAUSES = frozenset({Power.PAUSES})
LINKS = frozenset({Power.LINKS})
ISOLATION = frozenset({Power.ISOLATION})

FAULTS: dict[str, Fault] = {
    "kill-leader": Fault("kill -9 of a leader", PROCESSES),
    "kill-transaction-coordinator": Fault("kill -9 of a coordinator of transactions", PROCESSES),
    "kill-group-coordinator": Fault("kill -9 of a coordinator of groups", PROCESSES),
    "kill-controller": Fault("kill -9 of the controller", PROCESSES),
    "kill-follower": Fault("kill -9 of a follower", PROCESSES),
    "kill-two": Fault("kill -9 of two brokers", PROCESSES),
    "kill-all": Fault("kill -9 of all brokers", PROCESSES),
    "restart": Fault("a controlled shutdown, and a start", PROCESSES),
    "pause-leader": Fault("SIGSTOP of a leader, then SIGCONT", PAUSES),
    "pause-controller": Fault("SIGSTOP of the controller, then SIGCONT", PAUSES),
    "pause-follower": Fault("SIGSTOP of a follower, then SIGCONT", PAUSES),
    "kill-a-client": Fault("kill -9 of a client with transactions or in a group"),
    "zombie-client": Fault("SIGSTOP of a producer with transactions until its next life has begun"),
    "sleeping-client": Fault("SIGSTOP of a producer for longer than its transaction may take"),
    "kill-leader-ahead": Fault(
        "a follower that cannot fetch leaves the ISR, and then the leader dies", PROCESSES | LINKS
    ),
    "only-an-outsider": Fault(
        "a follower stands still until it has left the ISR, the others go on and die: it is alone, and must "
        "not lead",
        PROCESSES | PAUSES,
    ),
    "lose-a-disk": Fault(
        "a broker dies and comes back with an empty disk; every ISR was full", PROCESSES | {Power.DISKS}
    ),
    "last-isr-empty-disk": Fault(
        "the others are stopped, so that the ISR is one broker, which dies, comes back with an empty "
        "disk, and is the "
        "first to come back",
        PROCESSES | {Power.DISKS},
    ),
    "last-isr-power-loss": Fault(
        "as last-isr-empty-disk, but it lost only what was not synced", PROCESSES | {Power.SYNCS}
    ),
    "cut-from-clients": Fault("a leader is cut from the clients", LINKS),
    "cut-from-zookeeper": Fault("a leader is cut from ZooKeeper", LINKS),
    "cut-from-a-peer": Fault("one broker is cut from another", LINKS),
    "cut-from-everybody": Fault("a leader is cut from everybody", ISOLATION),
    "cut-follower": Fault("a follower is cut from everybody", ISOLATION),
    "cut-controller": Fault("the controller is cut from everybody", ISOLATION),
    "cut-controller-from-zookeeper": Fault("the controller is cut from ZooKeeper", LINKS),
}

TOPIC_FAULTS = frozenset(
    {"kill-leader-ahead", "only-an-outsider", "last-isr-empty-disk", "last-isr-power-loss"}
)
"""Those that need three brokers."""
PEER_FAULTS = frozenset({"cut-from-a-peer", "kill-follower", "pause-follower", "cut-follower"})
"""Those that need two."""
CLIENT_FAULTS = frozenset({"kill-a-client"})
"""Those that hit a client with transactions or in a group."""
PRODUCER_FAULTS = frozenset({"zombie-client", "sleeping-client", "kill-transaction-coordinator"})
"""Those that need a client with transactions."""

"""The matrix of faults: what each is, what is expected of the cluster, and within which limits.

A test named `test_f8_…` is a scenario of fault F8; several tests, or several parameters of one, are several
scenarios. All are judged alike (drill.py), by the limits here. Left to others: what a run showed (table.py).
"""

import re
from typing import NamedTuple

ACKS_MIN = 300
WHOLE_S = 30.0  # from the end of a fault until every ISR is full


class Fault(NamedTuple):
    """A row of the matrix."""

    title: str
    expected: str
    gap_s: (
        float | None
    )  # the longest a partition may go without an acknowledgement; None: the fault's length decides
    whole_s: float = WHOLE_S
    acks_min: int = ACKS_MIN


SESSION_S, LAG_S = 3.0, 2.0
SILENT_S = (
    SESSION_S + LAG_S + 3.0
)  # a broker that is silent: the session ends, the controller elects, clients learn of it
MATRIX: dict[str, Fault] = {
    "F1": Fault("kill -9 of a leader", "acks resume within 1 s; the replica comes back intact", 1.0),
    "F2": Fault("kill -9 of a follower", "acks resume within 1 s with an ISR of two", 1.0),
    "F3": Fault("kill -9 of the controller", "another controller, acks resume within 1 s", 1.0),
    "F4": Fault(
        "kill -9 of two of three",
        "nothing is acknowledged by one replica; acks resume when one comes back",
        None,
    ),
    "F5": Fault("kill -9 of all, started in any order", "everything acknowledged is there", None),
    "F6": Fault(
        "kill -9 and an immediate start",
        "the next incarnation is recognised, no replica is stuck",
        SILENT_S,
    ),
    "F7": Fault(
        "a storm of kills and starts",
        "all is whole after the last start, descriptors do not grow",
        None,
    ),
    "F8": Fault(
        "SIGSTOP of a leader for 1, 3, 10 sessions",
        "another leader; the zombie acknowledges nothing",
        SILENT_S,
    ),
    "F9": Fault("SIGSTOP of the controller", "another controller; the zombie takes nothing back", SILENT_S),
    "F10": Fault("SIGSTOP of a follower", "it leaves the ISR, acks go on", SILENT_S),
    "F11": Fault(
        "links cut, silently, in both directions or one",
        "the side that can commit goes on",
        SILENT_S,
    ),
    "F12": Fault(
        "leader and clients are split from the followers and ZooKeeper",
        "no acks on the small side, which cuts its tail when it is back",
        None,
    ),
    "F13": Fault(
        "a link that is cut and healed every half second",
        "no divergence, the ISR follows the lag alone",
        SILENT_S,
    ),
    "F14": Fault(
        "links with a delay, resets, and 1 Mbit/s",
        "acks go on, the slow follower leaves or keeps up",
        SILENT_S,
    ),
    "F15": Fault(
        "ZooKeeper: leader killed, quorum gone, all restarted, a member wiped, pauses",
        "records go on, no broker ends",
        SILENT_S,
    ),
    "F16": Fault(
        "ZooKeeper sessions ended from outside",
        "the broker registers once more, intact",
        SILENT_S,
    ),
    "F17": Fault(
        "full disks: of the leader, a follower, all",
        "leadership moves to who has room; no broker ends; no damaged tail",
        None,
    ),
    "F18": Fault(
        "EIO on write, sync, read, rename, open",
        "the directory is given up; nothing that was acknowledged is lost",
        SILENT_S,
    ),
    "F19": Fault(
        "appends that take seconds, on the leader, on a follower",
        "all that its broker leads goes on slowly, as one loop appends to all, or the broker ends in two "
        "sessions; no healthy follower is dropped, other leaders wait until the slow one has left their ISRs",
        2 * SESSION_S + SILENT_S,
        60.0,
    ),
    "F20": Fault("power lost by one", "it is not intact: out of the ISR, fetches again", SILENT_S, 60.0),
    "F21": Fault(
        "power lost by the only ISR member",
        "it is not elected while another replica is missing",
        None,
        60.0,
    ),
    "F22": Fault(
        "power lost by all",
        "the longest log leads; with log.flush.before.ack nothing is lost",
        None,
        60.0,
    ),
    "F23": Fault(
        "a disk is replaced by an empty one",
        "not intact: a full fetch, and no leadership before",
        SILENT_S,
        60.0,
    ),
    "F24": Fault(
        "a log directory of an earlier incarnation is put back",
        "not intact: a full fetch",
        SILENT_S,
        60.0,
    ),
    "F25": Fault(
        "a flipped byte in a closed segment, broker down or up",
        "it is found and never spread",
        SILENT_S,
        60.0,
    ),
    "F26": Fault(
        "a flipped byte in base offset, epoch or length of a batch",
        "it is found",
        SILENT_S,
        60.0,
    ),
    "F27": Fault(
        "the last segment is cut, gets garbage or zeroes at its end",
        "the torn tail goes, what was acknowledged comes back",
        SILENT_S,
        60.0,
    ),
    "F28": Fault(
        "indexes and producer snapshots are lost or garbage",
        "they are made again",
        SILENT_S,
        60.0,
    ),
    "F29": Fault(
        "checkpoints, epoch files, identities are lost or garbage",
        "made again, or the start is refused with a reason",
        SILENT_S,
        60.0,
    ),
    "F30": Fault(
        "wall clocks that jump by an hour, by ten years, or flutter",
        "no election, no change of an ISR, no retention",
        2.0,
    ),
    "F31": Fault(
        "descriptors run out, floods of connections, slow senders",
        "brokers reach each other and ZooKeeper; clients come back",
        SILENT_S,
    ),
    "F32": Fault("many large requests at once", "memory stays within queued.max.request.bytes", SILENT_S),
    "F33": Fault("controlled restarts in a row", "no gap over 1 s, clean markers", 1.0, 60.0),
    "F34": Fault("partitions move while things break", "the move ends, nothing is left behind", None, 60.0),
    "F35": Fault(
        "a topic is deleted and made again while a replica is dead",
        "the old records are set aside",
        None,
        60.0,
        0,
    ),
    "F36": Fault("an unclean election", "a leader; the loss is told; logs converge", None, 60.0, 0),
    "F37": Fault(
        "two brokers with one id, two clusters on one path",
        "the second one does not start",
        None,
        60.0,
        0,
    ),
    "F38": Fault("the controller's connections are reset", "needless moves at most", SILENT_S),
    "F39": Fault(
        "kills, pauses, cuts, clocks and slow disks, at random",
        "whole within 60 s of the end",
        None,
        60.0,
    ),
    "F40": Fault(
        "recovery cuts what was acknowledged, and is killed after the cut",
        "not intact, although the log looks tidy",
        None,
        60.0,
    ),
    "F41": Fault(
        "power is lost without flushes, then log.flush.before.ack is turned on",
        "not intact: the mode before the loss counts",
        None,
        60.0,
    ),
    "F42": Fault(
        "the event loop of a broker hangs",
        "the watchdog ends it, partitions move",
        2 * SESSION_S + SILENT_S,
    ),
    "F43": Fault(
        "the controller is cut off from its peers, not from ZooKeeper",
        "nobody is moved; another one controls",
        5.0,
    ),
}
SCENARIO = re.compile(r"test_f(\d+)_")


def fault_of(test: str) -> str | None:
    """The fault that a test is a scenario of, by the test's name."""
    found = SCENARIO.match(test)
    return f"F{found[1]}" if found else None


def chosen(only: str) -> frozenset[str]:
    """The faults of a list like "F8,F12"; all if it is empty. ValueError with what there is."""
    names = [name.strip().upper() for name in only.split(",") if name.strip()]
    if unknown := [name for name in names if name not in MATRIX]:
        raise ValueError(f"there is no fault {', '.join(unknown)}; there are {', '.join(MATRIX)}")
    return frozenset(names or MATRIX)

"""Families of seeds: the settings of their worlds, and the faults they draw.

In a family that swarms, each seed uses a random part of the kinds of faults: frequent ones would hide bugs
that show only without them. Left to others: what each fault does (`faults/faults.py`).
"""

from __future__ import annotations

from dataclasses import dataclass

from .environment.loop import EXECUTOR_DELAY_S

FIRST_KINDS = ("crash", "bounce", "bounce", "cut", "isolate", "heal")
SECOND_KINDS = (*FIRST_KINDS, "pause", "power_loss", "behead", "exile")
KINDS = (
    *SECOND_KINDS, "vanish", "reset", "refuse", "slow_disk", "torn_tail", "clock", "lose_zookeeper",
    "late_writes", "early_expiry", "late_expiry", "stale_reads", "interrupt_plan", "stop", "make_topic",
    "grow_topic", "delete_topic", "elect", "elect_uncleanly", "churn", "scarce",
)  # fmt: skip
FAILOVER_KINDS = (
    "behead", "behead", "behead", "exile", "bounce", "cut", "heal", "heal", "interrupt_plan", "late_writes",
    "power_loss", "slow_disk",
)  # fmt: skip
FLUSHED = ("log.flush.before.ack=true",)
SLOW_DISK_S = (0.001, 0.06)
"""For families that sync before each acknowledgement: slow enough that faults happen during a sync."""
DARK = ("unclean.recovery.timeout.ms=600000", "strict.min.isr=true")
"""Unclean recovery waits long for every replica, and consumers read nothing that only one machine has."""
UNFLUSHED = ("log.flush.offset.checkpoint.interval.ms=600000",)
"""A checkpoint each second would flush all that the last member of an ISR has: it could lose nothing."""
TWO_DIRS = ("log.dirs=/data,/more", "strandline.log.dir.room.reserve.bytes=0")
COPIERS = ("kill_copier", "kill_copier", "replace_copier", "replace_copier")
"""They die, or stand still and go on as zombies, in the middle of their transactions."""
ASSIGNED_SESSION_S = 1.5
ASSIGNED = (
    "group.consumer.min.session.timeout.ms=1000",
    f"group.consumer.session.timeout.ms={int(ASSIGNED_SESSION_S * 1000)}",
    "group.consumer.min.heartbeat.interval.ms=100",
    "group.consumer.heartbeat.interval.ms=500",
)
"""Members of groups for which the broker assigns are given up soon."""
MEMBERS = ("kill_member", "replace_member", "replace_member", "leave_member")
NO_LOSS = (
    *FIRST_KINDS, "pause", "behead", "exile", "vanish", "reset", "refuse", "slow_disk", "clock",
    "lose_zookeeper", "late_writes", "early_expiry", "late_expiry", "stale_reads", "interrupt_plan", "stop",
    "elect", "move", "scarce",
)  # fmt: skip
"""Without a loss of power: every copy that is seen stays."""
TOPICS = ("make_topic", "make_topic", "grow_topic", "delete_topic", "elect", "elect_uncleanly", "move")
POWER = ("power_loss", "torn_tail", "torn_tail", "torn_tail", "behead", "crash", "stop")


@dataclass(frozen=True, slots=True)
class Family:
    """One kind of world, and the faults in it."""

    name: str
    kinds: tuple[str, ...]
    settings: tuple[str, ...] = ()
    sometimes: tuple[str, ...] = ()  # settings of half of its worlds
    thread_s: tuple[float, float] = EXECUTOR_DELAY_S
    swarms: bool = False
    always: tuple[str, ...] = ()  # drawn by every seed, several times as likely
    interleaves: float = 0.2  # the share of its worlds in which threads pause at each call to a file
    groups: float = 0.3  # the share with a group of readers
    copies: bool = False  # whether there are copiers, each number once
    assigns: bool = False  # whether there is a group for which the broker assigns
    faults: int = 12  # in a run
    patience_ms: tuple[int, ...] = (2_000, 30_000)  # the producer's request timeout: one is drawn
    is_ordered: bool = True  # whether its disks journal changes in order


FAMILIES = {
    family.name: family
    for family in (
        Family("first", FIRST_KINDS),
        Family("second", SECOND_KINDS),
        Family("failover", FAILOVER_KINDS),
        Family("plain", KINDS, swarms=True),
        Family("flushed", KINDS, FLUSHED, thread_s=SLOW_DISK_S, swarms=True, always=("blackout",) * 3),
        Family("dark", KINDS, DARK, UNFLUSHED, swarms=True, always=("blackout", *("last_power_loss",) * 2)),
        Family("moving", KINDS, swarms=True, always=("move",) * 4),
        Family("topics", KINDS, swarms=True, always=TOPICS),
        Family("transactions", (*NO_LOSS, *COPIERS), swarms=True, always=COPIERS, groups=0.0, copies=True),
        Family("groups", (*KINDS, "churn"), swarms=True, always=("churn", "churn", "stop"), groups=1.0),
        Family(
            "assigned", (*NO_LOSS, *MEMBERS), ASSIGNED, swarms=True, always=MEMBERS, groups=0.0, assigns=True
        ),
        Family(
            "parted", (*KINDS, "part"), swarms=True, always=("part",) * 12, faults=6, patience_ms=(2_000,)
        ),
        Family("rolling", ("slow_zookeeper", "roll", "roll"), faults=4),
        Family("unordered", KINDS, swarms=True, always=POWER, is_ordered=False),
        Family("threads", KINDS, swarms=True, interleaves=1.0),
        Family("disks", KINDS, TWO_DIRS, swarms=True, always=("fill", "fill", "break_dir", "break_dir")),
    )
}

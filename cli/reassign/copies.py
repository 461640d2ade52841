"""Copies of a move: how far they are, and how fast they may be.

The rates are settings of all brokers concerned, the replicas that they hold for are settings of their topics:
who has a replica sends no faster, who gets one copies no faster, as Kafka's own tool sets it
(broker/throttle.py). All is taken back when the move is done.
Left to others: moving (command.py).
"""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ...base.types import TopicPartition
from ...broker.throttle import EVERY, FOLLOWERS, LEADERS
from ...client.admin.configs import AlterConfigOp, ConfigChange, ConfigSource
from ...client.admin.reassignments import PartitionReassignment
from ...client.sync import Admin
from ..console import WrongUsage

RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
OF_ITS_OWN = (ConfigSource.DYNAMIC_TOPIC_CONFIG, ConfigSource.DYNAMIC_BROKER_CONFIG)
UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
Replicas = Mapping[TopicPartition, Sequence[int]]


def bytes_per_second(text: str) -> int:
    """Parse a rate such as 50M. Raises WrongUsage."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?) ?([KMG]?)(?:i?B)?(?:/s)?", text.strip(), re.IGNORECASE)
    rate = int(float(found[1]) * UNITS[found[2].upper()]) if found else 0
    if not rate:
        raise WrongUsage(
            f"--throttle {text}: expected bytes per second, e.g. 50M (K, M and G are 2^10, 2^20, 2^30)"
        )
    return rate


def told(nbytes: float) -> str:
    """Bytes for people."""
    for unit, size in reversed(UNITS.items()):
        if nbytes >= size:
            return f"{nbytes / size:.1f} {unit}iB" if unit else f"{nbytes:.0f} B"
    return "0 B"


def slow_down(admin: Admin, before: Replicas, additions: Replicas, rate: int) -> None:
    """Let these replicas be copied at `rate` bytes per second for each broker, until `release`. `before`: who
    has them.
    """
    moving = {q: added for q, added in additions.items() if added}
    senders = _by_topic({q: before[q] for q in moving})
    for topic, copiers in _by_topic(moving).items():
        names = [
            ConfigChange(LEADERS, ",".join(senders[topic]), AlterConfigOp.APPEND),
            ConfigChange(FOLLOWERS, ",".join(copiers), AlterConfigOp.APPEND),
        ]
        admin.incremental_alter_configs(names, topic=topic)
    rates = [ConfigChange(name, str(rate)) for name in RATES]
    for broker in sorted({broker for q in moving for broker in (*before[q], *moving[q])}):
        admin.incremental_alter_configs(rates, broker=broker)


def release(admin: Admin, moved: Collection[TopicPartition]) -> list[int]:
    """Take the throttle of these partitions back; of a broker only if none is left that names it and moves.

    Returns the brokers whose rates were taken back.
    """
    freed: set[int] = set()
    for topic in sorted({q.topic for q in moved}):
        indexes = {str(q.partition) for q in moved if q.topic == topic}
        gone = {
            name: [pair for pair in pairs if pair.partition(":")[0] in indexes]
            for name, pairs in _throttled(admin, topic).items()
        }
        changes = [
            ConfigChange(name, ",".join(pairs), AlterConfigOp.SUBTRACT)
            for name, pairs in gone.items()
            if pairs
        ]
        if changes:
            admin.incremental_alter_configs(changes, topic=topic)
        freed |= {broker for pairs in gone.values() for broker in _brokers(pairs)}
    free = sorted(freed - _busy(admin)) if freed else []
    for broker in free:
        changes = [ConfigChange(name, None, AlterConfigOp.DELETE) for name in RATES]
        admin.incremental_alter_configs(changes, broker=broker)
    return free


def _busy(admin: Admin) -> set[int]:
    """The brokers at which something that still moves is throttled."""
    moving = admin.list_partition_reassignments()
    busy: set[int] = set()
    for topic in {q.topic for q in moving}:
        for pairs in _throttled(admin, topic).values():
            busy |= _brokers(pairs)
            if EVERY in pairs:
                busy |= {broker for q, one in moving.items() if q.topic == topic for broker in one.replicas}
    return busy


def _throttled(admin: Admin, topic: str) -> dict[str, list[str]]:
    """What the topic's two lists name, if they are its own: `partition:broker`."""
    return {
        entry.name: entry.value.split(",")
        for entry in admin.describe_configs(topic=topic)
        if entry.name in (LEADERS, FOLLOWERS) and entry.value and entry.source in OF_ITS_OWN
    }


def _by_topic(replicas: Replicas) -> dict[str, list[str]]:
    names: defaultdict[str, list[str]] = defaultdict(list)
    for q, brokers in sorted(replicas.items()):
        names[q.topic] += [f"{q.partition}:{broker}" for broker in brokers]
    return names


def _brokers(pairs: Iterable[str]) -> set[int]:
    return {int(broker) for _, _, broker in (pair.partition(":") for pair in pairs) if broker.isdecimal()}


@dataclass(frozen=True, slots=True)
class Copied:
    """How much of the new replicas is there, of how much."""

    there: int
    whole: int

    @property
    def share(self) -> float:
        return min(self.there / self.whole, 1.0) if self.whole else 1.0


def copied(
    admin: Admin, moving: Mapping[TopicPartition, PartitionReassignment]
) -> dict[TopicPartition, Copied]:
    """How far each moving partition is, by the sizes that brokers tell; without those that do not answer."""
    brokers = {broker for one in moving.values() for broker in one.replicas}
    sizes = {
        (replica.partition, broker): replica.size_bytes
        for broker, directories in admin.describe_known_log_dirs(brokers).items()
        for directory in directories
        for replica in directory.replicas
    }
    return dict(_compared(moving, sizes))


def _compared(
    moving: Mapping[TopicPartition, PartitionReassignment], sizes: Mapping[tuple[TopicPartition, int], int]
) -> Iterator[tuple[TopicPartition, Copied]]:
    for q, one in moving.items():
        whole = max((sizes.get((q, b), 0) for b in one.replicas if b not in one.adding), default=0)
        yield q, Copied(sum(min(sizes.get((q, b), 0), whole) for b in one.adding), whole * len(one.adding))


def progress(done: int, of: int, parts: Iterable[Copied], since: tuple[int, float], now: float) -> str:
    """One line: partitions, bytes, rate, and how long it takes still. `since`: bytes copied, and when."""
    each = list(parts)
    there, whole = sum(one.there for one in each), sum(one.whole for one in each)
    line = f"{done} of {of} partition{'' if of == 1 else 's'} moved"
    if whole:
        line += f"; {told(there)} of {told(whole)} of the others copied"
    before, then = since
    rate = (there - before) / (now - then) if now > then else 0.0
    if whole > there and rate > 0:
        line += f", {told(rate)}/s, about {(whole - there) / rate:.0f} s left"
    return line

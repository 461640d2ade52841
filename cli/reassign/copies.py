"""Copies of a move: how far they are, and how fast they may be.

The rate is a setting of the brokers that copy; the replicas that it holds for are a setting of their topics,
as Kafka's own tool sets both (broker/follower/throttle.py). Both are taken back when the move is done.
Left to others: moving (command.py).
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ...base.types import TopicPartition
from ...broker.follower.throttle import NAMES
from ...client.admin.configs import AlterConfigOp, ConfigChange, ConfigSource
from ...client.admin.reassignments import PartitionReassignment
from ...client.sync import Admin
from ..console import WrongUsage

RATE = "follower.replication.throttled.rate"
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


def slow_down(admin: Admin, additions: Replicas, rate: int) -> None:
    """Let these replicas copy at `rate` bytes per second for each broker, until `release`."""
    for topic, names in _by_topic(additions):
        admin.incremental_alter_configs([ConfigChange(NAMES, names, AlterConfigOp.APPEND)], topic=topic)
    for broker in _brokers(additions):
        admin.incremental_alter_configs([ConfigChange(RATE, str(rate))], broker=broker)


def release(admin: Admin, moved: Replicas) -> list[int]:
    """Take the throttle of these replicas back; of brokers only if nothing else is moving to them.

    Returns the brokers whose rate was taken back.
    """
    throttled = {q: replicas for q, replicas in moved.items() if _is_set(admin, NAMES, topic=q.topic)}
    for topic, names in _by_topic(throttled):
        admin.incremental_alter_configs([ConfigChange(NAMES, names, AlterConfigOp.SUBTRACT)], topic=topic)
    if not throttled:
        return []
    busy = {broker for one in admin.list_partition_reassignments().values() for broker in one.adding}
    free = [b for b in _brokers(throttled) if b not in busy and _is_set(admin, RATE, broker=b)]
    for broker in free:
        admin.incremental_alter_configs([ConfigChange(RATE, None, AlterConfigOp.DELETE)], broker=broker)
    return free


def _is_set(admin: Admin, name: str, *, topic: str | None = None, broker: int | None = None) -> bool:
    """Whether the resource has a value of its own."""
    return any(
        entry.name == name and entry.value and entry.source in OF_ITS_OWN
        for entry in admin.describe_configs(topic=topic, broker=broker)
    )


def _by_topic(replicas: Replicas) -> Iterator[tuple[str, str]]:
    names: defaultdict[str, list[str]] = defaultdict(list)
    for q, brokers in sorted(replicas.items()):
        names[q.topic] += [f"{q.partition}:{broker}" for broker in brokers]
    for topic, each in names.items():
        if each:
            yield topic, ",".join(each)


def _brokers(replicas: Replicas) -> list[int]:
    return sorted({broker for brokers in replicas.values() for broker in brokers})


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

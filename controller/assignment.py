"""Where new replicas live, and what a request for a topic must keep to. Pure.

Over the brokers in the order of their ids: partition i has its first replica on broker i, and its
replica j on broker i + j, modulo their number. Growth continues the pattern where it stopped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from ..protocol.errors import (
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidTopic,
)

PARTITIONS_MAX = 100_000  # of one topic: more is a typing error
TOPIC_NAME_LENGTH_MAX = 249
TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]+\Z")

Replicas = dict[int, tuple[int, ...]]


def spread(brokers: Iterable[int], partitions: range, replication_factor: int) -> Replicas:
    """Replicas for the partitions of this range. Raises InvalidPartitions, InvalidReplicationFactor."""
    ids = sorted(brokers)
    if len(partitions) <= 0:
        raise InvalidPartitions("the number of partitions must be larger than 0")
    if partitions.stop > PARTITIONS_MAX:
        raise InvalidPartitions(f"a topic has at most {PARTITIONS_MAX} partitions")
    if replication_factor <= 0:
        raise InvalidReplicationFactor("the replication factor must be larger than 0")
    if replication_factor > len(ids):
        raise InvalidReplicationFactor(
            f"replication factor {replication_factor} is larger than the {len(ids)} available brokers"
        )
    return {i: tuple(ids[(i + j) % len(ids)] for j in range(replication_factor)) for i in partitions}


def check_assignment(
    brokers: Iterable[int], chosen: Mapping[int, Sequence[int]], first: int = 0, factor: int | None = None
) -> Replicas:
    """Replicas as the caller chose them. Raises InvalidReplicaAssignment, InvalidPartitions."""
    known = set(brokers)
    if not chosen:
        raise InvalidPartitions("the number of partitions must be larger than 0")
    if sorted(chosen) != list(range(first, first + len(chosen))):
        raise InvalidReplicaAssignment(f"partitions must be numbered from {first} on without a gap")
    factor = len(next(iter(chosen.values()))) if factor is None else factor
    for number, replicas in sorted(chosen.items()):
        if not replicas or len(set(replicas)) != len(replicas):
            raise InvalidReplicaAssignment(
                f"partition {number}: {list(replicas)} is empty or repeats a broker"
            )
        if len(replicas) != factor:
            raise InvalidReplicaAssignment(f"partition {number}: all must have {factor} replicas")
        if unknown := sorted(set(replicas) - known):
            raise InvalidReplicaAssignment(f"partition {number}: brokers {unknown} are not there")
    return {number: tuple(replicas) for number, replicas in sorted(chosen.items())}


def check_topic_name(name: str, existing: Iterable[str] = ()) -> None:
    """Raises InvalidTopic; also for a name that differs from another only in '.' and '_'."""
    if name in ("", ".", "..") or len(name) > TOPIC_NAME_LENGTH_MAX or not TOPIC_NAME.match(name):
        raise InvalidTopic(
            f"{name[:300]!r} is not a topic name: 1 to {TOPIC_NAME_LENGTH_MAX} of a-z A-Z 0-9 . _ -"
        )
    collapsed = name.replace(".", "_")
    for other in existing:
        if other != name and other.replace(".", "_") == collapsed:
            raise InvalidTopic(f"{name!r} collides with topic {other!r}")

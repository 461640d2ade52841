"""The integer kinds and the two small types that all packages share.

An offset counts records, a position counts bytes, an epoch counts leaders. They are all `int` at run time,
and the type checker keeps them apart. Hot paths annotate with them and do not call them.
"""

from typing import NamedTuple, NewType, Protocol

Offset = NewType("Offset", int)  # of a record in a partition; an `end_offset` is exclusive
Position = NewType("Position", int)  # of a byte in a segment file
Epoch = NewType("Epoch", int)  # of a partition's leader
ControllerEpoch = NewType("ControllerEpoch", int)  # of the cluster's controller
BrokerId = NewType("BrokerId", int)
Incarnation = NewType("Incarnation", int)  # which start of a broker id this is (docs/replication.md)
ProducerId = NewType("ProducerId", int)

KAFKAS = 1 << 62
"""Brokers of Apache Kafka do not count their starts. What tells them apart is the broker epoch, the czxid of
the registration: as an incarnation it is `KAFKAS + epoch`, greater than any count.
"""

NO_LEADER = BrokerId(-1)
NO_EPOCH = Epoch(-1)
NO_OFFSET = Offset(-1)
NO_BROKER_EPOCH = -1  # told by those that do not know it


class TopicPartition(NamedTuple):
    """A partition's name, which is also the name of its directory."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Clock(Protocol):
    """Wall time. It stamps records and drives retention; deadlines use the loop's monotonic time."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC."""
        ...


def start_of(epoch: int, counts_starts: bool) -> Incarnation:
    """The start of a broker that tells this broker epoch; -1 if it tells none."""
    return Incarnation(epoch if counts_starts or epoch < 0 else KAFKAS + epoch)


def broker_epoch(start: int) -> int:
    """The broker epoch of this start, as it stands on the wire and in ZooKeeper."""
    return start - KAFKAS if start >= KAFKAS else start

"""What is seen of a cluster of Apache Kafka before its brokers become Strandline's, as plain values. Pure.

None stands for what could not be seen: it is neither fine nor wrong, and `not_seen` says why.
Left to others: how the facts are collected (the files ask_*.py), what follows from them (checks_*.py).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ....base.types import TopicPartition
from ..facts import Facts

OF_ALL = ""
"""Among dynamic settings of brokers: the defaults of all of them."""

Settings = Mapping[str, str | None]
"""By name; None is a secret, or a setting whose type Kafka does not know: it tells no value."""


@dataclass(frozen=True, slots=True)
class Head:
    """What a log begins with: the format of its first batch, and the codec (0: not compressed)."""

    magic: int
    codec: int


@dataclass(frozen=True, slots=True)
class Registered:
    """A broker in ZooKeeper: the security protocol of each of its listeners, and its rack."""

    protocols: Mapping[str, str]
    rack: str | None = None
    is_kafkas: bool = True


@dataclass(frozen=True, slots=True)
class Znodes:
    """What ZooKeeper holds that brokers do not tell, or that a broker of ours would not look at."""

    brokers: Mapping[int, Registered] = field(default_factory=dict)
    dynamic: Mapping[str, Settings] = field(default_factory=dict)  # by broker id, or OF_ALL
    quotas: Mapping[str, Settings] = field(default_factory=dict)  # by "user a", "client b", "ip c", …
    scram: tuple[str, ...] = ()  # users with a password
    acls: tuple[str, ...] = ()  # resources that have some
    tokens: int = 0
    quorum: str | None = None  # in which way a quorum of controllers (KRaft) has a hand in it
    features: tuple[str, ...] = ()
    pending: tuple[str, ...] = ()  # what was asked of the controller and is not done
    unreadable: Mapping[str, str] = field(default_factory=dict)
    guarded: tuple[str, ...] = ()  # nodes with which not everybody may do everything
    topics: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Directory:
    """A log directory that was looked into; `owner` is its meta.properties."""

    path: str
    owner: Mapping[str, str]
    segments: int = 0
    old: tuple[str, ...] = ()  # segments that begin with messages of format v0 or v1
    codecs: Mapping[str, int] = field(default_factory=dict)  # unknown ones, by segment
    is_quorums: bool = False  # it holds a log of a quorum of controllers
    unreadable: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MigrationFacts:
    """All that was seen, beside what the doctor sees of any cluster."""

    cluster: Facts
    brokers: Mapping[str, Settings] = field(default_factory=dict)  # by "broker 1", or the name of a file
    topics: Mapping[str, Settings] | None = None  # their own settings
    heads: Mapping[TopicPartition, Head] | None = None
    znodes: Znodes | None = None
    directories: tuple[Directory, ...] = ()
    not_seen: tuple[str, ...] = ()
    denied: tuple[int, ...] = ()  # brokers that told no settings for want of rights

    @property
    def kafkas(self) -> tuple[int, ...]:
        """The live brokers that are Kafka's."""
        return tuple(sorted(id for id, one in self.cluster.live.items() if not one.is_strandline))

    @property
    def ours(self) -> tuple[int, ...]:
        """The live brokers that are Strandline's already."""
        return tuple(sorted(id for id, one in self.cluster.live.items() if one.is_strandline))

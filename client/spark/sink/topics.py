"""What a task knows of the topics that it writes to, and whether they are still the same ones.

A topic that was deleted and created again has another id, and takes the rest of the rows as if nothing had
happened. The problem: one broker's metadata may lag behind the others', at the first look or at a later one.
So where an id differs, or a topic is missing that has rows, brokers are asked in turn for a while, and most
of them decide. Whoever tells no ids (Kafka before 2.8) is not counted.
Left to others: leaders and connections (../client.py), batches (produce.py).
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from ....protocol.errors import ApiError, ErrorCode, InvalidReplicationFactor, error_for
from ....protocol.primitives import NO_UUID
from ..client import BACKOFF_FIRST, BACKOFF_MAX, SparkCluster, passing
from .trouble import NotWritten, gone, made_again

DOUBT_PAUSES = (0.05, 0.1, 0.2, 0.4, 0.8)  # before each round of questions
WITNESSES_MAX = 5  # in a round
GROWTH_SECONDS = 3.0  # until all brokers know of a partition that was added

Told = tuple[UUID | None, int]  # a topic's id (None: no such topic) and how many partitions it has


@dataclass(slots=True)
class Topic:
    """What a task has heard of a topic that it writes to."""

    id: UUID  # NO_UUID: brokers did not tell it
    places: int  # partitions when the first row was given one: a key has one place while the task runs
    partitions: int  # the most that were told under this id
    has_rows: bool = False  # some were given their partitions
    is_written: bool = False  # some were acknowledged


class Topics:
    """The topics of one task at a time."""

    def __init__(self, cluster: SparkCluster, block_seconds: float) -> None:
        self.known: dict[str, Topic] = {}
        self._cluster = cluster
        self._block_seconds = block_seconds

    def get(self, name: str, at_least: int = 0) -> Topic:
        """What is known of a topic; asked for again if it has fewer partitions, for one may just be added."""
        if name not in self.known:
            self.patiently(f"topic {name}", lambda: self._find(name))
        deadline = self._cluster.now() + min(GROWTH_SECONDS, self._block_seconds)
        backoff = BACKOFF_FIRST
        while self.known[name].partitions < at_least and self._cluster.now() < deadline:
            self.patiently(f"topic {name}", lambda: self._find(name))
            if self.known[name].partitions < at_least:
                self._cluster.sleep(backoff)
            backoff = min(2 * backoff, BACKOFF_MAX)
        return self.known[name]

    def look(self, names: Iterable[str], create: bool = False) -> Collection[str]:
        """Ask for topics; returns which there are. Raises NotWritten if rows are in another one."""
        found = {name: len(parts) for name, parts in self._cluster.refresh(names, create).items() if parts}
        for name, partitions in found.items():
            now = self._cluster.view.topic_ids[name]
            topic = self.known.setdefault(name, Topic(now, partitions, partitions))
            if topic.id == NO_UUID:
                topic.id = now
            if now in (topic.id, NO_UUID):
                topic.partitions = max(topic.partitions, partitions)
            else:
                self._judge(name, (now, partitions))
        return found

    def check(self, names: Collection[str]) -> None:
        """See that topics with rows are there. Raises NotWritten; an OSError if no broker can be reached."""
        found = self.look(names)
        for name in names:
            if name not in found and self._judge(name, (None, 0)) is None:
                raise NotWritten(gone(name))

    def patiently(self, what: str, ask: Callable[[], Any]) -> Any:
        """Ask until there is an answer, for kafka.max.block.ms."""
        deadline = self._cluster.now() + self._block_seconds
        backoff = BACKOFF_FIRST
        while True:
            try:
                return ask()
            except (OSError, ApiError) as error:
                trouble = passing(error) if isinstance(error, ApiError) else error
            if self._cluster.now() > deadline:
                limit_ms = int(self._block_seconds * 1000)
                raise NotWritten(f"{what}: not to be had within kafka.max.block.ms={limit_ms}: {trouble}")
            self._cluster.sleep(backoff)
            backoff = min(2 * backoff, BACKOFF_MAX)

    def _find(self, name: str) -> None:
        try:
            found = self.look([name], create=True)
        except InvalidReplicationFactor as error:  # it is being created while too few brokers are up
            raise error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, str(error)) from error
        if name not in found:
            raise error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no such topic")

    def _judge(self, name: str, told: Told) -> UUID | None:
        """The id that the topic has, after one broker told another: None if there is no such topic.

        Raises NotWritten if rows are in another one, or have places that the one of now does not have.
        """
        topic = self.known[name]
        now, partitions = self._verdict(name, topic.id, told)
        if now is not None and now != topic.id:
            counts = (topic.places, topic.partitions)
            if topic.is_written or (topic.has_rows and counts != (partitions, partitions)):
                raise NotWritten(made_again(name, topic.id, now))
            topic.id, topic.places, topic.partitions = now, partitions, partitions
        return now

    def _verdict(self, name: str, was: UUID, first: Told) -> Told:
        """What most brokers tell at last; `was`, if it is told as often as anything else."""
        told = [first]
        for pause in DOUBT_PAUSES:
            self._cluster.sleep(pause)
            count = max(1, min(len(self._cluster.view.brokers), WITNESSES_MAX))
            try:
                told = [self._ask(name, was) for _ in range(count)]
            except OSError:  # of them all: what was told before counts
                continue
            if all(one[0] in (was, NO_UUID) for one in told):
                break
        votes = Counter(one[0] for one in told if one[0] != NO_UUID)
        if 2 * votes[was] >= votes.total():
            return was, 0
        winner = votes.most_common(1)[0][0]
        return winner, dict(told)[winner]

    def _ask(self, name: str, was: UUID) -> Told:
        parts = self._cluster.refresh([name]).get(name)
        if not parts:
            return None, 0
        return (self._cluster.view.topic_ids[name] if was.int else was), len(parts)

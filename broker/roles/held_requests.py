"""Holds requests during a change of roles, instead of answering that this broker does not lead.

A new leader syncs its epoch to disk before it leads. Clients that the old leader sent here, and followers,
may come in that time. If we refused them, they would come back only after their backoff, which is a second
with some clients. Kafka's brokers take a lock for as long.
Left to others: the changes themselves (leader_and_isr.py), the wait (network/connection.py).
"""

import asyncio
from collections.abc import Iterable

from ...base.types import TopicPartition
from ..network.exchange import Exchange, Held
from ..replicas.replicas import Replicas


class RoleChange:
    """A LeaderAndIsr that is being carried out."""

    __slots__ = ("done", "making")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.done: asyncio.Future[None] = loop.create_future()
        self.making: set[TopicPartition] = set()  # replicas whose logs do not exist yet


def hold(
    change: RoleChange | None, replicas: Replicas, exchange: Exchange, named: Iterable[tuple[str, int]]
) -> None:
    """Raises Held if one of the `named` partitions is changing its role, but only once for each request."""
    if change is None or exchange.was_held:
        return
    for topic, index in named:
        tp = TopicPartition(topic, index)
        partition = replicas.find(tp)
        if tp in change.making if partition is None else partition.changing:
            exchange.was_held = True
            raise Held(change.done)

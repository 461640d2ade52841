"""Requests that come while roles are being changed wait for that, instead of being told that nobody leads.

A new leader brings its epoch to the medium before it leads. Who was sent to it by the old leader, or follows
it already, comes within that time; refused, it would come again only when its patience says so, which with
some clients is a second. Kafka's brokers take a lock for as long.
Left to others: the changes themselves (leader_and_isr.py), the wait (network/connection.py).
"""

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ...base.types import TopicPartition
from ..network.exchange import Exchange, Held

if TYPE_CHECKING:
    from .replicas import Replicas


class RoleChange:
    """One command of a controller, while it is being obeyed."""

    __slots__ = ("done", "making")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.done: asyncio.Future[None] = loop.create_future()
        self.making: set[TopicPartition] = set()  # replicas that are not here yet


def hold(replicas: "Replicas", exchange: Exchange, named: Iterable[tuple[str, int]]) -> None:
    """Raises Held if one of the partitions `named` is about to have another role, once for each request."""
    change = replicas.host.change
    if change is None or exchange.was_held:
        return
    for topic, index in named:
        tp = TopicPartition(topic, index)
        partition = replicas.find(tp)
        if tp in change.making if partition is None else partition.changing:
            exchange.was_held = True
            raise Held(change.done)

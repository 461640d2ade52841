"""Invariant I25: soon after the last change, brokers tell clients of the cluster what ZooKeeper holds.

A change reaches brokers only if the controller sends it. If it forgets one, no record is lost, but clients
are told of a former leader or ISR until the next change.
Left to others: when the cluster is calm enough to compare (`judging.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ...base.types import TopicPartition
from ...broker.node import Node
from ..cluster import BROKERS
from .states import State


def disagreement(nodes: Mapping[int, Node], states: Mapping[TopicPartition, State]) -> str | None:
    """What some broker believes that is not so; None if all of them are right."""
    told = (f"b{id} {what}" for id, node in sorted(nodes.items()) for what in _wrong(node, nodes, states))
    return next(told, None)


def _wrong(node: Node, nodes: Mapping[int, Node], states: Mapping[TopicPartition, State]) -> Iterator[str]:
    picture = node.broker.metadata
    controllers = [id for id, each in nodes.items() if each.broker.controller.active]
    if [picture.controller_id] != controllers:
        yield f"takes b{picture.controller_id} for the controller, which is {controllers}"
    if {*picture.brokers} != {*BROKERS}:
        yield f"knows the brokers {sorted(picture.brokers)}"
    if node.broker.shared.membership.live != {*BROKERS}:
        yield f"would let only {sorted(node.broker.shared.membership.live)} join an ISR"
    shown = {
        TopicPartition(name, number): (one.leader, one.leader_epoch, sorted(one.isr))
        for name, topic in picture.topics.items()
        for number, one in topic.partitions.items()
    }
    held = {tp: (s["leader"], s["leader_epoch"], sorted(s["isr"])) for tp, s in states.items()}
    for tp in sorted(shown.keys() | held.keys()):
        if shown.get(tp) != held.get(tp):
            yield (f"says of {tp} (leader, epoch, ISR) {shown.get(tp)}, and ZooKeeper {held.get(tp)}")

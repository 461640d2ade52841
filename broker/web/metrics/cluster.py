"""The broker as a whole, its ZooKeeper session, and the controller, if it is this broker.

Left to others: replicas (replicas.py), when to pause (exposition.py).
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from .... import __version__
from ....base.types import NO_LEADER
from ....controller.planning.state import ClusterState
from ..view import View
from . import declared as m
from .page import Page

if TYPE_CHECKING:
    from ...context import BrokerContext

STEP = 200  # partitions or topics between two pauses
STATES = {"starting": 1, "running": 3, "stopping": 6, "failed": 0}  # Kafka's numbers, and 0


def process(view: View, page: Page) -> Iterator[None]:
    """What is known at any time of a broker's life."""
    page.put(m.BROKER_STATE, STATES[view.phase])
    cluster = "" if view.broker is None else view.broker.cluster_id
    page.put(m.INFO, 1, broker=view.config.broker_id, version=__version__, cluster=cluster)
    page.put(m.LATE, round(view.late_s, 6))
    if view.zk is not None:
        page.put(m.ZK_CONNECTED, int(view.zk.connected))
        page.put(m.ZK_SESSIONS, view.zk.generation)
    yield


def controller(broker: "BrokerContext", page: Page, each_max: int) -> Iterator[None]:
    """What the controller of the cluster knows, if it is this broker; what this one has done as such."""
    controller = broker.controller
    state, notes = controller.view, controller.decision_notes
    page.put(m.ACTIVE, int(controller.active))
    page.summary(m.ELECTIONS, notes.elections, None, ())
    page.put(m.UNCLEAN, notes.unclean_elections)
    page.put(m.LOSSES, notes.potential_losses)
    page.put(m.CHANNEL_FAILURES, notes.channel_failures)
    if notes.last_election_ms:
        page.put(m.LAST_ELECTION, notes.last_election_ms / 1000)
    if state is None:
        page.put(m.OFFLINE, 0)
        return
    page.put(m.EPOCH, state.controller_epoch)
    page.put(m.EVENTS, controller.queued)
    page.put(m.ACTIVE_BROKERS, len(state.live))
    page.put(m.BROKERS, len(state.live))
    yield from _partitions(state, page)
    page.put(m.GLOBAL_TOPICS, len(state.topics))
    if len(state.topics) <= each_max:
        for number, (name, topic) in enumerate(sorted(state.topics.items()), 1):
            page.put(m.TOPIC_PARTITIONS, len(topic.replicas), topic=name)
            if number % STEP == 0:
                yield


def _partitions(state: ClusterState, page: Page) -> Iterator[None]:
    """As `gauges` of controller/planning/decision_notes.py has them; the state never changes meanwhile."""
    count = offline = imbalanced = 0
    for topic in state.topics.values():
        for partition in topic.partitions:
            count += 1
            known, replicas = state.partitions.get(partition), state.replicas(partition)
            if known is None or known.leader == NO_LEADER or not state.is_live(known.leader):
                offline += 1
            elif replicas and known.leader != replicas[0]:
                imbalanced += 1
            if count % STEP == 0:
                yield
    page.put(m.OFFLINE, offline)
    page.put(m.IMBALANCE, imbalanced)
    page.put(m.GLOBAL_PARTITIONS, count)

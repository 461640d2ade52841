"""The decisions that this broker has recorded: the newest of all, and those about some partitions.

A broker that was the controller has the controller's decisions; each leader has those about its ISR. So the
page merges what all brokers have kept.
Left to others: keeping them (broker/recorder.py), merging and telling them (web/api_decisions.py).
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ...base.types import TopicPartition
from ...storage.decision_log import BROKER, CONTROLLER, Decision, controllers_ring

if TYPE_CHECKING:
    from ..context import BrokerContext

NEWEST_MAX = 300
OF_ONE_MAX = 200  # decisions about one partition, of each of the two kinds
OF_ALL_MAX = 3_000
REPEATED = frozenset({"stopped", "isr_grow_proposed"})
"""What another decision tells as well: a new role follows from the controller's decision."""


def newest(broker: "BrokerContext", limit: int) -> list[dict[str, Any]]:
    """The newest decisions of any kind, oldest first, without those that only repeat another."""
    wanted = max(min(limit, NEWEST_MAX), 0)
    rings = broker.shared.recorder.rings
    controllers = rings.newest(wanted, lambda ring: ring.startswith(CONTROLLER) or ring == BROKER)
    replicas = rings.newest(3 * wanted, lambda ring: not ring.startswith(CONTROLLER) and ring != BROKER)
    told = [one for one in replicas if one.what not in REPEATED and not one.what.startswith("became_")]
    found = sorted([*controllers, *told[-wanted:]], key=lambda one: one.at_ms)
    return [_told(one) for one in found[-wanted:]] if wanted else []


def of_partitions(broker: "BrokerContext", partitions: Iterable[TopicPartition]) -> dict[str, Any]:
    """Decisions about these partitions, and those about brokers."""
    recorder, names = broker.shared.recorder, [str(tp) for tp in partitions]
    each_max = max(
        min(OF_ONE_MAX, OF_ALL_MAX // max(2 * len(names), 1)), 1
    )  # none for the troubles of others
    found: list[dict[str, Any]] = []
    for name in names:
        for ring in (name, controllers_ring(name)):
            found += [_told(one) for one in recorder.of(ring)[-each_max:]]
    about_brokers = [*recorder.of(CONTROLLER)[-OF_ONE_MAX:], *recorder.of(BROKER)[-OF_ONE_MAX:]]
    return {"partitions": found[:OF_ALL_MAX], "brokers": [_told(one) for one in about_brokers]}


def _told(decision: Decision) -> dict[str, Any]:
    """`about` is a partition, or empty; `controller` tells whether it is a decision of the controller."""
    ring = decision.ring
    by_controller = ring == CONTROLLER or ring.startswith(f"{CONTROLLER}/")
    about = "" if ring in (CONTROLLER, BROKER) else ring.removeprefix(f"{CONTROLLER}/")
    return {"about": about, "controller": by_controller, **decision.as_dict()}

"""`/health` and `/ready`: what a supervisor and a load balancer ask, answered with all reasons.

`/health` is 503 only for what a restart of this process may mend. ZooKeeper that cannot be reached is a
warning: a supervisor that restarted all brokers for it would end a cluster that still serves.
`/ready` is 200 when writes are acknowledged here: the controller has announced this broker, every replica
assigned to it has its role, and those that lead accept acks=all. With `?in_sync` the followers must be in
their ISRs, too: a rolling restart that waits for this never stops a second member of an ISR.
Left to others: the routes (routes.py).
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ...base.types import TopicPartition
from ..replicas.shared import Role
from .answer import Answer, Asked, as_json
from .view import View

if TYPE_CHECKING:
    from ..context import BrokerContext
    from ..replicas.partition import Partition

NAMED_MAX = 20  # partitions that are named for one reason; further ones are counted


async def health(view: View, asked: Asked) -> Answer:
    """Whether this process works."""
    document = health_document(view)
    return as_json(document, 503 if document["reasons"] else 200)


async def ready(view: View, asked: Asked) -> Answer:
    """Whether writes are acknowledged here."""
    document = ready_document(view, asked.flag("in_sync"))
    return as_json(document, 200 if document["ready"] else 503)


def health_document(view: View) -> dict[str, Any]:
    """`reasons` is what a restart may mend, `warnings` what it does not."""
    reasons: list[str] = []
    warnings: list[str] = []
    if view.failure is not None:
        reasons.append(f"the broker has failed: {view.failure}")
    connected = view.zk is not None and view.zk.connected
    if view.zk is not None and not connected:
        warnings.append("ZooKeeper is not connected")
    directories = [] if view.broker is None else _directories(view.broker)
    offline = [one["path"] for one in directories if one["state"] == "offline"]
    if directories and len(offline) == len(directories):
        reasons.append("every log directory is offline")
    elif offline:
        warnings.append(f"offline log directories: {', '.join(offline)}")
    return {
        "status": view.phase,
        "broker": view.config.broker_id,
        "incarnation": None if view.broker is None else view.broker.incarnation,
        "reasons": reasons,
        "warnings": warnings,
        "event_loop_late_ms": round(view.late_s * 1000, 1),
        "zookeeper": {"connected": connected},
        "log_dirs": directories,
    }


def _directories(broker: "BrokerContext") -> list[dict[str, Any]]:
    places = broker.logs.places
    return [
        {
            "path": path,
            "state": "offline" if path in places.offline else "ok",
            "why": places.offline.get(path),
        }
        for path in places.configured
    ]


def ready_document(view: View, in_sync: bool = False) -> dict[str, Any]:
    """`reasons` is why it is not ready; `out_of_sync` counts as one only if `in_sync` is wanted."""
    broker = view.broker
    if broker is None or view.phase != "running":
        return {"ready": False, "broker": view.config.broker_id, "reasons": [{"why": view.phase}]}
    found = _troubles(broker)
    out_of_sync = _named("out_of_sync", found.pop("out_of_sync", []))
    reasons: list[dict[str, Any]] = [{"why": why} for why in _missing(broker)]
    reasons += [_named(why, partitions) for why, partitions in sorted(found.items())]
    if in_sync and out_of_sync["count"]:
        reasons.append(out_of_sync)
    return {
        "ready": not reasons,
        "broker": broker.id,
        "controller": broker.metadata.controller_id,
        "reasons": reasons,
        "out_of_sync": out_of_sync,
        "zookeeper": {"connected": broker.controller.is_informed},
    }


def _named(why: str, partitions: list[TopicPartition]) -> dict[str, Any]:
    return {
        "why": why,
        "count": len(partitions),
        "partitions": [str(partition) for partition in sorted(partitions)[:NAMED_MAX]],
    }


def _missing(broker: "BrokerContext") -> Iterator[str]:
    """What the broker as a whole lacks."""
    picture = broker.metadata
    if broker.id not in picture.brokers:
        yield "not_announced"  # by a controller, since this start
    if picture.controller_id not in picture.brokers:
        yield "no_controller"
    if broker.shared.fenced:
        yield "fenced"  # leader.fence.on.zk.loss


def _troubles(broker: "BrokerContext") -> dict[str, list[TopicPartition]]:
    """Why writes to partitions are not acknowledged, with the partitions."""
    found: dict[str, list[TopicPartition]] = {}
    replicas, me = broker.replicas, broker.id
    for name, topic in broker.metadata.topics.items():
        for number, state in topic.partitions.items():
            if me not in state.replicas:
                continue
            partition = TopicPartition(name, number)
            why = _trouble(replicas.find(partition))
            if why is None and me not in state.isr:
                why = "out_of_sync"
            if why is not None:
                found.setdefault(why, []).append(partition)
    return found


def _trouble(replica: "Partition | None") -> str | None:
    if replica is None:
        return "not_hosted"
    if replica.role is Role.OFFLINE:
        return "offline"
    if replica.full is not None:
        return "disk_full"
    leader = replica.leading
    if leader is None:
        return "no_leader" if replica.role is Role.IDLE else None
    if replica.is_forsaken:  # without a session, and heard by none of the others: it refuses writes
        return "forsaken"
    if replica.recovering:
        return "recovering"
    return "under_min_isr" if leader.under_min_isr else None

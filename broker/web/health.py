"""`/health` and `/ready`: what a supervisor and a load balancer ask, answered with all reasons.

`/health` is 503 only for what a restart of this process may mend. ZooKeeper that cannot be reached is a
warning: a supervisor that restarted all brokers for it would end a cluster that still serves.
`/ready` is 200 when writes are acknowledged here: the controller has announced this broker, every replica
assigned to it has its role, and those that lead accept acks=all. With `?in_sync` the followers must be in
their ISRs, too: a rolling restart that waits for this never stops a second member of an ISR.
Left to others: looking at the partitions (readiness.py), the routes (routes.py).
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from .answer import Answer, Asked, as_json
from .readiness import NO_TROUBLE, OUT_OF_SYNC, Trouble
from .view import View

if TYPE_CHECKING:
    from ..context import BrokerContext


async def health(view: View, asked: Asked) -> Answer:
    """Whether this process works."""
    document = health_document(view)
    return as_json(document, 503 if document["reasons"] else 200)


async def ready(view: View, asked: Asked) -> Answer:
    """Whether writes are acknowledged here."""
    document = await ready_document(view, asked.flag("in_sync"))
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


async def ready_document(view: View, in_sync: bool = False) -> dict[str, Any]:
    """`reasons` is why it is not ready; `out_of_sync` counts as one only if `in_sync` is wanted;
    `looked_ago_s` is how long ago partitions were looked at.
    """
    broker, found, ago_s = view.broker, NO_TROUBLE, 0.0
    if broker is not None and view.phase == "running":
        found, ago_s = await view.readiness.look(broker)
    if broker is None or view.phase != "running":
        return {"ready": False, "broker": view.config.broker_id, "reasons": [{"why": view.phase}]}
    troubles = dict(found)
    out_of_sync = troubles.pop(OUT_OF_SYNC, Trouble(OUT_OF_SYNC))
    reasons: list[dict[str, Any]] = [{"why": why} for why in _missing(broker)]
    reasons += [trouble.as_dict() for _, trouble in sorted(troubles.items())]
    if in_sync and out_of_sync.count:
        reasons.append(out_of_sync.as_dict())
    return {
        "ready": not reasons,
        "broker": broker.id,
        "controller": broker.metadata.controller_id,
        "reasons": reasons,
        "out_of_sync": out_of_sync.as_dict(),
        "looked_ago_s": round(ago_s, 3),
        "zookeeper": {"connected": broker.controller.is_informed},
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

"""Inspect 0, our own: what this broker knows of a partition, of its replication, of its process, of
removed records.

v0. Served on every listener, but not listed by ApiVersions. An answer is bounded in decisions, removals and
bytes. Read-only.
Left to others: what is in the documents (inspection.py, replication_metrics.py, process_facts.py, overview/,
storage/quarantine.py).
"""

import asyncio
import posixpath
from typing import TYPE_CHECKING, Any

import msgpack

from ...base.types import TopicPartition
from ...protocol.apis import Api
from ...protocol.errors import ApiError, InvalidRequest, KafkaStorageError
from ...protocol.messages.inspection import InspectRequest, InspectResponse
from ...storage.decision_log import DecisionLog
from ...storage.disk import Disk
from ...storage.quarantine import removal_rows, removed_bytes
from ..inspection import partition_document
from ..network.exchange import Exchange, HandlerEntry
from ..overview.answer import overview_asked
from ..process_facts import process_facts
from ..replication_metrics import lags, of_cleaning, replication_metrics

if TYPE_CHECKING:
    from ..context import BrokerContext

REMOVALS_MAX = 1_000
REMOVED_BYTES_MAX = 1 << 20
RECORDED_BYTES = 128 << 10  # of decisions in one answer: they are unpacked on the event loop


async def handle(broker: "BrokerContext", exchange: Exchange, request: InspectRequest) -> InspectResponse:
    """What was asked about, as one msgpack document."""
    document: dict[str, Any]
    if request.about == "partition":
        document = partition_document(broker, _partition(request))
    elif request.about == "metrics":
        document = {
            "broker": broker.id,
            "now_ms": broker.clock.wall_ms(),
            "replication": replication_metrics(broker),
            "max_lag_by_leader": lags(broker.replicas),
            "cleaner": of_cleaning(broker.cleaning),
            "groups": broker.groups.metrics(),
            "transactions": broker.transactions.metrics(),
            "requests": broker.metrics.snapshot(),
        }
    elif request.about == "web":
        document = {"broker": broker.id, "web": broker.web}
    elif request.about == "recorder":
        recorded = _recorded(broker.shared.recorder.rings, request.name)
        document = {"broker": broker.id, "now_ms": broker.clock.wall_ms(), **recorded}
    elif request.about == "process":
        facts = await asyncio.get_running_loop().run_in_executor(None, process_facts)
        document = {
            "broker": broker.id,
            "now_ms": broker.clock.wall_ms(),
            "registry_connected": broker.controller.is_informed,
            **facts,
        }
    elif request.about == "overview":
        document = {"broker": broker.id, **overview_asked(broker, bytes(request.questions))}
    elif request.about == "removals":
        partition = _partition(request) if request.topic else None
        document = {"broker": broker.id, "removals": await _in_thread(broker, _removals, partition)}
    elif request.about == "removed":
        size = min(request.limit or REMOVED_BYTES_MAX, REMOVED_BYTES_MAX)
        data = await _in_thread(broker, _removed, request.name, request.position, size)
        document = {"broker": broker.id, "data": data}
    else:
        raise InvalidRequest(f"unknown subject {request.about!r}")
    return InspectResponse(document=msgpack.packb(document))


def refuse(request: InspectRequest, error: ApiError) -> InspectResponse:
    """Nothing but the error."""
    return InspectResponse(error_code=error.code, error_message=error.message)


def _partition(request: InspectRequest) -> TopicPartition:
    if not request.topic or request.partition < 0:
        raise InvalidRequest("expected a topic and a partition")
    return TopicPartition(request.topic, request.partition)


async def _in_thread(broker: "BrokerContext", work: Any, *arguments: Any) -> Any:
    logs = broker.logs
    loop = asyncio.get_running_loop()
    try:
        return await loop.run_in_executor(None, work, logs.disk, logs.places.usable, *arguments)
    except OSError as error:
        raise KafkaStorageError(str(error)) from error


def _recorded(log: DecisionLog, after: str) -> dict[str, Any]:
    """Whole rings, in the order of their names, from behind `after` on; `next` if there are more."""
    told: dict[str, Any] = {}
    size = 0
    for name in log.names():
        if name <= after:
            continue
        if size > RECORDED_BYTES:
            return {"rings": told, "next": max(told)}
        told[name] = [decision.as_dict() for decision in log.of(name)]
        size += log.size(name)
    return {"rings": told, "next": ""}


def _removals(disk: Disk, dirs: list[str], partition: TopicPartition | None) -> list[dict[str, Any]]:
    rows = [row for log_dir in dirs for row in removal_rows(disk, log_dir, partition)]
    return sorted(rows, key=lambda row: (row["at_ms"], row["path"]))[-REMOVALS_MAX:]


def _removed(disk: Disk, dirs: list[str], path: str, position: int, size: int) -> bytes:
    """Bytes of a file in quarantine; of no other file."""
    for log_dir in dirs:
        data = removed_bytes(disk, log_dir, path, max(position, 0), max(size, 0))
        if data is not None:
            return data
    raise InvalidRequest(f"{posixpath.basename(path)} is not among the removed records of this broker")


HANDLERS = {Api.INSPECT: HandlerEntry(handle, refuse)}

"""Administrators' requests and the methods that answer them: one row for each.

Left to others: finding the controller (`broker/forward.py`), what is done and when that is answered
(`topics.py`, `configs.py`, `reassignments.py`, `election_requests.py`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from ...protocol.messages.config_changes import AlterConfigsRequest, IncrementalAlterConfigsRequest
from ...protocol.messages.control import AlterPartitionRequest
from ...protocol.messages.elections import ElectLeadersRequest
from ...protocol.messages.producers import AllocateProducerIdsRequest
from ...protocol.messages.reassignments import (
    AlterPartitionReassignmentsRequest,
    ListPartitionReassignmentsRequest,
)
from ...protocol.messages.topics import CreatePartitionsRequest, CreateTopicsRequest, DeleteTopicsRequest
from .configs import ConfigRequests
from .election_requests import ElectionRequests
from .isr_changes import IsrChanges
from .producer_id_blocks import ProducerIdBlocks
from .reassignments import ReassignmentWriter
from .topics import TopicRequests


class RequestHandlers(NamedTuple):
    """The objects that answer requests during one term."""

    topics: TopicRequests
    configs: ConfigRequests
    reassignments: ReassignmentWriter
    elections: ElectionRequests
    isrs: IsrChanges
    producer_ids: ProducerIdBlocks


REQUESTS: dict[type, Callable[[RequestHandlers, Any], Awaitable[Any]]] = {
    CreateTopicsRequest: lambda handlers, request: handlers.topics.create_topics(request),
    DeleteTopicsRequest: lambda handlers, request: handlers.topics.delete_topics(request),
    CreatePartitionsRequest: lambda handlers, request: handlers.topics.create_partitions(request),
    AlterConfigsRequest: lambda handlers, request: handlers.configs.alter(request),
    IncrementalAlterConfigsRequest: lambda handlers, request: handlers.configs.alter_incrementally(request),
    AlterPartitionReassignmentsRequest: lambda handlers, request: handlers.reassignments.alter(request),
    ListPartitionReassignmentsRequest: lambda handlers, request: handlers.reassignments.list(request),
    ElectLeadersRequest: lambda handlers, request: handlers.elections.elect(request),
    AlterPartitionRequest: lambda handlers, request: handlers.isrs.alter(request),
    AllocateProducerIdsRequest: lambda handlers, request: handlers.producer_ids.allocate(request),
}

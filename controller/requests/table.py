"""Administrators' requests and the methods that answer them: one row for each.

Left to others: finding the controller (`broker/forward.py`), what is done and when that is answered
(`topics.py`, `configs.py`, `reassignments.py`, `elections.py`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from ...protocol.messages.config_changes import AlterConfigsRequest, IncrementalAlterConfigsRequest
from ...protocol.messages.elections import ElectLeadersRequest
from ...protocol.messages.reassignments import (
    AlterPartitionReassignmentsRequest,
    ListPartitionReassignmentsRequest,
)
from ...protocol.messages.topics import CreatePartitionsRequest, CreateTopicsRequest, DeleteTopicsRequest
from .configs import Settings
from .elections import ElectionRequests
from .reassignments import ReassignmentWriter
from .topics import TopicRequests


class Desks(NamedTuple):
    """The objects that answer requests during one term."""

    topics: TopicRequests
    settings: Settings
    reassignments: ReassignmentWriter
    elections: ElectionRequests


REQUESTS: dict[type, Callable[[Desks, Any], Awaitable[Any]]] = {
    CreateTopicsRequest: lambda desks, request: desks.topics.create_topics(request),
    DeleteTopicsRequest: lambda desks, request: desks.topics.delete_topics(request),
    CreatePartitionsRequest: lambda desks, request: desks.topics.create_partitions(request),
    AlterConfigsRequest: lambda desks, request: desks.settings.alter(request),
    IncrementalAlterConfigsRequest: lambda desks, request: desks.settings.alter_incrementally(request),
    AlterPartitionReassignmentsRequest: lambda desks, request: desks.reassignments.alter(request),
    ListPartitionReassignmentsRequest: lambda desks, request: desks.reassignments.list(request),
    ElectLeadersRequest: lambda desks, request: desks.elections.elect(request),
}

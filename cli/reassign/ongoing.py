"""Ongoing reassignments, for commands that show partitions; none if the controller does not answer.

Left to others: asking for moves (command.py), the request (client/admin/reassignments.py).
"""

from ...base.types import TopicPartition
from ...client.admin.reassignments import PartitionReassignment
from ...client.sync import Admin
from ...protocol.errors import ApiError

CONTROLLER_WITHIN_MS = 2_000  # how long a command waits for the controller, which alone knows

Moves = dict[TopicPartition, PartitionReassignment]


def moving(admin: Admin) -> Moves:
    """Ongoing reassignments; empty if the controller does not answer, so that the rest can be shown."""
    try:
        return admin.list_partition_reassignments(timeout_ms=CONTROLLER_WITHIN_MS)
    except (ApiError, OSError):
        return {}

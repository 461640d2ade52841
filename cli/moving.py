"""What is being moved, for commands that show partitions: as far as the controller can be asked.

Left to others: asking for moves (reassign.py), how they are told (client/admin/reassignments.py).
"""

from ..base.types import TopicPartition
from ..client.admin.reassignments import PartitionReassignment
from ..client.sync import Admin
from ..protocol.errors import ApiError

CONTROLLER_WITHIN_MS = 2_000  # how long a command waits for what only the controller knows

Moves = dict[TopicPartition, PartitionReassignment]


def moving(admin: Admin) -> Moves:
    """What is moving, if the controller can be asked: all else is shown without it."""
    try:
        return admin.list_partition_reassignments(timeout_ms=CONTROLLER_WITHIN_MS)
    except (ApiError, OSError):
        return {}

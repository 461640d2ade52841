"""Writes of a group's record that are not acknowledged yet, and why each was made.

Left to others: when to write, and what follows (group.py); writing (coordinator.py).
"""

from ...base.values import dataclass
from ...protocol.errors import ErrorCode
from .state import Persist, Terms

# If writing a group's metadata fails with the left, members that wait for it get the right.
SAVE_ERRORS: dict[ErrorCode, ErrorCode] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


@dataclass(frozen=True, slots=True)
class SavingAssignment:
    """A write in flight: the leader's assignment of this generation."""

    generation: int
    assignments: dict[str, bytes]


@dataclass(frozen=True, slots=True)
class SavingReplacement:
    """A write in flight: a static member came back under a new member id while the group was stable."""

    generation: int
    instance_id: str
    old_id: str
    new_id: str
    leader_before: str
    may_skip_assignment: bool
    before: Terms


@dataclass(frozen=True, slots=True)
class SavingEmptiness:
    """A write in flight: the last member left. Nobody waits for it."""

    generation: int


Saving = SavingAssignment | SavingReplacement | SavingEmptiness


class PendingWrites:
    """The writes of one group, each under the token that its acknowledgement names."""

    def __init__(self) -> None:
        self._by_token: dict[int, Saving] = {}
        self._last_token = 0

    def begin(self, saving: Saving, assignments: dict[str, bytes]) -> Persist:
        """Note why the group is about to be written with these assignments."""
        assert all(saving.generation >= other.generation for other in self._by_token.values()), (
            "a generation never goes back"
        )
        self._last_token += 1
        self._by_token[self._last_token] = saving
        return Persist(self._last_token, assignments)

    def end(self, token: int) -> Saving | None:
        """This write is acknowledged or has failed. None: the group has ended meanwhile."""
        assert token <= self._last_token, "what ends has begun"
        return self._by_token.pop(token, None)

    def forget(self) -> None:
        """The group ends: what becomes of its writes no longer matters."""
        self._by_token.clear()

    def has_assignment(self, generation: int) -> bool:
        """Whether the assignment of this generation is being written."""
        return any(
            isinstance(saving, SavingAssignment) and saving.generation == generation
            for saving in self._by_token.values()
        )

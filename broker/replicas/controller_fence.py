"""Which commands of controllers a broker obeys: none of a deposed one, none for an earlier life, none twice.

A controller whose request timed out sends it again on another connection; the first copy may then be read
after the retry's successors. So each attempt carries a number that only rises, and a number seen already
is dropped.
"""

from ...protocol.errors import ErrorCode

ABSENT = -1  # what a controller that is not ours leaves out


class ControlGate:
    """Remembers the highest controller epoch and, within it, the last number; and counts what it admits."""

    __slots__ = ("admitted", "controller_epoch", "sequence")

    def __init__(self) -> None:
        self.controller_epoch = ABSENT
        self.sequence = ABSENT
        self.admitted = 0

    def admit(self, controller_epoch: int, broker_epoch: int, sequence: int, incarnation: int) -> ErrorCode:
        """NONE if the command is to be obeyed; it is then the last one seen."""
        if controller_epoch < self.controller_epoch:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        if broker_epoch != ABSENT and broker_epoch < incarnation:
            return ErrorCode.STALE_BROKER_EPOCH
        if controller_epoch > self.controller_epoch:
            self.sequence = ABSENT
        elif sequence != ABSENT and sequence <= self.sequence:
            return ErrorCode.INVALID_REQUEST
        self.controller_epoch = controller_epoch
        self.sequence = max(self.sequence, sequence)
        self.admitted += 1
        return ErrorCode.NONE

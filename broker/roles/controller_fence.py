"""Refuses controller requests from a deposed controller, for an earlier start of this broker, or repeated.

A controller resends a request that timed out, on another connection. The first copy may then arrive after
later requests and undo them. So each attempt carries a rising number, and a number that is not higher than
the last is refused. Controllers of Apache Kafka number nothing, and tell the czxid of this broker's
registration in place of its incarnation: what they sent before it registered again is refused once they have
told the new one.
"""

from ...protocol.errors import ErrorCode

ABSENT = -1  # controllers other than ours leave these fields out


class ControlGate:
    """Remembers the highest controller epoch and the last number within it, and counts what it admits."""

    __slots__ = ("admitted", "controller_epoch", "is_kafkas", "kafkas_epoch", "sequence")

    def __init__(self) -> None:
        self.controller_epoch = ABSENT
        self.sequence = ABSENT
        self.admitted = 0
        self.is_kafkas = False  # the controller is a broker of Apache Kafka: it does not number its requests
        self.kafkas_epoch = ABSENT  # the newest start of this broker that such a controller has named

    def admit(self, controller_epoch: int, broker_epoch: int, sequence: int, incarnation: int) -> ErrorCode:
        """NONE if the request counts, which is then the last one seen; else the error to answer."""
        if controller_epoch < self.controller_epoch:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        if broker_epoch != ABSENT and broker_epoch < incarnation:
            return ErrorCode.STALE_BROKER_EPOCH
        is_kafkas = sequence == ABSENT
        if controller_epoch > self.controller_epoch:
            self.sequence = self.kafkas_epoch = ABSENT
        elif is_kafkas and ABSENT != broker_epoch < self.kafkas_epoch:
            return ErrorCode.STALE_BROKER_EPOCH
        elif sequence != ABSENT and sequence <= self.sequence:
            return ErrorCode.INVALID_REQUEST
        self.controller_epoch = controller_epoch
        self.sequence = max(self.sequence, sequence)
        self.admitted += 1
        self.is_kafkas = is_kafkas
        if is_kafkas:
            self.kafkas_epoch = max(self.kafkas_epoch, broker_epoch)
        return ErrorCode.NONE

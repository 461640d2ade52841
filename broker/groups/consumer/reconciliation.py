"""One step of a member towards its target: what it has to give up, and what it may have now. Pure.

A member first gives up what is not in its target, and keeps its epoch meanwhile. Only when it no longer owns
any of that does it get the epoch of the target, and those partitions of it that nobody else holds.
Source of the rules: CurrentAssignmentBuilder of Kafka 4.0.
"""

from collections.abc import Container
from dataclasses import replace

from .state import NO_PARTITIONS, MemberState, Partitions, Progress


def next_step(
    now: Progress,
    target: Partitions,
    target_epoch: int,
    held: Container[object],
    owned: Partitions | None,
) -> Progress:
    """The member's progress after this heartbeat. `owned`: what it says it has, None if it does not say;
    `held`: what any member holds.
    """
    match now.state:
        case MemberState.STABLE if now.epoch == target_epoch:
            return now
        case MemberState.UNREVOKED if _owns(owned, now.revoking):
            return now
        case MemberState.UNREVOKED:
            return _towards(now, now.epoch + 1, target, target_epoch, held, owned)
    return _towards(now, now.epoch, target, target_epoch, held, owned)


def _towards(
    now: Progress,
    epoch: int,
    target: Partitions,
    target_epoch: int,
    held: Container[object],
    owned: Partitions | None,
) -> Progress:
    keeps = now.assigned & target
    revoking = now.assigned - keeps
    if revoking and _owns(owned, revoking):
        return _moved(now, epoch, MemberState.UNREVOKED, keeps, revoking)
    missing = target - keeps
    free = frozenset(one for one in missing if one not in held)
    waits = free != missing
    state = MemberState.UNRELEASED if waits else MemberState.STABLE
    return _moved(now, target_epoch, state, keeps | free, NO_PARTITIONS)


def _moved(
    now: Progress, epoch: int, state: MemberState, assigned: Partitions, revoking: Partitions
) -> Progress:
    previous = now.epoch if epoch != now.epoch else now.previous_epoch
    return replace(
        now, epoch=epoch, previous_epoch=previous, state=state, assigned=assigned, revoking=revoking
    )


def _owns(owned: Partitions | None, revoking: Partitions) -> bool:
    """Whether it has, or may have, any of these."""
    return owned is None or bool(owned & revoking)

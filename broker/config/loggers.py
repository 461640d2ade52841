"""A broker's loggers as clients see and change them: a resource with one setting per logger, its level.

A change counts until the broker ends; nothing of it is written anywhere, as with Kafka.
Left to others: the levels themselves (base/log_levels.py), the requests (broker/handlers/configs.py).
"""

from collections.abc import Sequence

import structlog

from ...base.log_levels import LEVELS, NUMBERS, ROOT, loggers
from ...controller.requests.config_changes import Operation, SettingChange
from ...protocol.errors import InvalidConfig, InvalidRequest

logger = structlog.get_logger(__name__)


def check_broker(asked: str, me: int) -> None:
    """Loggers belong to one broker: there are none of all brokers."""
    if asked != str(me):
        raise InvalidRequest(f"loggers of broker {asked!r}: this is broker {me}; send it the request")


def levels() -> dict[str, str]:
    """The level in force of every logger."""
    return {name: LEVELS.level_of(name) for name in sorted(loggers())}


def alter(changes: Sequence[SettingChange], validate_only: bool) -> None:
    """Set or unset levels; all of them or, if one is not valid, none."""
    known = loggers()
    for change in changes:
        _check(change, known)
    if validate_only:
        return
    for change in changes:
        level = change.value if change.operation is Operation.SET else None
        LEVELS.set(change.name, level)
        logger.warning("log_level_changed", logger=change.name, level=LEVELS.level_of(change.name))


def _check(change: SettingChange, known: set[str]) -> None:
    if change.operation not in (Operation.SET, Operation.DELETE):
        raise InvalidRequest(f"{change.name}: the level of a logger can be set or deleted only")
    if change.name not in known:
        raise InvalidConfig(f"there is no logger {change.name!r}: DescribeConfigs lists all of them")
    if change.operation is Operation.DELETE and change.name == ROOT:
        raise InvalidRequest("the level of the root logger can be changed, but not deleted")
    if change.operation is Operation.SET and change.value not in NUMBERS:
        raise InvalidConfig(
            f"{change.name} = {change.value!r}: not a level: expected one of {', '.join(NUMBERS)}"
        )

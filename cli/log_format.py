"""The format of a broker's log: one JSON object per line, one event per decision, on stderr.

Left to others: from which level on a logger writes (base/log_levels.py), which changes while a broker runs.
"""

import sys
from typing import Any

import structlog

from ..base.log_levels import LEVELS, ROOT

ORDER = {"debug": 10, "info": 20, "warning": 30, "error": 40, "critical": 50}
LEVEL_NAMES = {"debug": "DEBUG", "info": "INFO", "warning": "WARN", "error": "ERROR"}


class NamedWriter(structlog.WriteLogger):
    """Writes the lines of one logger, and knows its name."""

    def __init__(self, name: str = ROOT) -> None:
        super().__init__(sys.stderr)
        self.name = name


class Leveled(structlog.make_filtering_bound_logger(0)):  # type: ignore[misc]
    """Asks LEVELS for each line, because the level may change."""

    def _proxy_to_logger(self, method_name: str, event: str | None = None, *args: Any, **fields: Any) -> Any:
        if not LEVELS.writes(self._logger.name, ORDER[method_name]):
            return None
        return super()._proxy_to_logger(method_name, event, *args, **fields)


def to_stderr(level: str = "info") -> None:
    """Configure structlog for this process."""
    LEVELS.set(ROOT, LEVEL_NAMES[level])
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=Leveled,
        logger_factory=NamedWriter,
        cache_logger_on_first_use=True,
    )

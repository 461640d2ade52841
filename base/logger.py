"""A logger for code inside other programs, such as the client's.

It is structlog if the program has configured that, else the standard library's.

An unconfigured structlog prints everything to standard output, which belongs to the caller's program. It is
not imported here: who has configured it has imported it, and with it come `rich` and `pygments`, a quarter of
what it costs to import the client.
"""

import logging
import sys
from typing import Any


class Logger:
    """Logs events with fields; decides at each call where they go."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._plain = logging.getLogger(name)

    def debug(self, event: str, **fields: Any) -> None:
        """Details for debugging."""
        self._write(logging.DEBUG, event, None, fields)

    def info(self, event: str, **fields: Any) -> None:
        """A decision that was made."""
        self._write(logging.INFO, event, None, fields)

    def warning(self, event: str, **fields: Any) -> None:
        """Something that the caller may want to change."""
        self._write(logging.WARNING, event, None, fields)

    def error(self, event: str, exc_info: BaseException | None = None, **fields: Any) -> None:
        """An unexpected failure."""
        self._write(logging.ERROR, event, exc_info, fields)

    def _write(self, level: int, event: str, failure: BaseException | None, fields: dict[str, Any]) -> None:
        structlog = sys.modules.get("structlog")
        if structlog is not None and structlog.is_configured():
            if failure is not None:
                fields["exc_info"] = failure
            structlog.get_logger(self._name).log(level, event, **fields)
        elif self._plain.isEnabledFor(level):
            text = " ".join((event, *(f"{name}={value}" for name, value in fields.items())))
            self._plain.log(level, "%s", text, exc_info=failure)


def get_logger(name: str) -> Logger:
    """The logger of a module."""
    return Logger(name)

"""LEVELS: from which level on each logger of this process writes; it changes while the process runs.

Loggers have the names of their modules. A logger without a level of its own has that of the nearest package
above it that has one, at last the root's: so `strandline.broker` sets all of the broker's.
Left to others: writing the lines (cli/log_format.py), clients that ask and change (broker/config/loggers.py).
"""

import sys
from collections.abc import Iterator

ROOT = "root"
NUMBERS = {"TRACE": 5, "DEBUG": 10, "INFO": 20, "WARN": 30, "ERROR": 40, "FATAL": 50}


class LogLevels:
    """The levels that were set, by the logger's name; the root always has one."""

    def __init__(self) -> None:
        self._set = {ROOT: "INFO"}
        self._numbers: dict[str, int] = {}  # as looked up since the last change

    def level_of(self, logger: str) -> str:
        """The level in force for a logger."""
        return next(self._set[name] for name in _upwards(logger) if name in self._set)

    def writes(self, logger: str, number: int) -> bool:
        """Whether a line of this level is written."""
        least = self._numbers.get(logger)
        if least is None:
            least = self._numbers[logger] = NUMBERS[self.level_of(logger)]
        return number >= least

    def set(self, logger: str, level: str | None) -> None:
        """Give a logger this level; None: the one above it again."""
        assert level is None or level in NUMBERS, f"a level is one of {', '.join(NUMBERS)}"
        assert level is not None or logger != ROOT, "nothing is above the root"
        self._numbers.clear()
        if level is None:
            self._set.pop(logger, None)
        else:
            self._set[logger] = level


def _upwards(logger: str) -> Iterator[str]:
    while logger:
        yield logger
        logger = logger.rpartition(".")[0]
    yield ROOT


def loggers() -> set[str]:
    """The root, all modules of this package that write to a log, and the packages above them."""
    package = __name__.partition(".")[0]
    found = {ROOT}
    for name, module in tuple(sys.modules.items()):
        if name.partition(".")[0] == package and hasattr(module, "logger"):
            found.update(_upwards(name))
    return found


LEVELS = LogLevels()

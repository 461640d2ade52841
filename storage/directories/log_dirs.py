"""The log directories of a broker: which can be used, which are offline, which are full.

Offline lasts for the life of this process: after a failed sync nobody knows what the directory has. Full
passes.
Left to others: detecting and reporting it (broker/upkeep/disk_failures.py), the logs themselves
(log_manager.py).
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence


class LogDirs:
    """All configured directories, in the order of the configuration."""

    def __init__(self, dirs: Sequence[str], offline: Mapping[str, str] | None = None) -> None:
        self.configured = list(dirs)
        self.offline: dict[str, str] = dict(offline or {})  # directory -> why
        self.full: dict[str, str] = {}  # directory -> what found no room

    @property
    def usable(self) -> list[str]:
        """Those that are not offline."""
        return [directory for directory in self.configured if directory not in self.offline]

    def holding(self, path: str) -> str | None:
        """The log directory that `path` is in, or is itself."""
        found = [each for each in self.configured if path == each or path.startswith(f"{each}/")]
        return max(found, key=len, default=None)

    def for_new(self, used: Iterable[str], but: str | None = None) -> str:
        """Where the next log goes: where the fewest logs are, but not in `but`; full ones only if all are."""
        usable = [directory for directory in self.usable if directory != but]
        assert usable, "a broker without a log directory has stopped"
        if len(usable) == 1:
            return usable[0]
        counts = Counter(used)
        return min(usable, key=lambda directory: (directory in self.full, counts[directory]))

    def lose(self, directory: str, reason: str) -> bool:
        """Take a directory offline. False if it already was."""
        if directory in self.offline:
            return False
        self.offline[directory] = reason
        self.full.pop(directory, None)
        return True

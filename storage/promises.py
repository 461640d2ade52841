"""What the offset checkpoints of all directories say, in memory as it stands in the files.

They promise: up to here a log is on the medium, this much of it is committed, there it begins. A promise is
lowered before the log is cut, and forgotten when the log is removed: none is larger than what is there.
Left to others: what a log can promise (logs.py), what becomes of a promise at the next start (recovery.py).
"""

from collections.abc import Callable, Mapping
from threading import Lock

import structlog

from ..protocol.kinds import TopicPartition
from . import checkpoints
from .disk import Disk, DiskError, DiskFailed, disk_error
from .places import Places

log = structlog.get_logger(__name__)

Offsets = Mapping[TopicPartition, int]


class Promises:
    """The offset checkpoints. Whoever writes one holds `turn`: they come from a thread and from cuts."""

    def __init__(self, disk: Disk, places: Places, directory_of: Mapping[TopicPartition, str]) -> None:
        self.turn = Lock()
        self.high_watermarks: dict[TopicPartition, int] = {}
        self.recovery_points: dict[TopicPartition, int] = {}
        self.start_offsets: dict[TopicPartition, int] = {}
        self._disk = disk
        self._places = places
        self._directory_of = directory_of

    def lower_all(self, ends: Offsets) -> None:
        """Logs are about to be cut to these `ends`: a write for each file. Blocking. Raises DiskError.

        A log that is not cut then after all has promised too little for a while, which costs time at most.
        """
        with self.turn:
            for name, offsets in (
                (checkpoints.RECOVERY_POINTS, self.recovery_points),
                (checkpoints.HIGH_WATERMARKS, self.high_watermarks),
            ):
                lower = {p: end for p, end in ends.items() if offsets.get(p, 0) > end}
                if lower:
                    self._write(name, {**offsets, **lower})
                    offsets.update(lower)

    def lower(self, partition: TopicPartition, end: int, start: int) -> None:
        """A log is about to be cut: its checkpoints must not promise more than will be there.

        Else recovery would take the cut for a loss, and new records below the old recovery point for flushed.
        Where a log began stays, unless it begins earlier now: what a client had deleted does not come back
        with a crash in the middle.
        """
        for name, offsets, least in (
            (checkpoints.RECOVERY_POINTS, self.recovery_points, end),
            (checkpoints.HIGH_WATERMARKS, self.high_watermarks, end),
            (checkpoints.START_OFFSETS, self.start_offsets, start),
        ):
            with self.turn:  # before the look: a thread may be writing what is higher
                if offsets.get(partition, 0) > least:
                    self._write(name, {**offsets, partition: least}, self._directory_of.get(partition))
                    offsets[partition] = least

    def forget_removed(self, directory: str) -> None:
        """Logs there have a name of the removed. If there is no room for this, those names tell enough."""
        try:
            with self.turn:
                self._write(checkpoints.HIGH_WATERMARKS, self.high_watermarks, directory)
                self._write(checkpoints.RECOVERY_POINTS, self.recovery_points, directory)
        except DiskFailed:
            raise
        except DiskError as error:
            log.warning("removals_not_written_down", directory=directory, reason=str(error))

    def give_watermarks(self, high_watermarks: Offsets) -> None:
        """Those that are not given keep theirs (KAFKA-1647)."""
        with self.turn:
            self.high_watermarks.update(high_watermarks)
            self._write(checkpoints.HIGH_WATERMARKS, self.high_watermarks)

    def give_recovery_points(self, points: Callable[[], Offsets]) -> None:
        """All of them; asked for when it is this writer's turn, since a cut may have lowered them."""
        with self.turn:
            now = points()
            self._write(checkpoints.RECOVERY_POINTS, now)
            self.recovery_points.clear()  # in place: whoever is about to lower it has it in hand
            self.recovery_points.update(now)

    def give_starts(self, starts: Callable[[], Offsets]) -> None:
        """All of them, likewise."""
        with self.turn:
            now = starts()
            if now != self.start_offsets:
                self._write(checkpoints.START_OFFSETS, now)
                self.start_offsets.clear()
                self.start_offsets.update(now)

    def _write(self, name: str, offsets: Offsets, only: str | None = None) -> None:
        """Write to every directory, or `only` to one; what is wrong with one does not spare the others."""
        where, offsets = dict(self._directory_of), dict(offsets)
        trouble: DiskError | None = None
        for directory in self._places.usable if only is None else [only]:
            path = f"{directory}/{name}"
            mine = {p: offset for p, offset in offsets.items() if where.get(p) == directory}
            try:
                checkpoints.write_offsets(self._disk, path, mine)
            except OSError as error:
                found = disk_error(path, error)
                if trouble is None or isinstance(found, DiskFailed):
                    trouble = found
        if trouble is not None:
            raise trouble

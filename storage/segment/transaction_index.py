"""TransactionIndex: the aborted transactions whose markers are in one segment. Kafka's `.txnindex`.

A reader of committed records is told which transactions of what it reads were aborted, and leaves them out.
An entry is made when the marker is in the log. A crash may take entries, but never leaves one without its
marker: a scan makes the index anew (recovery/recover_log.py). A segment without aborts has no file.
In an active segment the entries are always in memory; of a closed one they are loaded when they are asked
for, and dropped with its other indexes.
Left to others: which transactions are aborted (log/producer_state.py), syncing the file (log/flush.py).
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterable
from posixpath import basename, dirname
from typing import NamedTuple

from ...base.logger import get_logger
from ..disk import Disk, File
from .index import ABORTED_ENTRY

VERSION = 0
ENTRY_BYTES = 32  # in memory
OVERHEAD = 300
UNKNOWN = -1  # the file's content cannot be continued: write all of it

logger = get_logger(__name__)


class Aborted(NamedTuple):
    """An aborted transaction: its first record, its marker, and the last stable offset behind the marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class DamagedIndex(Exception):
    """A file that cannot be the index of its segment."""


class TransactionIndex:
    """Entries in the order of their markers. `version` of Kafka's entries is always 0."""

    __slots__ = ("_count", "_disk", "_fields", "_saved", "base_offset", "is_empty", "path")

    @property
    def name(self) -> str:
        """The file's name in its directory."""
        return basename(self.path)

    def __init__(self, disk: Disk, path: str, base_offset: int) -> None:
        self._disk = disk
        self.path = path
        self.base_offset = base_offset
        self.is_empty = False  # known to be
        self._fields: tuple[array[int], array[int], array[int], array[int]] | None = None
        self._saved = UNKNOWN  # so many entries are in the file
        self._count = UNKNOWN  # so many entries it should have

    def begin(self) -> None:
        """Nothing was aborted, and there is no file."""
        self._fields = None
        self._saved = 0
        self.is_empty = True

    def expect(self, count: int) -> None:
        """The segment has so many aborts, whatever its file says. Before the first use."""
        assert self._fields is None and count > 0, "nothing is believed of it yet"
        self._count, self._saved, self.is_empty = count, UNKNOWN, False

    def measure(self) -> None:
        """Take the size of the file for the number of entries. Raises OSError."""
        if self._fields is None and not self.is_empty:
            file = self._disk.open(self.path)
            try:
                self._count = file.size() // ABORTED_ENTRY.size
            finally:
                file.close()

    @property
    def is_as_long_as_expected(self) -> bool:
        """Whether the file has so many entries as `expect` has said, by its size. Raises OSError."""
        if not self._disk.exists(self.path):
            return False
        file = self._disk.open(self.path)
        try:
            return file.size() == self._count * ABORTED_ENTRY.size
        finally:
            file.close()

    @property
    def count(self) -> int:
        """How many entries it has; -1 if that is not known yet, 0 if it is known to have none."""
        if self._fields is not None:
            return len(self._fields[0])
        return 0 if self.is_empty else self._count

    @property
    def held(self) -> bool:
        return self._fields is not None

    @property
    def nbytes(self) -> int:
        """What it takes in memory."""
        return 0 if self._fields is None else len(self._fields[0]) * ENTRY_BYTES + OVERHEAD

    # -- growing and shrinking

    def append(self, entry: Aborted) -> None:
        """Add an entry, and try to write it. If that fails it is written with the next one, or by `save`."""
        fields = self._loaded()
        assert not fields[2] or entry.last_offset > fields[2][-1], "markers follow each other"
        for field, value in zip(fields, entry, strict=True):
            field.append(value)
        self.is_empty = False
        try:
            self.save()
        except OSError as error:
            logger.warning("index_not_written", path=self.path, reason=str(error))

    def take(self, entries: list[Aborted]) -> None:
        """Replace all by entries made from the log; `save` writes them."""
        fields = _no_fields()
        for entry in entries:
            for field, value in zip(fields, entry, strict=True):
                field.append(value)
        self._fields, self._saved, self.is_empty = fields, UNKNOWN, not entries

    def save(self, sync: bool = False) -> None:
        """Bring the file up to what is in memory; without entries there is none. Raises OSError.

        `sync`: the segment counts as synced already.
        """
        fields = self._fields
        if fields is None or self._saved == len(fields[0]):
            return
        if not fields[0]:
            there = sync and self._disk.exists(self.path)
            self._disk.unlink(self.path)
            if there:
                self._disk.sync_dir(dirname(self.path))
        elif self._saved == UNKNOWN:
            self._disk.replace(self.path, _dump(fields, 0), sync)
        else:
            file = self._disk.open(self.path, create=True)
            try:
                file.pwrite(self._saved * ABORTED_ENTRY.size, _dump(fields, self._saved))
            finally:
                file.close()
        self._saved = len(fields[0])

    def relocate(self, path: str, afresh: bool) -> None:
        """The file is called so now; unless `afresh`, it is what it was."""
        fields = self._loaded() if afresh and not self.is_empty else self._fields
        self.path = path
        if fields is not None and (afresh or self._saved != len(fields[0])):
            self._saved = UNKNOWN
            try:
                self.save()
            except OSError as error:
                logger.warning("index_not_written", path=self.path, reason=str(error))

    def cut(self, offset: int, file: File | None) -> None:
        """Forget what was decided at `offset` or later. `file`: the open file, if there is one."""
        if self.is_empty:
            return
        fields = self._loaded()
        kept = bisect_left(fields[2], offset)
        for field in fields:
            del field[kept:]
        if self._saved != UNKNOWN:
            self._saved = min(self._saved, kept)
        if file is not None:
            file.truncate(max(self._saved, 0) * ABORTED_ENTRY.size)
        self.is_empty = not kept

    def release(self) -> None:
        """Drop the entries from memory, if the file has all of them."""
        if self._fields is not None and self._saved == len(self._fields[0]):
            self._count, self._fields = self._saved, None

    # -- reading

    def load(self) -> None:
        """Read the file, if its entries are not in memory. Raises DamagedIndex, OSError."""
        self._loaded()

    def entries(self) -> list[Aborted]:
        """All entries. Raises DamagedIndex, OSError."""
        return [] if self.is_empty else [Aborted(*entry) for entry in zip(*self._loaded(), strict=True)]

    def overlapping(self, start: int, end: int) -> tuple[list[tuple[int, int]], bool]:
        """(producer id, first offset) of the aborted transactions with records in [start, end); and whether
        no later segment can have one. Raises DamagedIndex, OSError.
        """
        found: list[tuple[int, int]] = []
        if self.is_empty:
            return found, False
        producers, firsts, lasts, stables = self._loaded()
        for place in range(bisect_left(lasts, start), len(lasts)):
            if firsts[place] < end:
                found.append((producers[place], firsts[place]))
            if stables[place] >= end:
                return found, True
        return found, False

    def _loaded(self) -> tuple["array[int]", "array[int]", "array[int]", "array[int]"]:
        if self._fields is None:
            self._fields = self._load() if not self.is_empty else _no_fields()
        return self._fields

    def _load(self) -> tuple["array[int]", "array[int]", "array[int]", "array[int]"]:
        fields = _no_fields()
        try:
            data = self._disk.read(self.path)
        except FileNotFoundError:
            data = b""
        if len(data) % ABORTED_ENTRY.size:
            raise DamagedIndex(f"{self.path}: its last entry is incomplete")
        last, stable = self.base_offset - 1, 0
        for version, *entry in ABORTED_ENTRY.iter_unpack(data):
            if version != VERSION or not (0 <= entry[1] <= entry[2] > last and entry[3] >= stable):
                raise DamagedIndex(f"{self.path}: its entry {len(fields[0])} does not fit the others")
            for field, value in zip(fields, entry, strict=True):
                field.append(value)
            last, stable = entry[2:]
        if self._count not in (UNKNOWN, len(fields[0])):
            raise DamagedIndex(
                f"{self.path}: it has {len(fields[0])} entries, the snapshot says {self._count}"
            )
        self._saved = len(fields[0])
        self.is_empty = not data
        return fields


def _no_fields() -> tuple["array[int]", "array[int]", "array[int]", "array[int]"]:
    """Producer ids, first offsets, last offsets, last stable offsets."""
    return array("q"), array("q"), array("q"), array("q")


def _dump(fields: tuple["array[int]", ...], start: int) -> bytes:
    """The bytes of the entries from `start` on."""
    return dump(zip(*(field[start:] for field in fields), strict=True))


def dump(entries: Iterable[Iterable[int]]) -> bytes:
    """The bytes of a file with these entries."""
    return b"".join(ABORTED_ENTRY.pack(VERSION, *entry) for entry in entries)

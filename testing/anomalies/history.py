"""A history on disk: a header, then one msgpack array for each operation, as they were noted.

Every client process writes a file of its own, a write(2) for each operation: what was noted before a SIGKILL
is there. The reader puts many files in the order of time, and ends a file quietly where its last entry was
torn; anything else that is not a history is an error that names file and byte.
"""

import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

import msgpack

from .operations import UNKNOWN, Action, Operation, Record, Type

FORMAT = "strandline-history"
VERSION = 1
FIELDS = len(Operation._fields)


class DamagedHistory(ValueError):
    """A file that is no history, or one of another version, or has damage before its end."""


class HistoryWriter:
    """Appends operations to a new file; `about` is kept in its header."""

    def __init__(self, path: Path, about: Mapping[str, Any] | None = None) -> None:
        self._file: BinaryIO = path.open("xb", buffering=0)
        self._pack = msgpack.Packer().pack
        self._file.write(self._pack({"format": FORMAT, "version": VERSION, **(about or {})}))

    def write(self, operation: Operation) -> None:
        """Append one."""
        records = [list(record) for record in operation.records]
        self._file.write(self._pack([*operation[:2], *map(str, operation[2:4]), records, *operation[5:]]))

    def close(self) -> None:
        """Nothing more is written."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Notes:
    """Notes what one client process does, with the time; one line for each operation."""

    def __init__(self, writer: HistoryWriter, process: str, producer: str = "") -> None:
        self.writer, self.process, self.producer = writer, process, producer

    def note(
        self,
        type: Type,
        action: Action,
        records: Iterable[Record] = (),
        *,
        transaction: int = UNKNOWN,
        group: str = "",
        error: str = "",
    ) -> None:
        """Note an operation that begins or ends now; OFFSETS and TOLD are of a `group`."""
        whose = self.producer if transaction != UNKNOWN or action is Action.INIT else group
        self.writer.write(
            Operation(
                time.monotonic_ns(), self.process, type, action, tuple(records), whose, transaction, error
            )
        )


def read_history(*paths: Path) -> list[Operation]:
    """The operations of all files, by time. Raises DamagedHistory."""
    operations = [operation for path in paths for operation in _read(path)]
    operations.sort(key=lambda operation: operation.time_ns)
    return operations


def read_header(path: Path) -> dict[str, Any]:
    """What the file says about itself. Raises DamagedHistory."""
    with path.open("rb") as file:
        return _header(path, msgpack.Unpacker(file))


def _header(path: Path, unpacker: Any) -> dict[str, Any]:
    try:
        header = next(unpacker, None)
    except (ValueError, msgpack.UnpackException) as error:
        raise DamagedHistory(f"{path} is no history: {error!r}") from None
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise DamagedHistory(
            f"{path} is no history: it should begin with a map whose format is {FORMAT!r}; it begins with "
            f"{str(header)[:60]}"
        )
    if header.get("version") != VERSION:
        raise DamagedHistory(
            f"{path} is a history of version {header.get('version')}; this reads version {VERSION}"
        )
    return header


def _read(path: Path) -> Iterator[Operation]:
    with path.open("rb") as file:
        unpacker = msgpack.Unpacker(file)
        _header(path, unpacker)
        while True:
            begun = unpacker.tell()
            try:
                entry = unpacker.unpack()
            except msgpack.OutOfData:
                return  # at the end, or in the middle of an entry whose writer was killed
            except (ValueError, msgpack.UnpackException) as error:
                raise DamagedHistory(f"{path}, byte {begun}: {error!r}") from None
            yield operation_of(path, entry, begun)


def operation_of(path: Path, entry: Any, at: int | None = None) -> Operation:
    """The operation that an entry of a file, at this byte, is. Raises DamagedHistory."""
    try:
        return _operation(entry)
    except (ValueError, TypeError) as error:
        where = path if at is None else f"{path}, byte {at}"
        raise DamagedHistory(f"{where}: {error}") from None


TYPES = {type.value: type for type in Type}
ACTIONS = {action.value: action for action in Action}


def _operation(entry: Any) -> Operation:
    if not isinstance(entry, list) or len(entry) != FIELDS:
        raise ValueError(
            f"an operation is an array of {FIELDS}: {', '.join(Operation._fields)}; not {entry!r}"
        )
    time_ns, process, type, action, records, producer, transaction, error = entry
    if type not in TYPES or action not in ACTIONS:
        raise ValueError(f"{type!r} {action!r} is nothing that a client does")
    return Operation(
        time_ns,
        process,
        TYPES[type],
        ACTIONS[action],
        tuple([Record(*record) for record in records]),
        producer,
        transaction,
        error,
    )

"""Whose a replica's directory is, and in which state: a task must find what the read was planned on.

A path is all that leads a task to a log, on another machine, perhaps days later. What lies there by then may
be of another cluster or broker, of a topic that was created again, or a log that a broker has worked in
since. So the plan carries along what it saw, and who reads a replica compares, before and after.
Left to others: what the planner makes of the directories (directories.py), the records (replica_log.py).
"""

from pathlib import Path
from typing import NamedTuple
from uuid import UUID
from zlib import crc32

from ..directories.incarnation import CLEAN_MARKER, INCARNATION, LOCK
from ..directory_lock import is_held
from ..disk import RealDisk
from ..log import checkpoints

OWNER = ("cluster.id", "broker.id", "node.id", "directory.id")
WORKED_ON = (INCARNATION, CLEAN_MARKER, checkpoints.HIGH_WATERMARKS, checkpoints.START_OFFSETS)
DISK = RealDisk()  # of which only reading calls are used


class Changed(ValueError):
    """It is not the directory, or not the log, that the read was planned on; the message says what to do."""


class NotSeen(OSError):
    """The folder cannot be seen from here: it says nothing about the records in it."""


class Owned(NamedTuple):
    """A log directory. Every broker, Strandline's or Kafka's, changes a file of WORKED_ON by its start."""

    owner: tuple[str, ...]  # the values of OWNER, "" for what is missing
    files: tuple[int, ...]  # a checksum for each of WORKED_ON; -1: there is none


class Stamp(NamedTuple):
    """A replica's directory. Built-in values only."""

    owner: tuple[str, ...]
    files: tuple[int, ...]
    topic_id: str  # "" if it has none
    epochs: int  # a checksum of its leader-epoch-checkpoint; -1: there is none


def owned(directory: Path) -> Owned:
    """Raises Unreadable."""
    found: dict[str, str] = {}
    for name in (checkpoints.DIRECTORY_PROPERTIES, checkpoints.META_PROPERTIES):  # the latter's id counts
        found |= checkpoints.read_properties(DISK, str(directory / name)) or {}
    files = tuple(_checksum(directory / name) for name in WORKED_ON)
    return Owned(tuple(found.get(name, "") for name in OWNER), files)


def stamp(folder: Path, directory: Owned) -> Stamp:
    """Of a partition's folder in that directory; raises Unreadable."""
    found = topic_id(folder)
    return Stamp(*directory, "" if found is None else str(found), _checksum(folder / checkpoints.EPOCHS))


def topic_id(folder: Path) -> UUID | None:
    """None if it has none; raises Unreadable."""
    return checkpoints.read_partition_metadata(DISK, str(folder / checkpoints.PARTITION_METADATA))


def check(folder: Path, planned: Stamp) -> None:
    """Raise Changed unless the folder is as it was at planning, and no broker works in its directory.

    NotSeen if it cannot be seen.
    """
    see(folder)
    directory = folder.parent
    refuse_lock(directory, Changed)
    try:
        now = stamp(folder, owned(directory))
    except checkpoints.Unreadable as trouble:
        raise Changed(f"{trouble}; it was readable when the read was planned") from trouble
    if now.owner != planned.owner:
        was, found = (_listed(each.owner) for each in (planned, now))
        raise Changed(
            f"{directory} is the log directory of {found}, and the read was planned on that of {was}: "
            "mount the same directories everywhere under the same paths"
        )
    if now.topic_id != planned.topic_id:
        raise Changed(
            f"{folder} has topic id {now.topic_id or 'none'}, and the read was planned on "
            f"{planned.topic_id or 'none'}: mount the same directories everywhere, or plan the read again"
        )
    names = (*(directory / name for name in WORKED_ON), folder / checkpoints.EPOCHS)
    before, after = ((*each.files, each.epochs) for each in (planned, now))
    differing = [str(name) for name, a, b in zip(names, before, after, strict=True) if a != b]
    if differing:
        raise Changed(
            f"a broker has worked in {directory} since the read was planned, or another copy of it is "
            f"mounted here ({', '.join(differing)} differ): stop the broker, and plan the read again"
        )


def see(folder: Path) -> None:
    """Raise NotSeen if the folder cannot be seen from here."""
    try:
        folder.stat()
    except OSError as trouble:
        raise NotSeen(str(trouble)) from trouble


def refuse_lock(directory: Path, error: type[ValueError]) -> None:
    """Raise the error if a broker of this machine works in the directory."""
    if is_held(str(directory / LOCK)):
        raise error(
            f"a living broker holds {directory / LOCK}: stop it, or read from it by kafka.bootstrap.servers"
        )


def _checksum(file: Path) -> int:
    try:
        return crc32(file.read_bytes())
    except FileNotFoundError:
        return -1


def _listed(owner: tuple[str, ...]) -> str:
    named = (f"{name}={value}" for name, value in zip(OWNER, owner, strict=True) if value)
    return ", ".join(named) or f"no broker (it has no {checkpoints.META_PROPERTIES})"

"""Looks into what lies on this machine: a broker's configuration file, and its log directories.

Kafka may be running on them: files are only read, and one that goes meanwhile is no trouble.
Left to others: what follows from it (checks_settings.py, checks_records.py, checks_state.py).
"""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from ....broker.config.files import effective, from_properties
from ....storage.disk import ReadOnlyFile, RealDisk
from ....storage.log.checkpoints import META_PROPERTIES, Unreadable, read_properties
from ....storage.recovery.old_formats import old_message_at
from ....storage.segment.file_names import DIRECTORY_DELETED, LOG, is_segment_file
from ...console import WrongUsage
from .ask_cluster import head_of
from .facts import Directory, Settings

OF_A_QUORUM = "__cluster_metadata-"
HEAD_BYTES = 61
FORMAT, CODECS_KNOWN = 2, 5


def read_config(path: Path) -> Settings:
    """The settings of a `server.properties`. Raises WrongUsage if it cannot be read."""
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise WrongUsage(f"--config {path}: {getattr(error, 'strerror', None) or error}") from None
    return {one.name: one.text for one in effective(from_properties(text, str(path)))}


def look_into(path: Path) -> Directory:
    """A log directory. Raises WrongUsage if it is none that can be listed."""
    try:
        folders = sorted(each for each in path.iterdir() if each.is_dir())
    except OSError as error:
        raise WrongUsage(f"--log-dir {path}: {error.strerror or error}") from None
    unreadable: dict[str, str] = {}
    try:
        owner = read_properties(RealDisk(), str(path / META_PROPERTIES)) or {}
    except (Unreadable, OSError) as error:
        owner = {}
        unreadable[str(path / META_PROPERTIES)] = str(error)
    segments, old, codecs = 0, [], {}
    for folder in folders:
        for segment in _segments(folder, unreadable):
            segments += 1
            try:
                is_old, codec = _head(segment)
            except FileNotFoundError:
                continue
            except OSError as error:
                unreadable[str(segment)] = error.strerror or str(error)
                continue
            if is_old:
                old.append(str(segment))
            elif codec >= CODECS_KNOWN:
                codecs[str(segment)] = codec
    quorum = any(folder.name.startswith(OF_A_QUORUM) for folder in folders)
    return Directory(str(path), owner, segments, tuple(old), codecs, quorum, unreadable)


def _segments(folder: Path, unreadable: dict[str, str]) -> Iterator[Path]:
    if folder.name.endswith(DIRECTORY_DELETED):
        return
    try:
        names = sorted(each.name for each in folder.iterdir())
    except FileNotFoundError:
        return
    except OSError as error:
        unreadable[str(folder)] = error.strerror or str(error)
        return
    yield from (folder / name for name in names if is_segment_file(name, LOG))


def _head(segment: Path) -> tuple[bool, int]:
    """Whether it begins with a message of format v0 or v1, and the codec of its first batch."""
    with closing(ReadOnlyFile(str(segment))) as file:
        if old_message_at(file, 0) is not None:
            return True, 0
        head = head_of(file.pread(0, HEAD_BYTES))
    return False, 0 if head is None or head.magic != FORMAT else head.codec

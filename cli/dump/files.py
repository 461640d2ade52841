"""Which files `strandline dump` reads: those that were named, and those in directories that were named."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from ...storage.segment.file_names import CLEANED, DELETED, GONE, SNAPSHOT, SUFFIXES, SWAP, TRANSACTION_INDEX
from ...storage.segment_files import is_number
from .small_files import SMALL

IN_SEGMENT_ORDER = (*SUFFIXES, TRANSACTION_INDEX, SNAPSHOT)
PARKED = (DELETED, GONE, CLEANED, SWAP)  # suffixes of segment files to be deleted, or from cleaning


class Expanded(NamedTuple):
    """A file to read; `listed` if only its directory was named."""

    path: Path
    listed: bool


def expand(names: Sequence[str]) -> Iterator[Expanded]:
    """The named files; for a directory its own files, then those of the directories in it."""
    for name in names:
        path = Path(name)
        if path.is_dir():
            yield from _listed(path, levels=2)
        else:
            yield Expanded(path, listed=False)


def _listed(directory: Path, levels: int) -> Iterator[Expanded]:
    inside = sorted(directory.iterdir(), key=_order)
    yield from (Expanded(path, listed=True) for path in inside if path.is_file())
    if levels > 1:
        for path in inside:
            if path.is_dir():
                yield from _listed(path, levels - 1)


def _order(path: Path) -> tuple[str, int, str]:
    kind = kind_of(path)
    if kind in IN_SEGMENT_ORDER:
        return path.name.split(".")[0], IN_SEGMENT_ORDER.index(kind), path.name
    return "~", 0, path.name


def kind_of(path: Path) -> str:
    """A segment file's suffix, or the full name of a file such as a checkpoint."""
    if path.name in SMALL:
        return path.name
    for parked in PARKED:
        if path.suffix == parked:
            path = path.with_suffix("")
    return path.suffix if is_number(path.stem) else ""

"""What a pipeline has done, seen from outside: in its checkpoints and in Spark's lists of Parquet files.

Nothing is asked of the driver, which may be dead. The files are read without Spark: a verdict that came from
Spark could be wrong in the same way as what it judges.
"""

import json
from datetime import date
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlparse

import pyarrow.parquet as parquet


class Window(NamedTuple):
    """One row of the outcome."""

    carrier: str
    day: date
    flights: int
    delay_sum: int
    delay_max: int


class Checkpoint:
    """One query's checkpoint, and how far it is in one topic."""

    def __init__(self, directory: Path, topic: str) -> None:
        self.directory, self.topic = directory, topic

    def last(self) -> int:
        """The last batch that is done; -1 if none is."""
        return max((int(path.name) for path in self._numbered("commits")), default=-1)

    def processed(self) -> dict[int, int]:
        """The next offset to read, by partition, after the last batch that is done."""
        found = self._offsets()
        offsets = json.loads(found[2]) if found else {}
        return {int(number): offset for number, offset in offsets.get(self.topic, {}).items()}

    def watermark_s(self) -> float:
        """The watermark with which the last batch that is done began."""
        found = self._offsets()
        return float(json.loads(found[1])["batchWatermarkMs"]) / 1000 if found else 0.0

    def _offsets(self) -> list[str]:
        """Version, facts and offsets of the last batch that is done."""
        path = self.directory / "offsets" / str(self.last())
        return path.read_text().splitlines() if path.exists() else []

    def _numbered(self, folder: str) -> list[Path]:
        return [path for path in (self.directory / folder).glob("*") if path.name.isdigit()]


class ParquetSink:
    """A directory that Spark's file sink writes; readers that heed its list see each batch once."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._rows: dict[Path, int] = {}  # by file: files do not change

    def listed(self) -> list[Path]:
        """The files that belong to batches. The list is compacted now and then into one file."""
        found = {_number(path): path for path in (self.directory / "_spark_metadata").glob("[0-9]*")}
        compacted = max((number for number, path in found.items() if path.suffix), default=-1)
        lines = [
            line
            for number in sorted(found)
            if number >= compacted
            for line in found[number].read_text().splitlines()[1:]
        ]
        return [Path(unquote(urlparse(json.loads(line)["path"]).path)) for line in lines]

    def count(self) -> int:
        """How many rows there are."""
        files = self.listed()
        for path in files:
            if path not in self._rows:
                self._rows[path] = parquet.read_metadata(path).num_rows
        return sum(self._rows[path] for path in files)

    def windows(self) -> list[Window]:
        """All rows, as often as they stand there."""
        return [
            Window(**row)
            for path in self.listed()
            for row in parquet.ParquetFile(path).read(list(Window._fields)).to_pylist()
        ]

    def unlisted(self) -> int:
        """How many files of batches that were cut short lie there; Spark's readers pass them over."""
        return len(set(self.directory.glob("*.parquet")) - set(self.listed()))


def _number(path: Path) -> int:
    """Of a batch; `9.compact` stands for all up to 9, and there is no plain 9 beside it."""
    return int(path.name.split(".")[0])

"""`format("strandline")` without `register`: Spark imports modules of such a name for their DefaultSource.

One module that raises there disables the lookup for all, so this one loads nothing of Strandline before it is
asked. It can also be sent by value to where Strandline is not installed:

    cloudpickle.register_pickle_by_value(pyspark_strandline)
    spark.dataSource.register(pyspark_strandline.DefaultSource)

Then the class carries Strandline's own Python files, and every object that Spark hands from process to
process is one of this module, of Spark, or built in. pyarrow, numpy and the other requirements must be there.
Left to others: the source (strandline/client/spark).
"""

import atexit
import io
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)

try:
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
except ImportError:  # PySpark 4.1

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """Nothing that Spark asks for."""


ROOMS = ("base", "client", "protocol", "storage")  # what the source needs of Strandline


class Code:
    """Strandline's Python files, put together when this object is sent somewhere."""

    def __init__(self, archive: bytes = b"") -> None:
        self.archive = archive

    def __reduce__(self) -> tuple[Any, ...]:
        return Code, (self.archive or _archive(),)

    def source(self) -> Any:
        """The data source's class: the one that is installed, else the one that was sent."""
        if self.archive and find_spec("strandline") is None:
            folder = tempfile.mkdtemp(prefix="strandline-")
            atexit.register(shutil.rmtree, folder, ignore_errors=True)
            path = Path(folder, "strandline.zip")
            path.write_bytes(self.archive)
            sys.path.append(str(path))
        return import_module("strandline.client.spark.source").StrandlineDataSource


def _archive() -> bytes:
    """The files of the package that is installed here."""
    spec = find_spec("strandline")
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError("strandline is not installed here, so it cannot be sent", name="strandline")
    root = Path(next(iter(spec.submodule_search_locations)))
    files = [root / "__init__.py", *(file for room in ROOMS for file in sorted((root / room).rglob("*.py")))]
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in files:
            archive.write(file, Path("strandline", file.relative_to(root)))
    return packed.getvalue()


class DefaultSource(DataSource):
    """The data source `strandline`; see `strandline.client.spark`."""

    code = Code()

    def __init__(self, options: Any) -> None:
        super().__init__(options)
        self._found: dict[str, Any] = {}  # what `schema` has found out

    @classmethod
    def name(cls) -> str:
        return "strandline"

    def real(self) -> Any:
        """Strandline's own data source with these options."""
        source = self.code.source()(self.options)
        source.found = self._found
        return source

    def schema(self) -> Any:
        source = self.real()
        schema = source.schema()
        self._found = source.found
        return schema

    def reader(self, schema: Any) -> DataSourceReader:
        return Reader(self, schema, self.real().reader(schema))

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        return StreamReader(self, schema, self.real().streamReader(schema))

    def writer(self, schema: Any, overwrite: bool) -> DataSourceArrowWriter:
        return Writer(self, schema, self.real().writer(schema, overwrite))

    def streamWriter(self, schema: Any, overwrite: bool) -> DataSourceStreamArrowWriter:
        return StreamWriter(self, schema, self.real().streamWriter(schema, overwrite))


class Made:
    """Makes the real reader or writer anew in each process, from what can be sent there."""

    KIND = ""
    MORE: tuple[Any, ...] = ()  # arguments after the schema

    def __init__(self, source: DefaultSource, schema: Any, real: Any) -> None:
        self._source = source
        self._schema = schema
        self._real = real

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_real": None}

    @property
    def real(self) -> Any:
        """Strandline's own."""
        if self._real is None:
            self._real = getattr(self._source.real(), self.KIND)(self._schema, *self.MORE)
        return self._real


class Reader(Made, DataSourceReader):
    """A batch reader."""

    KIND = "reader"

    def partitions(self) -> list[InputPartition]:
        return list(self.real.partitions())

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return iter(self.real.read(partition))


class StreamReader(Made, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream reader."""

    KIND = "streamReader"

    def initialOffset(self) -> dict[str, Any]:
        return dict(self.real.initialOffset())

    def latestOffset(self, start: Any = None, limit: Any = None) -> dict[str, Any]:
        return dict(self.real.latestOffset(start, limit))

    def getDefaultReadLimit(self) -> Any:
        return self.real.getDefaultReadLimit()

    def prepareForTriggerAvailableNow(self) -> None:
        self.real.prepareForTriggerAvailableNow()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        found: dict[str, Any] | None = self.real.reportLatestOffset()
        return found

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        return list(self.real.partitions(start, end))

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return iter(self.real.read(partition))

    def commit(self, end: dict[str, Any]) -> None:
        self.real.commit(end)

    def stop(self) -> None:
        self.real.stop()


class Message(WriterCommitMessage):
    """What a task has written, as plain values."""

    def __init__(self, plain: Any) -> None:
        self.plain = plain


class Writer(Made, DataSourceArrowWriter):
    """A batch writer. One that would overwrite is not made."""

    KIND = "writer"
    MORE = (False,)

    def write(self, iterator: Iterator[Any]) -> Message:
        return Message(self.real.write(iterator).plain)

    def commit(self, messages: list[Any]) -> None:
        self.real.commit(messages)

    def abort(self, messages: list[Any]) -> None:
        self.real.abort(messages)


class StreamWriter(Made, DataSourceStreamArrowWriter):
    """A stream writer."""

    KIND = "streamWriter"
    MORE = (False,)

    def write(self, iterator: Iterator[Any]) -> Message:
        return Message(self.real.write(iterator).plain)

    def commit(self, messages: list[Any], batchId: int) -> None:
        self.real.commit(messages, batchId)

    def abort(self, messages: list[Any], batchId: int) -> None:
        self.real.abort(messages, batchId)

"""Which decoder and which encoder run: the compiled kernels if they were built of these very sources.

Else numpy decodes, and records are encoded one by one. An editable install may hold a kernel of an older
source. It bears the hash of the source that it was built from, and is not used if that differs from the file
beside it. Nor is the source itself run as Python, which would be slower.
`STRANDLINE_DECODER` decides otherwise: `numpy` uses no kernel, `compiled` accepts nothing else; so does
`STRANDLINE_ENCODER`, with `python` in the place of `numpy`.
Left to others: the loops (record_kernel.py, record_encoder.py), their use (columns.py, column_arrow.py,
client/producer/record_lists.py, client/producer/record_columns.py), the build (setup.py).
"""

import os
from collections.abc import Callable, Mapping
from functools import cache
from hashlib import sha256
from importlib import import_module
from importlib.machinery import ExtensionFileLoader
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

VARIABLE, ENCODER_VARIABLE = "STRANDLINE_DECODER", "STRANDLINE_ENCODER"
NUMPY, PYTHON, COMPILED = "numpy", "python", "compiled"
MODULE, ENCODER_MODULE = "strandline.protocol.record_kernel", "strandline.protocol.record_encoder"
REFUSED = -1

Array = Any  # of numpy or of the module array, contiguous; of bytes also bytes
Items = list[Any]  # bytes or None


class Kernel(Protocol):
    """The functions of record_kernel.py; each answers REFUSED to what it does not accept."""

    def fields(self, data: Array, batches: Array, rows: Array) -> int: ...

    def header_counts(self, data: Array, headers_at: Array, ends: Array, first: Array) -> int: ...

    def header_places(
        self, data: Array, headers_at: Array, ends: Array, first: Array, places: Array
    ) -> int: ...

    def tuples(
        self, data: Array, batch: Array, most: int, kind: type, common: tuple[Any, ...], out: list[Any]
    ) -> int: ...

    def slices(self, data: Array, starts: Array, lengths: Array, out: list[Any]) -> int: ...

    def offsets_of(self, starts: Array, lengths: Array, size: int, offsets: Array, valid: Array) -> int: ...

    def gathered(self, data: Array, starts: Array, offsets: Array, out: Array) -> int: ...

    def viewed(self, data: Array, starts: Array, lengths: Array, views: Array, valid: Array) -> int: ...


class Encoder(Protocol):
    """The functions of record_encoder.py; each answers REFUSED to what it does not accept."""

    def list_checked(self, values: Items, keys: Items | None, tails: Items | None, bytes_max: int) -> int: ...

    def list_measured(
        self,
        values: Items,
        keys: Items | None,
        tails: Items | None,
        times: Array | None,
        rows: Array | None,
        start: int,
        stop: int,
        delta: int,
        elapsed: int,
        room: int,
        found: Array,
    ) -> int: ...

    def list_written(
        self,
        values: Items,
        keys: Items | None,
        tails: Items | None,
        times: Array | None,
        rows: Array | None,
        start: int,
        stop: int,
        delta: int,
        elapsed: int,
        out: Array,
    ) -> int: ...

    def columns_measured(
        self,
        key_bytes: int,
        value_bytes: int,
        tail_bytes: int,
        places: Array,
        times: Array | None,
        rows: Array | None,
        start: int,
        stop: int,
        delta: int,
        elapsed: int,
        room: int,
        found: Array,
    ) -> int: ...

    def columns_written(
        self,
        key: Array,
        value: Array,
        tail: Array,
        places: Array,
        times: Array | None,
        rows: Array | None,
        start: int,
        stop: int,
        delta: int,
        elapsed: int,
        out: Array,
    ) -> int: ...

    def list_placed(self, keys: Items, partitions: int, places: Array) -> int: ...

    def columns_placed(
        self, data: Array, starts: Array, lengths: Array, partitions: int, places: Array
    ) -> int: ...

    def spread(self, places: Array, choices: Array, block: int) -> int: ...

    def grouped(self, places: Array, first: Array, rows: Array) -> int: ...

    def inverted(self, rows: Array, places: Array) -> int: ...


K = TypeVar("K")


class Found(NamedTuple, Generic[K]):
    """A kernel, or why there is none."""

    kernel: K | None
    why: str


@cache
def compiled() -> Kernel | None:
    """The decoder's kernel of this process, None for numpy."""
    return choice(os.environ).kernel


@cache
def encoder() -> Encoder | None:
    """The encoder's kernel of this process, None for one record at a time."""
    return encoder_choice(os.environ).kernel


def choice(environment: Mapping[str, str]) -> Found[Kernel]:
    """The decoder's kernel that the environment allows."""
    return _choice(environment, VARIABLE, NUMPY, built)


def encoder_choice(environment: Mapping[str, str]) -> Found[Encoder]:
    """The encoder's kernel that the environment allows."""
    return _choice(environment, ENCODER_VARIABLE, PYTHON, built_encoder)


def built(module: str = MODULE) -> Found[Kernel]:
    """The decoder's kernel that this install has."""
    return _built(module)


def built_encoder(module: str = ENCODER_MODULE) -> Found[Encoder]:
    """The encoder's kernel that this install has."""
    return _built(module)


def _choice(
    environment: Mapping[str, str], variable: str, other: str, built: Callable[[], Found[K]]
) -> Found[K]:
    wanted = environment.get(variable, "")
    if wanted not in ("", other, COMPILED):
        raise ValueError(f"{variable} is {wanted!r}: it may be {other!r} or {COMPILED!r}, or not set")
    if wanted == other:
        return Found(None, f"{variable} is {other}")
    found = built()
    if found.kernel is None and wanted == COMPILED:
        raise ImportError(f"{variable} is {COMPILED}, and there is no kernel: {found.why}")
    return found


def _built(module: str) -> Found[Any]:
    spec = find_spec(module)
    if spec is None or spec.origin is None or not isinstance(spec.loader, ExtensionFileLoader):
        return Found(None, "it was not compiled when Strandline was installed")
    try:
        kernel = import_module(module)
    except ImportError as error:
        return _refused(f"it cannot be loaded: {error}")
    source = Path(spec.origin).parent / f"{module.rpartition('.')[2]}.py"
    if source.exists() and sha256(source.read_bytes()).hexdigest() != kernel.SOURCE_HASH:
        return _refused("it was compiled of another source than the one that is here: `make setup`")
    return Found(kernel, f"compiled, {spec.origin}")


def _refused(why: str) -> Found[Any]:
    from ..base.logger import get_logger  # here: processes that clean logs load no more than they need

    get_logger(__name__).warning("kernel_refused", reason=why)
    return Found(None, why)

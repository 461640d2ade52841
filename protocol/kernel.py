"""Which decoder runs: the compiled kernel if one was built of this very source, else numpy.

An editable install may hold a kernel of an older source. It bears the hash of the source that it was built
from, and is not used if that differs from the file beside it. Nor is the source itself run as Python, which
would be slower than numpy.
`STRANDLINE_DECODER` decides otherwise: `numpy` uses no kernel, `compiled` accepts nothing else.
Left to others: the loops (record_kernel.py), their use (columns.py, column_arrow.py), the build (setup.py).
"""

import os
from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from importlib import import_module
from importlib.machinery import ExtensionFileLoader
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple, Protocol, cast

VARIABLE = "STRANDLINE_DECODER"
NUMPY, COMPILED = "numpy", "compiled"
MODULE = "strandline.protocol.record_kernel"
REFUSED = -1

Array = Any  # of numpy, contiguous


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


class Found(NamedTuple):
    """A kernel, or why there is none."""

    kernel: Kernel | None
    why: str


@cache
def compiled() -> Kernel | None:
    """The kernel of this process, None for numpy."""
    return choice(os.environ).kernel


def choice(environment: Mapping[str, str]) -> Found:
    """The kernel that the environment allows."""
    wanted = environment.get(VARIABLE, "")
    if wanted not in ("", NUMPY, COMPILED):
        raise ValueError(f"{VARIABLE} is {wanted!r}: it may be {NUMPY!r} or {COMPILED!r}, or not set")
    if wanted == NUMPY:
        return Found(None, f"{VARIABLE} is {NUMPY}")
    found = built()
    if found.kernel is None and wanted == COMPILED:
        raise ImportError(f"{VARIABLE} is {COMPILED}, and there is no kernel: {found.why}")
    return found


def built(module: str = MODULE) -> Found:
    """The kernel that this install has."""
    spec = find_spec(module)
    if spec is None or spec.origin is None or not isinstance(spec.loader, ExtensionFileLoader):
        return Found(None, "it was not compiled when Strandline was installed")
    try:
        kernel = import_module(module)
    except ImportError as error:
        return _refused(f"it cannot be loaded: {error}")
    source = Path(spec.origin).parent / "record_kernel.py"
    if source.exists() and sha256(source.read_bytes()).hexdigest() != kernel.SOURCE_HASH:
        return _refused("it was compiled of another source than the one that is here: `make setup`")
    return Found(cast(Kernel, kernel), f"compiled, {spec.origin}")


def _refused(why: str) -> Found:
    from ..base.logger import get_logger  # here: processes that clean logs load no more than they need

    get_logger(__name__).warning("kernel_refused", reason=why)
    return Found(None, why)

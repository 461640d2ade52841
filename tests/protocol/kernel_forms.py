"""The forms of the record decoder and encoder: compiled, their source run as Python, and numpy."""

import os
import shutil
from array import array
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from strandline.protocol import kernel
from strandline.protocol.kernel import Encoder, Found, Kernel

ROOT = Path(__file__).resolve().parent.parent.parent
FORMS = ("numpy", "compiled", "plain")


def kernel_of(form: str) -> Kernel | None:
    """The kernel of a form, None for numpy. CI must have all of them; elsewhere a test is skipped."""
    if form == "numpy":
        return None
    return _form(form, "record_kernel", kernel.built())


def encoder_of(form: str) -> Encoder:
    """The encoder's kernel, "compiled" or "plain"."""
    return _form(form, "record_encoder", kernel.built_encoder())


def _form(form: str, name: str, found: Found[Any]) -> Any:
    if form == "plain":
        pytest.importorskip("Cython", reason="`make setup` installs it")
        return Plain(name)
    if found.kernel is None:
        assert not (os.environ.get("CI") and shutil.which("cc")), f"no compiled kernel: {found.why}"
        pytest.skip(f"no compiled kernel: {found.why}")
    return found.kernel


class Checked:
    """An array that notices a wrong index, a negative one too, and a number that does not fit."""

    def __init__(self, array: npt.NDArray[Any]) -> None:
        self.array = array
        self.shape = array.shape
        self.least, self.most = np.iinfo(array.dtype).min, np.iinfo(array.dtype).max

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            assert 0 <= index.start <= index.stop <= self.shape[0], f"{index} of {self.shape}"
            return self.array[index]
        self._check(index)
        return self.array.item(index)

    def __setitem__(self, index: Any, value: Any) -> None:
        if isinstance(index, slice):
            assert 0 <= index.start <= index.stop <= self.shape[0], f"{index} of {self.shape}"
        else:
            self._check(index)
            assert self.least <= value <= self.most, value
        self.array[index] = value

    def _check(self, index: Any) -> None:
        if isinstance(index, int):
            assert 0 <= index < self.shape[0], f"{index} of {self.shape}"
        else:
            row, column = index
            assert 0 <= row < self.shape[0] and 0 <= column < self.shape[1], f"{index} of {self.shape}"


class Plain:
    """A kernel's source as Python, on checked arrays."""

    def __init__(self, name: str = "record_kernel") -> None:
        spec = spec_from_file_location(f"plain_{name}", ROOT / "protocol" / f"{name}.py")
        assert spec is not None and spec.loader is not None
        self._module = module_from_spec(spec)
        spec.loader.exec_module(self._module)

    def __getattr__(self, name: str) -> Any:
        function = getattr(self._module, name)
        return lambda *given: function(*(_checked(each) for each in given))


def _checked(given: Any) -> Any:
    if isinstance(given, (bytearray, array)):
        given = np.frombuffer(given, np.uint8 if isinstance(given, bytearray) else np.int64)
    return Checked(given) if isinstance(given, np.ndarray) else given

"""Builds what is compiled, the kernel of the record decoder; all else is in pyproject.toml.

The kernel is optional. Without Cython or a C compiler, or if one of them fails, a note says so and the
install goes on: records are decoded by numpy then.
Why: docs/decisions/0051-a-compiled-kernel-that-may-be-missing.md
"""

import hashlib
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py
from setuptools.errors import BaseError, CCompilerError, CompileError

SOURCE = Path("protocol", "record_kernel.py")
STAMPED = Path("build", "kernel", SOURCE.name)
STAMP = 'SOURCE_HASH = ""'
NOTE = "the kernel of the record decoder was not compiled; numpy decodes in its place"


class BuildKernel(build_ext):
    """Translates and compiles a copy of the source that bears the source's hash (protocol/kernel.py)."""

    def build_extension(self, ext: Extension) -> None:
        try:
            ext.sources = [translated(stamped())]
            super().build_extension(ext)
        except (BaseError, CCompilerError) as error:
            raise CompileError(f"{error}: {NOTE}") from error


class WithoutThisFile(build_py):
    """The root is the package `strandline`; this file is not part of it."""

    def find_package_modules(self, package: str, package_dir: str) -> list[tuple[str, str, str]]:
        found: list[tuple[str, str, str]] = super().find_package_modules(package, package_dir)
        return [module for module in found if module[:2] != ("strandline", "setup")]


def stamped() -> Path:
    """The copy. What is the same already is not written again, so that it need not be compiled again."""
    text = SOURCE.read_bytes()
    stamp = f'SOURCE_HASH = "{hashlib.sha256(text).hexdigest()}"'
    assert text.count(STAMP.encode()) == 1, f"{SOURCE} has no place for its hash"
    text = text.replace(STAMP.encode(), stamp.encode())
    if not STAMPED.exists() or STAMPED.read_bytes() != text:
        STAMPED.parent.mkdir(parents=True, exist_ok=True)
        STAMPED.write_bytes(text)
    return STAMPED


def translated(source: Path) -> str:
    """The C file that Cython makes of `source`."""
    try:
        from Cython.Build import cythonize
        from Cython.Compiler.Errors import CompileError as CythonError
    except ImportError as error:
        raise CompileError(f"Cython is missing: {error}") from error
    name = "strandline.protocol.record_kernel"
    try:
        (made,) = cythonize([Extension(name, [str(source)])], quiet=True)
    except CythonError as error:
        raise CompileError(f"Cython refuses {source}: {error}") from error
    return str(made.sources[0])


setup(
    ext_modules=[Extension("strandline.protocol.record_kernel", [str(SOURCE)], optional=True)],
    cmdclass={"build_ext": BuildKernel, "build_py": WithoutThisFile},
)

"""Builds what is compiled, the kernels of the record decoder and encoder; all else is in pyproject.toml.

They are optional. Without Cython or a C compiler, or if one of them fails, a note says so and the install
goes on: records are decoded by numpy then, and encoded one by one.
Why: docs/decisions/0051-a-compiled-kernel-that-may-be-missing.md
"""

import hashlib
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py
from setuptools.errors import BaseError, CCompilerError, CompileError

PACKAGE = "strandline.protocol"
NOTES = {
    "record_kernel": "the kernel of the record decoder was not compiled; numpy decodes in its place",
    "record_encoder": "the kernel of the record encoder was not compiled; records are encoded one by one",
}
STAMP = 'SOURCE_HASH = ""'


class BuildKernel(build_ext):
    """Translates and compiles a copy of the source that bears the source's hash (protocol/kernel.py)."""

    def build_extension(self, ext: Extension) -> None:
        name = ext.name.rpartition(".")[2]
        try:
            ext.sources = [translated(stamped(source_of(name)), name)]
            super().build_extension(ext)
        except (BaseError, CCompilerError) as error:
            raise CompileError(f"{error}: {NOTES[name]}") from error


class WithoutThisFile(build_py):
    """The root is the package `strandline`; this file is not part of it."""

    def find_package_modules(self, package: str, package_dir: str) -> list[tuple[str, str, str]]:
        found: list[tuple[str, str, str]] = super().find_package_modules(package, package_dir)
        return [module for module in found if module[:2] != ("strandline", "setup")]


def source_of(name: str) -> Path:
    """The source of a kernel."""
    return Path("protocol", f"{name}.py")


def stamped(source: Path) -> Path:
    """The copy. What is the same already is not written again, so that it need not be compiled again."""
    copy = Path("build", "kernel", source.name)
    text = source.read_bytes()
    stamp = f'SOURCE_HASH = "{hashlib.sha256(text).hexdigest()}"'
    assert text.count(STAMP.encode()) == 1, f"{source} has no place for its hash"
    text = text.replace(STAMP.encode(), stamp.encode())
    if not copy.exists() or copy.read_bytes() != text:
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(text)
    return copy


def translated(source: Path, name: str) -> str:
    """The C file that Cython makes of `source`."""
    try:
        from Cython.Build import cythonize
        from Cython.Compiler.Errors import CompileError as CythonError
    except ImportError as error:
        raise CompileError(f"Cython is missing: {error}") from error
    try:
        (made,) = cythonize([Extension(f"{PACKAGE}.{name}", [str(source)])], quiet=True)
    except CythonError as error:
        raise CompileError(f"Cython refuses {source}: {error}") from error
    return str(made.sources[0])


setup(
    ext_modules=[Extension(f"{PACKAGE}.{name}", [str(source_of(name))], optional=True) for name in NOTES],
    cmdclass={"build_ext": BuildKernel, "build_py": WithoutThisFile},
)

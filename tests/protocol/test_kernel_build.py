"""The install compiles the kernels where it can, and goes on where it cannot."""

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.protocol.kernel_forms import ROOT

ASK = "import strandline.protocol.kernel as k; print(k.__file__, k.built().why, k.built_encoder().why)"
NOTES = (
    "the kernel of the record decoder was not compiled; numpy decodes in its place",
    "the kernel of the record encoder was not compiled; records are encoded one by one",
)
OF_NO_USE = shutil.ignore_patterns("__pycache__", "*.so")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """The sources as in a fresh clone, without what was compiled here."""
    copy = tmp_path / "tree"
    copy.mkdir()
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE", "__init__.py", "py.typed"):
        shutil.copy(ROOT / name, copy)
    packages = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    for room in {package.removeprefix("strandline.").partition(".")[0] for package in packages}:
        if room != "strandline":
            shutil.copytree(ROOT / room, copy / room, ignore=OF_NO_USE)
    return copy


def run(command: list[str], tree: Path, environment: dict[str, str] | None = None) -> str:
    """What a command says that must succeed."""
    done = subprocess.run(
        command,
        cwd=tree,
        env={**os.environ, **(environment or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    return done.stdout


def installed(tree: Path, **environment: str) -> tuple[str, Path]:
    """Install without asking a registry; what pip said, and where to."""
    target = tree.parent / "site"
    options = ["-v", "--no-build-isolation", "--no-deps", "--no-index", "--no-compile"]
    line = [sys.executable, "-m", "pip", "install", *options, "--target", str(target), "."]
    return run(line, tree, environment), target


def which(target: Path, tree: Path) -> str:
    """Which kernel an installed Strandline has."""
    said = run([sys.executable, "-P", "-c", ASK], tree, {"PYTHONPATH": str(target)})
    assert str(target) in said
    return said


def test_the_kernel_is_compiled_at_install(tree: Path) -> None:
    pytest.importorskip("Cython")
    if shutil.which("cc") is None:
        pytest.skip("no compiler")
    _, target = installed(tree, CFLAGS="-O0")  # nobody waits for what it would make of them
    assert which(target, tree).count("compiled, ") == 2
    assert not list(target.rglob("setup.py")), "the package has no use for it"


def test_without_a_compiler_the_install_goes_on(tree: Path) -> None:
    said, target = installed(tree, CC="false")
    assert all(note in said for note in NOTES)
    assert "it was not compiled when Strandline was installed" in which(target, tree)


@pytest.mark.parametrize("missing", ["Cython", "a source that Cython can translate"])
def test_without_cython_the_build_goes_on(tree: Path, missing: str) -> None:
    environment = {}
    if missing == "Cython":
        blocked = tree.parent / "blocked"
        blocked.mkdir()
        (blocked / "Cython.py").write_text("raise ImportError('none here')")
        environment["PYTHONPATH"] = str(blocked)
    else:
        for source in (tree / "protocol").glob("record_[ke]*.py"):
            source.write_text(
                source.read_text() + "\n\ndef wrong() -> int:\n    x: cython.int = 'text'\n    return x\n"
            )
    said = run([sys.executable, "setup.py", "build_ext", "--inplace"], tree, environment)
    assert all(note in said for note in NOTES)
    assert not list(tree.rglob("*.so"))


def test_what_builds_the_kernel_is_asked_for() -> None:
    """By the build, and by `make setup`, which compiles again when the source has changed."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    cython = [each for each in project["build-system"]["requires"] if each.startswith("cython")]
    assert cython and cython[0] in project["project"]["optional-dependencies"]["dev"]


def test_the_image_gets_nothing_that_was_compiled_here() -> None:
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert "**/*.so" in ignored[ignored.index("!protocol") :]

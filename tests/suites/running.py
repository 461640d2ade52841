"""How a Python suite is run: an environment of its own, a copy of its tests alone, pytest, its JUnit report.

Only the tests are copied from the checkout, to a scratch folder that goes afterwards: they meet the released
package of the environment and not the checkout's sources. What a suite would start by itself (Docker, trivup)
is replaced by a plugin of `plugins/`.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from tests.suites.declared import Asked, Suite
from tests.suites.shape import Cluster
from tests.suites.suite import Run, SuiteProblem

PLUGINS = Path(__file__).parent / "plugins"
INSTALL_MAX_S, SUITE_MAX_S = 900, 3600


@dataclass(frozen=True, kw_only=True)
class PythonSuite(Suite):
    """`package` is installed in the suite's release, with `needs`; `take` of the checkout is copied; `run` is
    what pytest is given; `environment` is told the cluster.
    """

    package: str
    needs: tuple[str, ...]
    take: tuple[str, ...]
    run: tuple[str, ...]
    environment: Callable[[Cluster], Mapping[str, str]]
    plugin: str | None = None
    options: tuple[str, ...] = ()

    def play(self, checkout: Path, cluster: Cluster, scratch: Path, asked: Asked) -> Run:
        python = environment_of(self.checkout, (f"{self.package}=={self.version}", *self.needs))
        work = self._copy(checkout, scratch / "work")
        report = scratch / "junit.xml"
        line = [str(python), "-m", "pytest", "-q", "-x" if asked.first else "-ra", f"--junitxml={report}"]
        line += ["-o", "junit_family=xunit1", "-p", "strandline_left_out", "-p", "no:cacheprovider"]
        line += [*self.options, *(["-p", self.plugin] if self.plugin else [])]
        line += ["-k", asked.only] if asked.only else []
        told = {
            **os.environ,
            **self.environment(cluster),
            "PYTHONPATH": str(PLUGINS),
            "STRANDLINE_LEFT_OUT": "\n".join(each for one in asked.reasons.left_out for each in one.tests),
        }
        done = subprocess.run([*line, *self.run], cwd=work, env=told, timeout=SUITE_MAX_S, check=False)
        if not report.exists():
            raise SuiteProblem(f"{self.name}: pytest left no report, exit status {done.returncode}")
        return read_junit(report, Run(self.name, self.version, asked.peer))

    def _copy(self, checkout: Path, work: Path) -> Path:
        for name in self.take:
            source = checkout / name
            if not source.exists():
                raise SuiteProblem(
                    f"{source} is missing: {checkout} is no checkout of {self.title} {self.version}"
                )
            if source.is_dir():
                shutil.copytree(source, work / name)
            else:
                work.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, work / name)
        return work


def environment_of(name: str, needs: Sequence[str]) -> Path:
    """The interpreter of an environment that has `needs`, made once per user and list."""
    mark = hashlib.sha256("\n".join(needs).encode()).hexdigest()[:12]
    folder = Path.home() / ".cache" / "strandline" / "suites" / f"{name}-{mark}"
    python = folder / "bin" / "python"
    if (folder / ".ready").exists():
        return python
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run([sys.executable, "-m", "venv", str(folder)], timeout=INSTALL_MAX_S, check=True)
    line = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *needs]
    done = subprocess.run(line, timeout=INSTALL_MAX_S, check=False)
    if done.returncode:
        raise SuiteProblem(f"{name}: its environment could not be installed: {' '.join(line)}")
    (folder / ".ready").touch()
    return python


def read_junit(report: Path, run: Run) -> Run:
    """Outcomes by `file::Class::test[parameters]`; of a test with several entries the worst counts."""
    for case in ElementTree.parse(report).iter("testcase"):
        test = "::".join(
            part
            for part in (case.get("file") or case.get("classname"), _class(case), case.get("name"))
            if part
        )
        bad = next((case.find(kind) for kind in ("failure", "error") if case.find(kind) is not None), None)
        skipped = case.find("skipped")
        if bad is not None:
            run.tests[test] = "failed"
            run.said[test] = (bad.get("message") or "").strip()[:300]
        elif run.tests.get(test) != "failed":
            run.tests[test] = "passed" if skipped is None else "skipped"
            if skipped is not None:
                run.said[test] = (skipped.get("message") or "").strip()[:300]
        run.seconds += float(case.get("time") or 0)
    return run


def _class(case: ElementTree.Element) -> str:
    """The class within the file, from the dotted name of both."""
    file, dotted = case.get("file") or "", case.get("classname") or ""
    module = file.removesuffix(".py").replace("/", ".")
    return dotted.removeprefix(module).lstrip(".") if file else ""

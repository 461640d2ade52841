"""Brokers anywhere: known by their addresses, and by the commands that kill, start or stop one, if any are
given.

    kill = "ssh {host} sudo systemctl kill --signal=KILL strandline"
    start = "ssh {host} sudo systemctl start strandline"

In a command `{id}`, `{host}` and `{port}` stand for the broker. What has no command is not done. Left to
others: running commands (commands.py).
"""

import shlex
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path

from ....client.sync import Admin
from ....protocol.errors import ApiError
from ..faults import Power
from ..scenario import ScenarioError, close_to
from .base import Place, PlaceProblem, all_done
from .commands import run

NAMES = ("kill", "start", "stop", "pause", "resume", "isolate", "heal", "lose-disk")
NEEDED: dict[Power, frozenset[str]] = {
    Power.PROCESSES: frozenset({"kill", "start", "stop"}),
    Power.PAUSES: frozenset({"pause", "resume"}),
    Power.ISOLATION: frozenset({"isolate", "heal"}),
    Power.DISKS: frozenset({"lose-disk"}),
}
START_S = 60.0
FIELDS = {"id": 0, "host": "", "port": 0}


def read_commands(path: Path) -> dict[str, str]:
    """The commands of a file. Raises ScenarioError."""
    try:
        content = tomllib.loads(path.read_text())
    except OSError as error:
        raise ScenarioError(f"{path} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ScenarioError(f"{path} is no TOML: {error}") from None
    for name, line in content.items():
        if name not in NAMES:
            raise ScenarioError(f"{path}: there is no command {name!r}{close_to(name, NAMES)}")
        if not isinstance(line, str) or not line.strip():
            raise ScenarioError(f"{path}: {name}: expected a command line, not {line!r}")
        try:
            shlex.split(line.format(**FIELDS))
        except (KeyError, IndexError, ValueError) as error:
            raise ScenarioError(
                f"{path}: {name}: {line!r} is no command line with {{id}}, {{host}} and {{port}} alone: "
                f"{error}"
            ) from None
    for power, needed in NEEDED.items():
        given = needed & content.keys()
        if given and given != needed:
            raise ScenarioError(
                f"{path}: {', '.join(sorted(given))} without {', '.join(sorted(needed - given))}: faults "
                f"with "
                f"{power} need all of them"
            )
    return dict(content)


class ExternalPlace(Place):
    """A cluster that is there already."""

    name = "external"
    kind = "the brokers"

    def __init__(self, bootstrap: str, commands: Mapping[str, str]) -> None:
        """Raises PlaceProblem if nobody answers there."""
        self._bootstrap, self._commands = bootstrap, commands
        self.powers = frozenset(power for power, needed in NEEDED.items() if needed <= commands.keys())
        self._broken: dict[int, str] = {}  # the command that mends it
        try:
            with Admin(bootstrap, request_timeout_ms=10_000, default_api_timeout_ms=10_000) as admin:
                found = admin.describe_cluster().brokers
        except (ApiError, OSError) as error:
            raise PlaceProblem(
                f"no broker answers at {bootstrap}: {error}. Is the cluster running? Is "
                f"--bootstrap-server right?"
            ) from None
        self._brokers = {one.node_id: (one.host, one.port) for one in found}

    @property
    def bootstrap(self) -> str:
        return self._bootstrap

    def _ids(self) -> Iterable[int]:
        return self._brokers

    def start(self) -> None:
        self.wait_ready(START_S)

    def _do(self, what: str, broker: int) -> None:
        host, port = self._brokers[broker]
        run([word.format(id=broker, host=host, port=port) for word in shlex.split(self._commands[what])])

    def kill(self, broker: int) -> None:
        self._broken[broker] = "start"
        self._do("kill", broker)

    def stop(self, broker: int) -> None:
        self._broken[broker] = "start"
        self._do("stop", broker)

    def launch(self, broker: int) -> None:
        self._mend(broker, "start")

    def pause(self, broker: int) -> None:
        self._broken[broker] = "resume"
        self._do("pause", broker)

    def resume(self, broker: int) -> None:
        self._mend(broker, "resume")

    def isolate(self, broker: int, *, reset: bool = False) -> None:
        self._broken[broker] = "heal"
        self._do("isolate", broker)

    def heal(self, broker: int) -> None:
        self._mend(broker, "heal")

    def lose_disk(self, broker: int) -> None:
        self._do("lose-disk", broker)

    def _mend(self, broker: int, what: str) -> None:
        self._do(what, broker)
        self._broken.pop(broker, None)

    def mend(self) -> None:
        all_done([(self._mend, broker, what) for broker, what in list(self._broken.items())])

    def close(self) -> None:
        self.mend()

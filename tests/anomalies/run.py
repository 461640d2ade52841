"""`python -m tests.anomalies.run --plant NAME --minutes 0.5`: a run of `strandline verify` with a bug in all
brokers.

It must find it: exit status 1. In network namespaces, so as root; 2 if there can be none. Without `--plant`
it is `strandline verify anomalies --namespaces`, which `make anomalies` runs.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from strandline.cli.verify.screen import Live
from strandline.local.cluster import LocalCluster
from strandline.testing.namespaces import leave_the_network
from strandline.testing.verify import Outcome, Scenario, load, run
from strandline.testing.verify.places.namespaces import NamespacesPlace
from strandline.testing.verify.scenario import changed
from tests.anomalies.planted import PLANTED

ROOT = Path(__file__).resolve().parent.parent.parent


def plant(cluster: LocalCluster, name: str) -> None:
    """All brokers have this bug from now on."""
    for broker in cluster.brokers.values():
        patched = (sys.executable, "-W", "ignore", "-m", "tests.anomalies.planted", name)
        broker.within = (*broker.within, *patched)
        broker.environment = {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}


def parsed(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--plant", choices=PLANTED, required=True, help="the bug, which must be found")
    parser.add_argument("--minutes", type=float, default=0.5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pace", type=float, default=0.5, help="how long faults and calms are, 1: seconds")
    parser.add_argument("--few", action="store_true", help="one client of each kind")
    return parser.parse_args(words)


def scenario_for(arguments: argparse.Namespace) -> Scenario:
    """`anomalies`, with the faults that bring the bug to light."""
    whole = load("anomalies")
    faults = [name.replace("_", "-") for name in PLANTED[arguments.plant].faults]
    clients = whole.model_dump(exclude_unset=True)["clients"]
    if arguments.few:
        clients = [{**each, "count": 1} for each in clients]
    return changed(
        whole, clients=clients, faults={"drawn": faults or "all"}, seed=arguments.seed, pace=arguments.pace,
        load_s=arguments.minutes * 60,
    )  # fmt: skip


def found(arguments: argparse.Namespace, folder: Path) -> Outcome:
    """What the run shows."""
    scenario = scenario_for(arguments)
    place = NamespacesPlace(folder, scenario.cluster.brokers, scenario.cluster.properties())
    plant(place.cluster, arguments.plant)
    with Live() as screen:
        return run(scenario, place, folder, screen)


def main() -> int:
    arguments = parsed()
    if trouble := leave_the_network():
        print(trouble, file=sys.stderr)
        return 2
    folder = Path(tempfile.mkdtemp(prefix="strandline-anomalies-"))
    outcome = found(arguments, folder)
    print(f"planted: {PLANTED[arguments.plant].what}")
    print(outcome)
    print({name: count for name, count in outcome.anomalies().items() if count})
    print(f"histories and logs: {folder}")
    return 0 if outcome.good else 1


if __name__ == "__main__":
    sys.exit(main())

"""A run from a scenario file, on a cluster of its own or on one that is there: for tests.

Left to others: places that a command line names (cli/verify/).
"""

from pathlib import Path

from ...local.cluster import LocalCluster
from .outcome import Outcome
from .places import Place
from .places.local import LocalPlace
from .run import Screen, run
from .scenario import Scenario, changed, load


def verify(
    scenario: str | Path | Scenario,
    folder: Path,
    *,
    seed: int | None = None,
    load_s: float | None = None,
    cluster: LocalCluster | None = None,
    place: Place | None = None,
    screen: Screen | None = None,
) -> Outcome:
    """Run a scenario: a file, the name of a shipped one, or one that is loaded; `folder` gets the evidence.

    `seed` and `load_s` (seconds of load) stand for those of the file. Brokers are processes of this machine:
    a cluster of the run's own, or `cluster`, which must run, is put to the test with topics of the run's
    own, and runs in the end. `place` names any other. Raises ScenarioError, and PlaceProblem if there can be
    no cluster.
    """
    chosen = scenario if isinstance(scenario, Scenario) else load(scenario)
    changes = {name: value for name, value in (("seed", seed), ("load_s", load_s)) if value is not None}
    chosen = changed(chosen, **changes) if changes else chosen
    if place is None and cluster is not None:
        place = LocalPlace(cluster, is_ours=False)
    if place is None:
        settings = chosen.cluster.properties()
        place = LocalPlace(
            LocalCluster(folder / "cluster", chosen.cluster.brokers, settings=settings), is_ours=True
        )
    return run(chosen, place, folder, screen)

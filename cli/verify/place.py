"""Which brokers the options of `strandline verify` mean."""

from dataclasses import dataclass, fields
from pathlib import Path

from ...local.cluster import LocalCluster
from ...testing.namespaces import leave_the_network
from ...testing.verify.faults import FAULTS, Power
from ...testing.verify.places import Place, PlaceProblem
from ...testing.verify.places.compose import ComposePlace
from ...testing.verify.places.external import ExternalPlace, read_commands
from ...testing.verify.places.kafka import KafkaApart, KafkaPlace
from ...testing.verify.places.local import LocalPlace, running
from ...testing.verify.places.namespaces import NamespacesPlace
from ...testing.verify.scenario import ALL, Scenario, unfit
from ..console import WrongUsage
from ..reach import reached

OPTIONS = {
    "bootstrap": "--bootstrap-server", "dir": "--dir", "compose": "--compose", "kafka": "--kafka",
    "namespaces": "--namespaces",
}  # fmt: skip
TOGETHER = ({"--bootstrap-server", "--compose"}, {"--kafka", "--namespaces"})
"""Options that may both be given: the second says more of the place."""

NETWORKS = frozenset({Power.LINKS, Power.ISOLATION})


@dataclass(frozen=True)
class Chosen:
    """The options that name a place; at most one of them."""

    bootstrap: str | None = None
    commands: Path | None = None
    dir: Path | None = None
    compose: str | None = None
    kafka: Path | None = None
    strandline: str | None = None
    namespaces: bool | None = None
    controller: int | None = None

    def check(self) -> None:
        """Raises WrongUsage if they name two places."""
        given = [
            OPTIONS[each.name] for each in fields(self) if each.name in OPTIONS and getattr(self, each.name)
        ]
        if len(given) > 1 and set(given) not in TOGETHER:
            raise WrongUsage(f"{' and '.join(given)} name two clusters: give one of them")
        if self.commands is not None and (self.bootstrap is None or self.compose is not None):
            raise WrongUsage("--commands is for --bootstrap-server: it says how its brokers are killed")
        if self.strandline is not None and self.kafka is None:
            raise WrongUsage("--strandline is for --kafka: it says which of its brokers are Strandline's")
        if self.controller is not None and self.kafka is None:
            raise WrongUsage("--controller is for --kafka: it says which of its brokers is controller first")

    def ours(self, brokers: int) -> frozenset[int]:
        """The ids of `--strandline`. Raises WrongUsage."""
        names = (self.strandline or "").replace(",", " ").split()
        if wrong := [name for name in names if name not in map(str, range(1, brokers + 1))]:
            raise WrongUsage(f"--strandline {wrong[0]}: expected ids of brokers, 1 to {brokers}, e.g. 2,3")
        return frozenset(map(int, names))

    def first(self, brokers: int) -> int | None:
        """The id of `--controller`. Raises WrongUsage."""
        if self.controller is not None and not 1 <= self.controller <= brokers:
            raise WrongUsage(f"--controller {self.controller}: expected the id of a broker, 1 to {brokers}")
        return self.controller


def wants_networks(scenario: Scenario) -> bool:
    """Whether a fault of the scenario, by name, cuts links."""
    drawn = scenario.faults.drawn if scenario.faults.drawn != ALL else ()
    wanted = (*drawn, *(each.fault for each in scenario.faults.at))
    return any(FAULTS[name].needs & NETWORKS for name in wanted)


def able(scenario: Scenario, chosen: Chosen) -> list[str]:
    """The faults that could be done there, without looking."""
    chosen.check()
    if chosen.bootstrap is not None and chosen.compose is None:
        return list(FAULTS) if chosen.commands else []
    if chosen.compose is not None:
        powers = ComposePlace.powers
    elif chosen.namespaces or (chosen.namespaces is None and wants_networks(scenario)):
        powers = NamespacesPlace.powers
    else:
        powers = LocalPlace.powers
    clients, brokers = scenario.clients, scenario.cluster.brokers
    return [
        name
        for name, fault in FAULTS.items()
        if fault.needs <= powers and unfit(name, clients, brokers) is None
    ]


def place_for(scenario: Scenario, chosen: Chosen, folder: Path) -> Place:
    """The place; `run` closes it. Raises PlaceProblem, ScenarioError and WrongUsage."""
    chosen.check()
    brokers, settings = scenario.cluster.brokers, scenario.cluster.properties()
    if chosen.compose is not None:
        return ComposePlace(chosen.compose, chosen.bootstrap)
    if chosen.bootstrap is not None:
        commands = read_commands(chosen.commands) if chosen.commands else {}
        return ExternalPlace(reached(chosen.bootstrap), commands)
    if chosen.dir is not None:
        return running(chosen.dir)
    is_apart = chosen.namespaces or (chosen.namespaces is None and wants_networks(scenario))
    if is_apart and (why := leave_the_network()):
        raise PlaceProblem(why)
    if chosen.kafka is not None:
        place = KafkaApart if is_apart else KafkaPlace
        ours, first = chosen.ours(brokers), chosen.first(brokers)
        return place(folder, brokers, settings, chosen.kafka, ours, first)
    if is_apart:
        return NamespacesPlace(folder, brokers, settings)
    return LocalPlace(LocalCluster(folder / "cluster", brokers, settings=settings), is_ours=True)

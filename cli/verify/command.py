"""`strandline verify`: the command. Exit status 0 if everything held, 1 if something was found or is not
known, 2.

Left to others: what a run does (testing/verify/), where its brokers live (place.py), what is shown
(screen.py).
"""

import shutil
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from ...testing.verify.outcome import Outcome, State, judged
from ...testing.verify.places import PlaceProblem
from ...testing.verify.run import run
from ...testing.verify.scenario import Scenario, ScenarioError, changed, load, shipped
from ...testing.verify.schedule import planned
from ..console import AsJson, Failure, WrongUsage, clear_errors, out, print_json, show
from .place import Chosen, able, place_for
from .screen import Live

Name = Annotated[
    str,
    typer.Argument(
        metavar="[SCENARIO]",
        help="a file, or the name of a scenario that comes with Strandline (--list)",
        autocompletion=lambda: list(shipped()),
    ),
]
Seed = Annotated[int | None, typer.Option(min=0, help="draw faults from this seed (default: the file's)")]
Minutes = Annotated[float | None, typer.Option(min=0.05, help="of load (default: the file's)")]
Pace = Annotated[float | None, typer.Option(min=0.01, help="faults and calms last so many times as long")]
Faults = Annotated[str | None, typer.Option(help="only these, each at least once, separated by commas")]
Address = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-server", "--bootstrap", "-b", metavar="HOST:PORT,…", help="test the cluster there"
    ),
]
Commands = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="with --bootstrap-server: TOML with the commands that kill, start …"),
]
Up = Annotated[
    Path | None,
    typer.Option("--dir", "-d", metavar="DIR", help="test the cluster of `strandline up --dir DIR`"),
]
Compose = Annotated[
    str | None, typer.Option(metavar="PROJECT", help="test the brokers of a Docker Compose project")
]
Kafka = Annotated[
    Path | None, typer.Option(metavar="DIR", help="start the Apache Kafka 3.9 that is unpacked there")
]
Namespaces = Annotated[
    bool | None,
    typer.Option(help="start brokers in network namespaces, where links can be cut (needs root)"),
]
Mixed = Annotated[
    str | None,
    typer.Option(metavar="IDS", help="with --kafka: these brokers are Strandline's, e.g. 2,3"),
]
Controller = Annotated[
    int | None, typer.Option(metavar="ID", help="with --kafka: this broker is the first controller")
]
Keep = Annotated[
    Path | None, typer.Option(metavar="DIR", help="keep histories, logs and data in this new directory")
]
Judge = Annotated[
    Path | None, typer.Option(metavar="DIR", help="judge the histories in DIR again; run nothing")
]
Plan = Annotated[bool, typer.Option("--plan", help="print the faults of the schedule; run nothing")]
List = Annotated[bool, typer.Option("--list", help="list the scenarios that come with Strandline")]


def verify(
    scenario: Name = "smoke",
    seed: Seed = None,
    minutes: Minutes = None,
    pace: Pace = None,
    faults: Faults = None,
    bootstrap: Address = None,
    commands: Commands = None,
    dir: Up = None,
    compose: Compose = None,
    kafka: Kafka = None,
    strandline: Mixed = None,
    controller: Controller = None,
    namespaces: Namespaces = None,
    keep: Keep = None,
    judge: Judge = None,
    plan: Plan = False,
    list_: List = False,
    as_json: AsJson = False,
) -> None:
    """Put a cluster under load and faults, and judge what its clients were told: was anything lost?"""
    chosen = Chosen(bootstrap, commands, dir, compose, kafka, strandline, namespaces, controller)
    with clear_errors():
        try:
            if list_:
                show([{"scenario": name, "about": about} for name, about in shipped().items()], as_json)
            elif judge is not None:
                _tell(judged(judge), as_json)
            else:
                wanted = _with_options(load(scenario), seed, minutes, pace, faults)
                if plan:
                    _print_plan(wanted, chosen, as_json)
                else:
                    _run(wanted, chosen, keep, as_json)
        except ScenarioError as error:
            raise WrongUsage(str(error)) from None
        except PlaceProblem as problem:
            raise Failure(str(problem)) from None


def _with_options(
    scenario: Scenario, seed: int | None, minutes: float | None, pace: float | None, faults: str | None
) -> Scenario:
    changes: dict[str, object] = {}
    if seed is not None:
        changes["seed"] = seed
    if minutes is not None:
        changes["load_s"] = minutes * 60
    if pace is not None:
        changes["pace"] = pace
    if faults is not None:
        names = [name.strip() for name in faults.split(",") if name.strip()]
        changes["faults"] = {
            **scenario.faults.model_dump(exclude={"at", "drawn"}, exclude_unset=True), "drawn": names,
        }  # fmt: skip
    return changed(scenario, **changes) if changes else scenario


def _print_plan(scenario: Scenario, chosen: Chosen, as_json: bool) -> None:
    found = planned(scenario, able(scenario, chosen))
    if as_json:
        print_json([strike._asdict() for strike in found])
        return
    out.print(
        f"{scenario.name}, seed {scenario.seed}, {scenario.load_s:g} s of load", markup=False, soft_wrap=True
    )
    for strike in found:
        out.print(strike.told(), markup=False, soft_wrap=True)


def _run(scenario: Scenario, chosen: Chosen, keep: Path | None, as_json: bool) -> None:
    if keep is not None and "," in str(keep.resolve()):
        raise WrongUsage(f"--keep {keep}: brokers split `log.dirs` at commas; name a directory without one")
    if keep is not None and keep.exists() and not keep.is_dir():
        raise WrongUsage(f"--keep {keep}: it is no directory; name a new one")
    if keep is not None and keep.exists() and any(keep.iterdir()):
        raise WrongUsage(f"--keep {keep}: the directory is not empty; name a new one")
    folder = keep or Path(tempfile.mkdtemp(prefix="strandline-verify-"))
    folder.mkdir(parents=True, exist_ok=True)
    outcome: Outcome | None = None
    may_go = False
    try:
        with Live() as screen:
            outcome = run(scenario, place_for(scenario, chosen, folder), folder, screen)
    except PlaceProblem as problem:
        may_go = str(folder) not in str(problem)
        raise
    except (ScenarioError, WrongUsage, KeyboardInterrupt):
        may_go = True
        raise
    finally:  # what an error of the run itself has left may tell how it came
        if keep is None and (outcome.good if outcome else may_go or not any(folder.iterdir())):
            shutil.rmtree(folder, ignore_errors=True)
    _tell(outcome, as_json)


def _tell(outcome: Outcome, as_json: bool) -> None:
    """The shortest explanation first; then what was done."""
    kept = str(outcome.folder) if outcome.folder.exists() else None
    if as_json:
        print_json({**outcome.document(), "directory": kept})
    else:
        lines = [*outcome.explanation(), *outcome.figures()]
        lines += [f"{name:22} {count}" for name, count in outcome.anomalies().items() if count]
        if kept is not None:
            lines.append(f"histories and logs: {kept}")
        out.print("\n".join(lines), markup=False, soft_wrap=True)
        style = {State.HELD: "bold green", State.BROKEN: "bold red", State.UNKNOWN: "bold yellow"}
        out.print(outcome.state.value, style=style[outcome.state])
    if not outcome.good:
        raise typer.Exit(1)

"""`strandline start`, `stop`, `kill`, `pause`, `resume`: single processes of the cluster that `up` started.

Left to others: what may be done when, and how (`local/members.py`).
"""

from pathlib import Path
from typing import Annotated

import typer

from ..local.members import Action, NoSuchMember, act, title
from .completion import member_names
from .console import AsJson, WrongUsage, clear_errors, err, tell
from .up_down import DEFAULT_DIRECTORY, Directory, naming

Names = Annotated[
    list[str],
    typer.Argument(
        metavar="N…",
        help="ids of brokers, or `zookeeper`; one or several",
        autocompletion=member_names,
    ),
]

DONE = {
    Action.START: "started",
    Action.STOP: "stopped",
    Action.KILL: "killed",
    Action.PAUSE: "paused",
    Action.RESUME: "running again",
}


def start(names: Names, dir: Directory = DEFAULT_DIRECTORY, as_json: AsJson = False) -> None:
    """Start a broker that was killed or stopped, with its configuration and data, and wait until it is up."""
    _do(Action.START, names, dir, as_json)


def stop(names: Names, dir: Directory = DEFAULT_DIRECTORY, as_json: AsJson = False) -> None:
    """Stop a broker by a controlled shutdown (SIGTERM): its leaderships move before it ends."""
    _do(Action.STOP, names, dir, as_json)


def kill(names: Names, dir: Directory = DEFAULT_DIRECTORY, as_json: AsJson = False) -> None:
    """Kill a broker (SIGKILL): it ends at once, as in a crash."""
    _do(Action.KILL, names, dir, as_json)


def pause(names: Names, dir: Directory = DEFAULT_DIRECTORY, as_json: AsJson = False) -> None:
    """Let a broker stand still (SIGSTOP): it keeps its connections and answers nothing."""
    _do(Action.PAUSE, names, dir, as_json)


def resume(names: Names, dir: Directory = DEFAULT_DIRECTORY, as_json: AsJson = False) -> None:
    """Let a paused broker go on (SIGCONT)."""
    _do(Action.RESUME, names, dir, as_json)


def _do(action: Action, names: list[str], directory: Path, as_json: bool) -> None:
    with clear_errors():
        options = naming(directory)
        with err.status(f"{action} {' '.join(names)}"):
            try:
                done = act(directory, action, names, options)
            except NoSuchMember as error:
                raise WrongUsage(str(error)) from None
        told = ", ".join(map(title, done))
        tell(f"{told[0].upper()}{told[1:]} {DONE[action]}.", {"done": action.value, "names": done}, as_json)

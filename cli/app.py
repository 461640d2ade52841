"""The table of commands. Each command's file says what it does; `main.py` calls `run`."""

import importlib
import os
import sys
from typing import Annotated, Any

import typer

from .. import __version__
from .console import warnings_only
from .kafka_spelling import of_a_class, translated

COMMANDS = {
    # name: (module, function)
    "up": ("up_down", "up"),
    "down": ("up_down", "down"),
    "start": ("brokers", "start"),
    "stop": ("brokers", "stop"),
    "kill": ("brokers", "kill"),
    "pause": ("brokers", "pause"),
    "resume": ("brokers", "resume"),
    "add": ("roster", "add"),
    "remove": ("roster", "remove"),
    "status": ("status", "status"),
    "health": ("status", "health"),
    "doctor": ("doctor.command", "doctor"),
    "lost": ("why.lost", "lost"),
    "replay": ("replay.command", "replay"),
    "elect-leaders": ("elect", "elect_leaders"),
    "reassign": ("reassign.command", "reassign"),
    "produce": ("records.produce", "produce"),
    "consume": ("records.consume", "consume"),
    "demo": ("demo.command", "demo"),
    "simulate": ("simulate", "simulate"),
    "verify": ("verify.command", "verify"),
    "docs": ("docs.command", "docs"),
    "completion": ("completion", "completion"),
}
GROUPS = {
    "topics": "topics",
    "groups": "groups.command",
    "transactions": "transactions",
    "configs": "configs",
    "why": "why.command",
    "zookeeper": "zookeeper",
}
PASSED_THROUGH = {"broker": "serve", "dump": "dump.command"}
"""Commands that parse their own arguments: a broker to start fast, dump for Kafka's one-dash flags."""
ORDER = (
    *("up", "status", "health", "doctor", "down", "start", "stop", "kill", "pause", "resume"),
    *("add", "remove"),
    *("topics", "produce", "consume", "groups", "transactions", "configs"),
    *("reassign", "elect-leaders", "why", "lost", "replay", "dump"),
    *("zookeeper", "broker", "demo", "verify", "simulate", "docs", "completion"),
)
"""All names, in the order of the help."""


def build(names: list[str]) -> typer.Typer:
    """The application with only the commands in `names`: loading all of them would slow each one."""
    app = typer.Typer(
        name="strandline",
        help="A replicated log broker that speaks the Apache Kafka wire protocol.",
        epilog="Exit status: 0 success; 1 failure (no broker, no ZooKeeper, a port in use …); 2 wrong usage.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich",
        context_settings=_HELP,
    )
    for name in names:
        if name in COMMANDS:
            module, function = COMMANDS[name]
            app.command(name, context_settings=_HELP)(getattr(_load(module), function))
        elif name in GROUPS:
            app.add_typer(_load(GROUPS[name]).app, name=name, context_settings=_HELP)
        else:
            app.command(name, add_help_option=False, context_settings=_RAW)(_passing(PASSED_THROUGH[name]))
    app.callback()(_about)
    return app


def _tell_version(asked: bool) -> None:
    if asked:
        typer.echo(__version__)
        raise typer.Exit()


def _about(
    version: Annotated[
        bool,
        typer.Option("--version", help="print the version and exit", is_eager=True, callback=_tell_version),
    ] = False,
) -> None:
    pass


_HELP = {"help_option_names": ["-h", "--help"]}
_RAW = {"allow_extra_args": True, "ignore_unknown_options": True}


def _load(module: str) -> Any:
    return importlib.import_module(f".{module}", __package__)


def _passing(module: str) -> Any:
    def command(context: typer.Context) -> None:
        raise typer.Exit(_load(module).main(context.args))

    command.__doc__ = _load(module).HELP
    return command


COMPLETE = "_STRANDLINE_COMPLETE"
"""The variable by which the scripts of completion.py ask what a line may go on with."""


def run() -> int:
    """Run the command that was typed. Returns its exit status."""
    if COMPLETE in os.environ:
        return complete()
    sys.argv[1:] = of_a_class(sys.argv[1:])
    asked = sys.argv[1] if len(sys.argv) > 1 else ""
    sys.argv[2:] = translated(asked, sys.argv[2:])
    warnings_only()
    result = build([asked] if asked in ORDER else list(ORDER))(standalone_mode=True)
    return int(result or 0)


def complete() -> int:
    """Answer a shell what the line so far may go on with. Returns the exit status."""
    from typer._completion_classes import completion_init

    line = os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS", "")
    words = line.split()
    at = int(os.environ.get("COMP_CWORD") or len(words) - (not line.endswith(" ")))
    warnings_only()
    completion_init()
    known = at > 1 and words[1] in ORDER
    app = build([words[1]]) if known else _names()
    return int(app(standalone_mode=True, prog_name="strandline", complete_var=COMPLETE) or 0)


def _names() -> typer.Typer:
    """An application that knows the commands by name only: to load all of them takes too long for a key."""
    app = typer.Typer(add_completion=False)
    for name in ORDER:
        app.command(name)(_about)
    app.callback()(_about)
    return app

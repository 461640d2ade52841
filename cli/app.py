"""The table of commands. Each command's file says what it does; `main.py` calls `run`."""

import importlib
import sys
from typing import Annotated, Any

import typer

from .. import __version__
from .console import warnings_only
from .kafka_spelling import of_a_class, translate

COMMANDS = {
    # name: (module, function)
    "up": ("up_down", "up"),
    "down": ("up_down", "down"),
    "start": ("brokers", "start"),
    "stop": ("brokers", "stop"),
    "kill": ("brokers", "kill"),
    "pause": ("brokers", "pause"),
    "resume": ("brokers", "resume"),
    "status": ("status", "status"),
    "health": ("status", "health"),
    "doctor": ("doctor.command", "doctor"),
    "lost": ("why.lost", "lost"),
    "replay": ("replay.command", "replay"),
    "elect-leaders": ("elect", "elect_leaders"),
    "reassign": ("reassign", "reassign"),
    "produce": ("records", "produce"),
    "consume": ("records", "consume"),
    "demo": ("demo.command", "demo"),
    "simulate": ("simulate", "simulate"),
    "verify": ("verify.command", "verify"),
    "docs": ("docs.command", "docs"),
}
GROUPS = {
    "topics": "topics",
    "groups": "groups",
    "transactions": "transactions",
    "configs": "configs",
    "why": "why.command",
    "zookeeper": "zookeeper",
}
PASSED_THROUGH = {"broker": "serve", "dump": "dump.command"}
"""Commands that parse their own arguments: a broker to start fast, dump for Kafka's one-dash flags."""
ORDER = (
    *("up", "status", "health", "doctor", "down", "start", "stop", "kill", "pause", "resume"),
    *("topics", "produce", "consume", "groups", "transactions", "configs"),
    *("reassign", "elect-leaders", "why", "lost", "replay", "dump"),
    *("zookeeper", "broker", "demo", "verify", "simulate", "docs"),
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


def run() -> int:
    """Run the command that was typed. Returns its exit status."""
    sys.argv[1:] = of_a_class(sys.argv[1:])
    asked = sys.argv[1] if len(sys.argv) > 1 else ""
    if asked == "topics":
        sys.argv[2:] = translate(sys.argv[2:])
    warnings_only()
    result = build([asked] if asked in ORDER else list(ORDER))(standalone_mode=True)
    return int(result or 0)
